"""Access rules on every route that reaches a model: the remaining part of the catalog (sections 2.2 and 5.4).

`echo` has three providers: the sandbox (0.15 and 0.6 USD per million tokens), `second` (1) and `third` (2).
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from apps.catalog.models import Model
from apps.gateway.access import credentials, policy
from apps.gateway.routing import circuit_breaker
from apps.kernel.valkey import generation
from apps.keys.models import IamRule
from tests.support.model_routes import Answer, error_of, post
from tests.support.sandbox_providers import Adding, add_provider
from tests.support.upstream import Caller, nothing_happened, settle_all

__all__ = ["add_provider"]
FREE, PAID = {"pricingType": "free"}, {"pricingType": "paid"}
Stated = tuple[str, Any]


@pytest.fixture(autouse=True)
def _fleet(caller: Caller, add_provider: Adding) -> None:
    add_provider("second", "1")
    add_provider("third", "2")
    circuit_breaker._counted.clear()


def ruled(caller: Caller, *rules: Stated, status: str = "active") -> list[IamRule]:
    """Give the key these rules and no others; a value is a list of models or providers, or a price rule's value."""
    IamRule.objects.filter(api_key=caller.key).delete()
    made = []
    for rule_type, value in rules:
        if isinstance(value, list):
            value = {rule_type.partition("_")[2]: value}
        rule = IamRule.objects.create(api_key=caller.key, rule_type=rule_type, rule_value=value, status=status)
        made.append(rule)
    policy.forget_all()
    return made


def used(caller: Caller, answer: Answer) -> tuple[str, str]:
    """Return the model and the provider that answered, as the log will have them."""
    assert answer.status == 200, answer.content
    settle_all()
    entry = caller.client.get("/logs?limit=1", headers={"x-api-key": caller.token}).json()["logs"][0]
    return entry["usedModel"], entry["usedProvider"]


def assert_refused(caller: Caller, route: str, *rules: IamRule, **fields: Any) -> None:
    """Assert that a request is refused with the id and type of one of the rules, and that nothing else happens."""
    tag = uuid4().hex
    answer = post(caller, route, f"hi [[sandbox tag={tag}]]", **fields)
    messages = [f"Access denied by IAM rule {rule.id} ({rule.rule_type}) of this API key" for rule in rules]
    expected = [error_of(route, 403, "permission_error", "access_denied", one, "model") for one in messages]
    assert answer.status == 403
    assert answer.json() in expected
    assert caller.sent(tag) == []
    assert nothing_happened(caller)


# The rules, and who answers then: a provider, or which rules refuse (where each offer has another against it).
TABLE: list[tuple[list[Stated], str | list[int]]] = [
    ([], "sandbox"),
    ([("allow_models", ["echo"])], "sandbox"),
    ([("allow_models", ["tools", "echo"])], "sandbox"),
    ([("allow_models", ["tools"])], [0]),
    ([("allow_models", ["tools"]), ("allow_models", ["echo"])], "sandbox"),
    ([("allow_models", ["ECHO"])], [0]),
    ([("deny_models", ["echo"])], [0]),
    ([("deny_models", ["tools"])], "sandbox"),
    ([("allow_models", ["echo"]), ("deny_models", ["echo"])], [1]),
    ([("deny_models", ["echo"]), ("allow_models", ["echo"])], [0]),
    ([("allow_providers", ["sandbox"])], "sandbox"),
    ([("allow_providers", ["third"])], "third"),
    ([("allow_providers", ["third"]), ("allow_providers", ["second"])], "second"),
    ([("allow_providers", ["openai"])], [0]),
    ([("deny_providers", ["sandbox"])], "second"),
    ([("deny_providers", ["sandbox"]), ("deny_providers", ["second"])], "third"),
    ([("deny_providers", ["sandbox", "second", "third"])], [0]),
    ([("allow_providers", ["second"]), ("deny_providers", ["second"])], [0, 1]),
    ([("allow_providers", ["second", "third"]), ("deny_providers", ["second"])], "third"),
    ([("allow_pricing", PAID)], "sandbox"),
    ([("allow_pricing", FREE)], [0]),
    ([("allow_pricing", FREE), ("allow_pricing", PAID)], "sandbox"),
    ([("deny_pricing", FREE)], "sandbox"),
    ([("deny_pricing", PAID)], [0]),
    ([("deny_pricing", {**PAID, "maxInputPrice": 0.5})], "second"),
    ([("deny_pricing", {**PAID, "maxOutputPrice": "1"})], "third"),
    ([("allow_pricing", {**PAID, "maxInputPrice": 0.15, "maxOutputPrice": "0.6"})], "sandbox"),
    ([("allow_pricing", {**PAID, "maxInputPrice": "0.149"})], [0]),
    ([("allow_models", ["echo"]), ("allow_providers", ["second"])], "second"),
    ([("allow_models", ["echo"]), ("allow_providers", ["openai"])], [1]),
    ([("allow_models", ["tools"]), ("allow_providers", ["second"])], [0, 1]),
    ([("allow_models", ["echo"]), ("deny_providers", ["sandbox"]), ("allow_pricing", PAID)], "second"),
    ([("allow_providers", ["second"]), ("allow_pricing", {**PAID, "maxInputPrice": 0.5})], [0, 1]),
    ([("allow_models", ["echo"]), ("allow_providers", ["third"]), ("deny_pricing", PAID)], [1, 2]),
    ([("deny_models", ["tools"]), ("deny_providers", ["third"]), ("deny_pricing", FREE)], "sandbox"),
]


