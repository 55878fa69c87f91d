"""Spending limits of keys and organizations, to the last billionth of a dollar, on every route (section 8)."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest

from apps.billing import balances
from apps.gateway.access import policy
from apps.gateway.settlement import outbox
from apps.kernel.valkey.redis import client as valkey
from apps.keys.models import ApiKey, ProviderKey
from apps.keys.secrets import encrypt_credential
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Project
from tests.support.model_routes import ROUTES, error_of, post
from tests.support.upstream import Caller, nothing_happened, settle_all

NANO = Decimal("0.000000001")


def limited(caller: Caller, limit: Decimal | None, usage: Decimal = Decimal(0)) -> None:
    """Give the key a limit and what it has spent so far."""
    ApiKey.objects.filter(pk=caller.key.pk).update(usage_limit=limit, usage=usage)
    forget(caller)


def credited(caller: Caller, credits: Decimal) -> None:
    """Give the organization credits."""
    Organization.objects.filter(pk=caller.organization_id).update(credits=credits)
    forget(caller)


def forget(caller: Caller) -> None:
    valkey().delete(balances.key("organization", caller.organization_id), balances.key("key", caller.key.pk))
    policy.forget_all()


def worst_of(caller: Caller, route: str) -> Decimal:
    """Return what a request may cost, as its refusal tells it."""
    credited(caller, Decimal(0))
    found = re.search(r"this request needs up to ([\d.]+) USD and 0 USD is left", post(caller, route).json()["message"])
    assert found is not None
    return Decimal(found[1])


@pytest.mark.parametrize("route", ROUTES)
def test_credits_must_cover_the_worst_case_and_no_more(caller: Caller, route: str) -> None:
    worst = worst_of(caller, route)
    credited(caller, worst - NANO)
    answer = post(caller, route)
    words = f"Insufficient credits: this request needs up to {worst} USD and {worst - NANO} USD "
    message = words + "is left; lower max_tokens or add credits under Billing"
    expected = error_of(route, 402, "billing_error", "insufficient_credits", message)
    assert (answer.status, answer.json()) == (402, expected)
    assert nothing_happened(caller)
    credited(caller, worst)
    assert post(caller, route).status == 200


@pytest.mark.parametrize("route", ROUTES)
def test_a_keys_limit_must_cover_the_worst_case_beside_what_was_spent(caller: Caller, route: str) -> None:
    worst, spent = worst_of(caller, route), Decimal("0.7")
    credited(caller, Decimal(100))
    limited(caller, spent + worst - NANO, spent)
    answer = post(caller, route)
    words = f"The key's usage limit of {spent + worst - NANO} USD is too low: this request needs up to {worst} "
    message = words + f"USD and {worst - NANO} USD is left; lower max_tokens or raise the key's limit"
    expected = error_of(route, 402, "billing_error", "usage_limit_exceeded", message)
    assert (answer.status, answer.json()) == (402, expected)
    assert nothing_happened(caller)
    limited(caller, spent + worst, spent)
    assert post(caller, route).status == 200


@pytest.mark.parametrize("scope", ["organization", "key"])
def test_what_is_held_for_requests_under_way_is_not_left(caller: Caller, scope: balances.Scope) -> None:
    worst = worst_of(caller, "chat")
    credited(caller, worst * 2)
    limited(caller, worst * 2)
    name = balances.key(scope, caller.organization_id if scope == "organization" else caller.key.pk)
    assert post(caller, "chat").status == 200
    valkey().hset(name, "held", int(worst / NANO) + 1)
    assert post(caller, "chat").status == 402
    valkey().hset(name, "held", 0)
    assert post(caller, "chat").status == 200


@pytest.mark.parametrize(("credits", "limit"), [(0, 100), (100, 0)])
def test_an_answer_holds_what_it_cost_until_that_is_charged(caller: Caller, credits: int, limit: int) -> None:
    worst = worst_of(caller, "chat")
    credited(caller, worst + credits)
    limited(caller, worst + limit)
    assert post(caller, "chat").status == 200
    names = balances.key("organization", caller.organization_id), balances.key("key", caller.key.pk)
    held = [Decimal(int(valkey().hget(name, "held") or 0)) * NANO for name in names]
    assert post(caller, "chat").status == 402, "the worst case is left no more"
    assert settle_all() == 1
    cost = RequestLog.objects.get().cost
    assert 0 < (cost or 0) < worst
    assert held == [cost, cost]
    assert [valkey().hget(name, "held") for name in names] == ["0", "0"]
    assert post(caller, "chat").status == 402, "it has been charged"


def test_a_keys_usage_and_the_credits_move_by_the_cost(caller: Caller) -> None:
    limited(caller, Decimal(1))
    for route in ROUTES:
        assert post(caller, route, "hi [[sandbox usage=1000,200]]").status == 200
    assert settle_all() == 4
    cost = sum((row.cost or Decimal(0) for row in RequestLog.objects.all()), Decimal(0))
    assert cost > 0
    assert ApiKey.objects.get(pk=caller.key.pk).usage == cost
    assert Organization.objects.get(pk=caller.organization_id).credits == 100 - cost
    for scope, identifier in (("organization", caller.organization_id), ("key", caller.key.pk)):
        assert valkey().hget(balances.key(scope, identifier), "held") == "0"


def test_a_limit_of_nothing_lets_nothing_in_that_costs(caller: Caller) -> None:
    limited(caller, Decimal(0))
    assert post(caller, "chat").json()["error"]["code"] == "usage_limit_exceeded"
    assert nothing_happened(caller)


@pytest.mark.parametrize("mode", ["api-keys", "hybrid"])
def test_own_credentials_need_no_credits_but_count_against_the_keys_limit(caller: Caller, mode: str) -> None:
    ProviderKey.objects.create(
        organization_id=caller.organization_id, provider="sandbox", encrypted_token=encrypt_credential("sk-of-acme")
    )
    Project.objects.filter(pk=caller.key.project_id).update(mode=mode)
    credited(caller, Decimal(0))
    tag = uuid4().hex
    answer = post(caller, "chat", f"hi [[sandbox tag={tag} usage=1000,200]]")
    assert answer.status == 200
    assert caller.sent(tag)[0]["headers"]["authorization"].endswith("...acme")
    settle_all()
    assert Organization.objects.get(pk=caller.organization_id).credits == 0
    spent = ApiKey.objects.get(pk=caller.key.pk).usage
    assert spent == Decimal("0.00027")
    limited(caller, spent, spent)
    assert post(caller, "chat").json()["error"]["code"] == "usage_limit_exceeded"
    assert nothing_happened(caller)


def test_without_own_credentials_a_project_of_own_keys_has_nobody_to_ask(caller: Caller) -> None:
    Project.objects.filter(pk=caller.key.project_id).update(mode="api-keys")
    policy.forget_all()
    for route in ROUTES:
        answer = post(caller, route)
        message = (
            "This project uses your own provider keys, and there is none for: sandbox. Add one (POST /keys/provider)"
        )
        expected = error_of(route, 400, "invalid_request_error", "model_not_found", message, "model")
        assert (answer.status, answer.json()) == (400, expected)
    assert nothing_happened(caller)


@pytest.mark.parametrize("stream", [False, True])
def test_a_good_answer_is_kept_even_if_billing_fails(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    def break_down(*_: Any, **_named: Any) -> None:
        raise RuntimeError("no room on the disk")

    monkeypatch.setattr(outbox, "push", break_down)
    for route in ("chat", "messages"):
        answer = post(caller, route, "hi [[sandbox chunks=1]]", stream=stream)
        assert (answer.status, b"You said: hi" in answer.content, b'"error":' in answer.content) == (200, True, False)
