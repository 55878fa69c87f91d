"""Limits that reroute: beyond them a cheaper model of a list answers, counted and billed as what it is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.gateway.access import policy
from apps.kernel.valkey import redis as kernel_redis
from apps.keys.models import IamRule
from apps.limits import actions
from apps.limits.counters import find_mismatches
from apps.limits.models import Limit
from apps.logs.models import RequestLog
from apps.organizations.models import Organization
from tests.limits.test_limited_requests import limit, used
from tests.support.round_trips import round_trips
from tests.support.upstream import Caller, nothing_happened, settle_all

CHEAP = "echo-fast"


def rerouting(caller: Caller, *models: str, **fields: Any) -> Limit:
    known = {"name": "Daily budget", "action": "reroute", "reroute_models": list(models or (CHEAP,)), "amount": 1}
    one = limit(caller, **{**known, **fields})
    # Nothing is committed here, so that no policy is replaced.
    policy.forget_all()
    return one


def ask(caller: Caller, model: str = "echo", **fields: Any) -> tuple[str, Any, str | None]:
    """Ask, and return the model that answered, the explanation and the header."""
    answer = caller.chat("hi", model=model, **fields)
    assert answer.status_code == 200, answer.content
    metadata = answer.json()["metadata"]
    assert metadata["requested_model"] == model
    return metadata["used_model"], metadata.get("rerouted"), answer.headers.get("x-gateway-rerouted")


def refusal(caller: Caller, **fields: Any) -> tuple[int, str, str]:
    answer = caller.chat("hi", **fields)
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["message"].partition(",")[0]


REFUSED = (429, "limit_reached", 'The limit "Daily budget" of the organization')
REROUTED = (CHEAP, {"limit": "Daily budget", "model": CHEAP}, "Daily%20budget")


def test_beyond_the_limit_the_cheaper_model_answers_is_logged_billed_and_counted(caller: Caller) -> None:
    Organization.objects.update(retention_level="metadata")
    budget = rerouting(caller, "json")
    assert ask(caller) == ("echo", None, None)
    assert ask(caller) == ("json", {"limit": "Daily budget", "model": "json"}, "Daily%20budget")
    settle_all()
    last = RequestLog.objects.order_by("-id")[0]
    assert (last.requested_model, last.used_model) == ("echo", "json")
    assert last.routing_metadata is not None
    assert last.routing_metadata["rerouted"] == {"limit": "Daily budget", "model": "json"}
    assert ask(caller, "json") == ("json", None, None)
    settle_all()
    first, rerouted, named = RequestLog.objects.order_by("id").values_list("cost", flat=True)
    # The same answer by the same model costs the same, whichever way it was asked for.
    assert (rerouted, rerouted != first) == (named, True)
    # The limit covers the cheaper model, too: it counts it, and does not refuse it.
    assert used(budget) == 3
    assert nothing_happened(caller)
    assert find_mismatches() == []


def test_a_limit_on_a_model_does_not_count_the_model_that_answers_instead(caller: Caller) -> None:
    one = rerouting(caller, scope="model", model="echo")
    assert [ask(caller)[0] for _ in range(3)] == ["echo", CHEAP, CHEAP]
    settle_all()
    assert used(one) == 1


def test_the_first_model_that_can_answer_does(caller: Caller) -> None:
    rerouting(caller, "embedder", "reasoner", "json", CHEAP, amount=0)
    IamRule.objects.create(api_key=caller.key, rule_type="deny_models", rule_value={"models": ["reasoner"]})
    limit(caller, scope="model", model="json", amount=Decimal(0))
    # One embeds, one is not allowed, one has a limit of its own that is used up.
    assert ask(caller)[0] == CHEAP


def test_the_request_is_refused_by_the_limit_where_none_of_its_models_can_answer(caller: Caller) -> None:
    rerouting(caller, "embedder", amount=0)
    assert refusal(caller, model="echo") == REFUSED
    assert nothing_happened(caller)


def test_a_model_beyond_another_rerouting_limit_leads_to_that_ones_models(caller: Caller) -> None:
    rerouting(caller, CHEAP, scope="model", model="echo", amount=0)
    rerouting(caller, "echo", "json", name="fast", scope="model", model=CHEAP, amount=0)
    # `echo` is beyond its own limit.
    assert ask(caller)[:2] == ("json", {"limit": "Daily budget", "model": "json"})
    assert ask(caller, CHEAP)[1] == {"limit": "fast", "model": "json"}


def test_an_end_users_limit_and_a_providers_reroute_too(caller: Caller) -> None:
    rerouting(caller, scope="end_user", scope_id=str(caller.key.project_id))
    assert [ask(caller, user=user)[0] for user in ("a", "a", "b")] == ["echo", CHEAP, "echo"]
    rerouting(caller, "free", name="vendor", scope="provider", provider="sandbox", model="json", amount=0)
    assert ask(caller, "json")[0] == "free"


def test_what_another_model_cannot_stand_in_for_is_refused(caller: Caller) -> None:
    rerouting(caller, "embedder-fast", CHEAP, amount=0)
    embedding = caller.client.post(
        "/v1/embeddings",
        {"model": "embedder", "input": "hi"},
        content_type="application/json",
        headers={"Authorization": f"Bearer {caller.token}"},
    )
    assert (embedding.status_code, embedding.json()["error"]["code"]) == (429, "limit_reached")
    bound = {"model": "sandbox/echo", "provider": {"allow_fallbacks": False}}
    assert refusal(caller, **bound) == REFUSED
    assert nothing_happened(caller)


@pytest.mark.parametrize("model", ["echo", "sandbox/echo"])
def test_a_client_that_wants_no_fallback_gets_its_model_or_a_refusal(caller: Caller, model: str) -> None:
    rerouting(caller, amount=0)
    assert refusal(caller, model=model, headers={"x-no-fallback": "true"}) == REFUSED
    assert nothing_happened(caller)
    # This preference is about providers: without one that is named, another model may answer.
    assert ask(caller, "echo", provider={"allow_fallbacks": False}) == REROUTED


def test_a_stream_and_several_models_are_rerouted(caller: Caller) -> None:
    rerouting(caller, amount=0)
    answer = caller.chat("hi", model="echo", stream=True)
    assert answer.headers["x-gateway-rerouted"] == "Daily%20budget"
    assert f'"model":"{CHEAP}"'.encode() in b"".join(answer.streaming_content)
    assert ask(caller, "echo", models=["json"])[0] == CHEAP


def test_explaining_a_route_names_the_limit_and_its_models(caller: Caller) -> None:
    def explain(model: str) -> Any:
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
        headers = {"Authorization": f"Bearer {caller.token}"}
        return caller.client.post("/v1/route/explain", body, content_type="application/json", headers=headers).json()

    rerouting(caller)
    assert "rerouting" not in explain("echo")
    assert ask(caller)[0] == "echo"
    settle_all()
    told = explain("echo")
    assert (told["used_model"], told["rerouting"]) == ("echo", [{"limit": "Daily budget", "models": [CHEAP]}])
    assert "rerouting" not in explain(CHEAP)


def test_a_change_of_the_list_holds_for_the_next_request(caller: Caller) -> None:
    one = rerouting(caller, amount=0)
    assert ask(caller)[0] == CHEAP
    actions.change_limit(limit=one, changes={"reroute_models": ["json"]})
    policy.forget_all()
    assert ask(caller)[0] == "json"
    assert ask(caller, CHEAP)[0] == "json"
    changed = actions.change_limit(limit=one, changes={"action": "refuse"})
    policy.forget_all()
    assert changed.reroute_models == []
    assert refusal(caller, model="echo") == REFUSED


def test_a_warm_rerouted_request_makes_no_query_and_one_round_trip_more(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    rerouting(caller)
    assert [ask(caller)[0] for _ in range(2)] == ["echo", CHEAP]
    settle_all()
    trips = round_trips(monkeypatch, kernel_redis.client())
    with CaptureQueriesContext(connection) as queries:
        assert ask(caller) == REROUTED
    assert (len(queries), trips) == (0, ["EVALSHA"] * 3)


MODELS = ("echo", CHEAP, "json", "tools", "reasoner")


class Drawn(NamedTuple):
    """A limit as the oracle sees it: the model that it covers (empty: all), its amount and what happens beyond."""

    model: str
    amount: int
    action: str
    reroutes_to: tuple[str, ...]

    def refuses(self, model: str, used: int) -> bool:
        return self.action != "warn" and self.covers(model) and model not in self.reroutes_to and used >= self.amount

    def covers(self, model: str) -> bool:
        return self.model in ("", model)


def draw_limit(draw: random.Random) -> Drawn:
    action = draw.choice(("refuse", "warn", "reroute", "reroute"))
    models = tuple(draw.sample(MODELS, draw.randint(1, 3))) if action == "reroute" else ()
    return Drawn(draw.choice(("", *MODELS)), draw.choice((0, 1, 3, 8)), action, models)


def served(model: str, limits: Sequence[Drawn], counts: Sequence[int]) -> str | None:
    """Return the model that answers a request, None where it is refused."""

    def reached(asked: str) -> Drawn | None:
        return next((one for one, used in zip(limits, counts, strict=True) if one.refuses(asked, used)), None)

    first = reached(model)
    if first is None:
        return model
    names = list(first.reroutes_to)
    for name in names:
        other = reached(name)
        if other is None:
            return name
        names += [one for one in other.reroutes_to if one not in names]
    return None


def test_random_requests_under_random_limits_agree_with_an_oracle(caller: Caller) -> None:
    draw = random.Random(45)
    for _ in range(8):
        limits = [draw_limit(draw) for _ in range(draw.randint(1, 6))]
        rows = [
            limit(
                caller,
                name=f"limit {at}",
                amount=Decimal(one.amount),
                action=one.action,
                reroute_models=list(one.reroutes_to),
                **({"scope": "model", "model": one.model} if one.model else {}),
            )
            for at, one in enumerate(limits)
        ]
        policy.forget_all()
        counts = [0] * len(limits)
        for _ in range(14):
            model = draw.choice(MODELS)
            expected = served(model, limits, counts)
            answer = caller.chat("hi", model=model)
            found = answer.json()["metadata"]["used_model"] if answer.status_code == 200 else None
            assert found == expected, (model, limits, counts, answer.content)
            assert (answer.headers.get("x-gateway-rerouted") is not None) is (expected not in (None, model))
            for at, one in enumerate(limits):
                counts[at] += expected is not None and one.covers(expected)
            if draw.random() < 0.4:
                settle_all()
        settle_all()
        assert [used(row) for row in rows] == counts
        call_command("check_limits")
        for row in rows:
            actions.delete_limit(limit=row)