@pytest.mark.parametrize("route", ["chat", "messages"])
def test_all_rules_must_agree(caller: Caller, route: str) -> None:
    for rules, expected in TABLE:
        made = ruled(caller, *rules)
        if isinstance(expected, list):
            assert_refused(caller, route, *(made[number] for number in expected), model="echo")
        else:
            assert used(caller, post(caller, route, model="echo")) == ("echo", expected), rules


def test_a_rule_that_is_switched_off_says_nothing(caller: Caller) -> None:
    ruled(caller, ("deny_models", ["echo"]), ("allow_providers", ["openai"]), status="inactive")
    assert used(caller, post(caller, "chat", model="echo")) == ("echo", "sandbox")


def test_another_keys_rules_say_nothing(caller: Caller) -> None:
    made = ruled(caller, ("deny_models", ["echo"]))
    assert_refused(caller, "chat", made[0], model="echo")
    other = type(caller.key).objects.create(
        project=caller.key.project, created_by=caller.key.created_by, description="other", digest=b"x" * 32, prefix="x"
    )
    IamRule.objects.update(api_key=other)
    policy.forget_all()
    assert post(caller, "chat", model="echo").status == 200


class TestNames:
    """A rule applies to the catalog's ids, whatever the client calls a model."""

    names = ("echo", "parrot", "sandbox/echo", "sandbox/parrot", "second/echo")

    @pytest.fixture(autouse=True)
    def _alias(self, _fleet: None) -> None:
        Model.objects.filter(pk="echo").update(aliases=["parrot"])
        generation.bump(generation.CATALOG)

    @pytest.mark.parametrize("route", ["chat", "messages"])
    def test_no_other_name_gets_around_a_rule(self, caller: Caller, route: str) -> None:
        for rule in (("deny_models", ["echo"]), ("allow_models", ["tools"]), ("allow_pricing", FREE)):
            made = ruled(caller, rule)
            for name in self.names:
                assert_refused(caller, route, made[0], model=name)
        ruled(caller, ("allow_models", ["echo"]), ("deny_models", ["parrot", "sandbox/echo"]))
        for name in self.names:
            assert used(caller, post(caller, route, model=name))[0] == "echo"

    @pytest.mark.parametrize("route", ["chat", "messages"])
    def test_a_provider_that_is_named_and_denied_is_not_replaced(self, caller: Caller, route: str) -> None:
        for rule in (("deny_providers", ["sandbox"]), ("allow_providers", ["second", "third"])):
            made = ruled(caller, rule)
            assert_refused(caller, route, made[0], model="sandbox/echo")
            assert used(caller, post(caller, route, model="third/echo")) == ("echo", "third")

    def test_a_name_that_nobody_knows_is_no_matter_of_rules(self, caller: Caller) -> None:
        ruled(caller, ("allow_models", ["tools"]))
        answer = post(caller, "chat", model="qqqqqqqqqq")
        assert (answer.status, answer.json()["error"]["code"]) == (400, "model_not_found")


@pytest.mark.parametrize("route", ["generations", "edits"])
def test_of_images(caller: Caller, route: str) -> None:
    table: list[tuple[Stated, str, bool]] = [
        (("deny_models", ["painter"]), "painter", False),
        (("deny_models", ["painter"]), "sandbox/painter", False),
        (("allow_models", ["painter"]), "painter", True),
        (("allow_models", ["echo"]), "painter", False),
        (("deny_providers", ["sandbox"]), "painter", False),
        (("allow_providers", ["second"]), "painter", False),
        (("allow_providers", ["sandbox"]), "painter", True),
        (("deny_pricing", PAID), "painter", False),
        (("allow_pricing", FREE), "painter", False),
        (("deny_pricing", FREE), "painter", True),
        (("allow_pricing", {**PAID, "maxInputPrice": 5.0}), "painter", False),
    ]
    for rule, model, allowed in table:
        made = ruled(caller, rule)
        if allowed:
            assert used(caller, post(caller, route, model=model)) == ("painter", "sandbox"), rule
        else:
            assert_refused(caller, route, made[0], model=model)


class TestAuto:
    """The cheapest model of those that the rules leave."""

    @pytest.mark.parametrize("route", ["chat", "messages"])
    def test_of_chats(self, caller: Caller, route: str) -> None:
        table: list[tuple[list[Stated], tuple[str, str]]] = [
            ([], ("free", "sandbox")),
            ([("deny_models", ["free"])], ("json", "sandbox")),
            ([("deny_pricing", FREE)], ("json", "sandbox")),
            ([("allow_pricing", FREE)], ("free", "sandbox")),
            ([("allow_models", ["tools", "reasoner"])], ("tools", "sandbox")),
            ([("allow_providers", ["second", "third"])], ("echo", "second")),
            ([("deny_providers", ["sandbox", "second"])], ("echo", "third")),
            ([("allow_models", ["echo"]), ("deny_providers", ["sandbox"])], ("echo", "second")),
        ]
        for rules, expected in table:
            ruled(caller, *rules)
            assert used(caller, post(caller, route, model="auto")) == expected, rules
        for rule in (("allow_models", ["no-such-model"]), ("allow_providers", ["openai"])):
            assert_refused(caller, route, ruled(caller, rule)[0], model="auto")

    def test_of_chats_that_are_to_be_free(self, caller: Caller) -> None:
        ruled(caller, ("deny_models", ["echo"]))
        assert used(caller, post(caller, "chat", model="auto", free_models_only=True)) == ("free", "sandbox")
        (rule,) = ruled(caller, ("deny_pricing", FREE))
        assert_refused(caller, "chat", rule, model="auto", free_models_only=True)

    @pytest.mark.parametrize("model", ["auto", None])
    def test_of_images(self, caller: Caller, model: str | None) -> None:
        ruled(caller, ("allow_models", ["painter"]))
        assert used(caller, post(caller, "generations", model=model)) == ("painter", "sandbox")
        ruled(caller, ("allow_models", ["painter", "painter-flat"]))
        assert used(caller, post(caller, "generations", model=model)) == ("painter-flat", "sandbox")
        (rule,) = ruled(caller, ("allow_models", ["echo"]))
        assert_refused(caller, "generations", rule, model=model)


class TestFallback:
    """It never leaves what the rules allow."""

    @pytest.mark.parametrize("model", ["echo", "sandbox/echo", "auto"])
    @pytest.mark.parametrize("route", ["chat", "messages"])
    def test_after_a_failure(self, caller: Caller, route: str, model: str) -> None:
        ruled(caller, ("deny_providers", ["second"]), ("allow_models", ["echo"]))
        tag = uuid4().hex
        answer = post(caller, route, f"hi [[sandbox tag={tag} status=503 times=1]]", model=model)
        assert used(caller, answer) == ("echo", "third")
        assert len(caller.sent(tag)) == 2
        ruled(caller, ("allow_providers", ["sandbox"]), ("allow_models", ["echo"]))
        tag = uuid4().hex
        assert post(caller, route, f"hi [[sandbox tag={tag} status=503]]", model=model).status == 503
        assert len(caller.sent(tag)) == 1

    def test_away_from_a_provider_that_is_hardly_up(self, caller: Caller) -> None:
        ruled(caller, ("deny_providers", ["second"]))
        for _ in range(4):
            circuit_breaker.CIRCUIT_BREAKERS.record_failure("sandbox/echo")
        circuit_breaker.CIRCUIT_BREAKERS.sync()
        answer = post(caller, "chat", model="sandbox/echo")
        assert answer.json()["metadata"]["selectionReason"] == "low-uptime-fallback"
        assert used(caller, answer) == ("echo", "third")
        ruled(caller, ("allow_providers", ["sandbox"]))
        assert used(caller, post(caller, "chat", model="sandbox/echo")) == ("echo", "sandbox")

    def test_a_credential_that_is_refused_opens_no_other_door(self, caller: Caller) -> None:
        ruled(caller, ("allow_providers", ["sandbox"]))
        tag = uuid4().hex
        assert post(caller, "chat", f"hi [[sandbox tag={tag} status=401]]", model="echo").status == 502
        assert len(caller.sent(tag)) == 1
        credentials.reset_cooldowns()
