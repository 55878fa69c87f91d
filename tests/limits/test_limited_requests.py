"""Requests under limits, through the gateway: counted, refused in the client's format, warned, without a query."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from apps.gateway.access import policy
from apps.gateway.settlement import outbox
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.kernel.valkey import redis as kernel_redis
from apps.keys.models import ApiKey
from apps.limits import actions
from apps.limits.models import Limit, LimitCharge, LimitCounter
from apps.limits.state import states_of
from apps.logs.models import RequestLog
from tests.support.model_routes import error_of, post
from tests.support.round_trips import round_trips
from tests.support.upstream import Caller, nothing_happened, settle_all


def limit(caller: Caller, **fields: Any) -> Limit:
    """Create a limit of the caller's organization: ten requests in all."""
    known = {
        "name": f"limit {Limit.objects.count()}",
        "scope": "organization",
        "counts": "requests",
        "window": "lifetime",
        "amount": Decimal(10),
        **fields,
    }
    return actions.create_limit(organization=caller.key.project.organization, fields=known)


def used(one: Limit) -> Decimal:
    row = LimitCounter.objects.filter(limit_id=one.id).first()
    return Decimal(0) if row is None else row.used


def test_a_request_is_counted_by_each_limit_that_holds_for_it(caller: Caller) -> None:
    project, key = str(caller.key.project_id), str(caller.key.id)
    limits = {
        "organization": limit(caller, counts="usd", amount=Decimal(1)),
        "project": limit(caller, scope="project", scope_id=project, counts="tokens", amount=Decimal(1_000_000)),
        "member": limit(caller, scope="member", scope_id=str(caller.key.created_by_id)),
        "key": limit(caller, scope="key", scope_id=key, counts="input_tokens", amount=Decimal(10_000)),
        "model": limit(caller, scope="model", model="ec*", counts="output_tokens", amount=Decimal(1_000_000)),
        "other": limit(caller, scope="key", scope_id=key, model="gpt-5"),
        "end_user": limit(caller, scope="end_user", scope_id=project),
    }
    assert caller.chat("hi [[sandbox usage=1003,207,300]]", user="u1").status_code == 200
    settle_all()
    assert {name: used(one) for name, one in limits.items()} == {
        "organization": Decimal("0.00025215"),
        "project": 1210,
        "member": 1,
        "key": 1003,
        "model": 207,
        "other": 0,
        "end_user": 1,
    }
    assert LimitCharge.objects.get().reference == RequestLog.objects.get().id
    assert nothing_happened(caller)


def test_a_refusal_that_lasts_is_not_waited_for_in_silence(caller: Caller) -> None:
    """Anthropic's SDKs sleep for as long as `Retry-After` says: until the next month without a word."""
    month = {"window": "month", "starts_on": timezone.now().date() + timedelta(days=10)}
    monthly = limit(caller, amount=Decimal(1), **month)
    assert caller.chat().status_code == 200
    settle_all()
    for route in ("chat", "messages"):
        answer = post(caller, route)
        assert (answer.status, answer.headers["x-should-retry"]) == (429, "false")
        assert int(answer.headers["retry-after"]) > 86_400
    actions.delete_limit(limit=monthly)
    policy.forget_all()
    limit(caller, window="minute", amount=Decimal(1), counts="input_tokens")
    answer = post(caller, "messages", "more than one token")
    assert (answer.status, answer.headers["x-should-retry"]) == (429, "false")
    assert "retry-after" not in answer.headers
    assert nothing_happened(caller)


def test_a_request_beyond_a_limit_is_refused_with_the_limit_in_the_message(caller: Caller) -> None:
    now = timezone.now()
    limit(caller, name="Daily", window="day", amount=Decimal(1), time_zone="Europe/Berlin")
    assert caller.chat().status_code == 200
    settle_all()
    for route in ("chat", "messages"):
        answer = post(caller, route)
        message = answer.json()["message"]
        assert message.startswith(
            'The limit "Daily" of the organization, 1 request a day, does not cover this request: '
            "1 used and 0 held by requests in progress, and it needs 1; it resets at "
        )
        assert (answer.status, answer.json()) == (
            429,
            error_of(route, 429, "rate_limit_error", "limit_reached", message),
        )
        resets = datetime.fromisoformat(message.rpartition(" ")[2])
        waited = (resets - datetime.now(UTC)).total_seconds()
        assert now < resets <= now + timedelta(hours=25)
        assert waited - 2 <= int(answer.headers["retry-after"]) <= waited + 5
    assert nothing_happened(caller)
    assert RequestLog.objects.count() == 1


def test_a_client_comes_back_soon_where_requests_in_progress_hold_tokens(caller: Caller) -> None:
    limit(caller, counts="tokens", window="month", amount=Decimal(2_000))
    assert caller.chat("hi [[sandbox usage=1000,200,0]]").status_code == 200
    held = caller.chat(max_tokens=1_500)
    assert (held.status_code, held["retry-after"]) == (429, "1")
    settle_all()
    used = caller.chat(max_tokens=1_500)
    assert (used.status_code, used["retry-after"] != "1") == (429, True)


def test_a_client_waits_for_the_next_window_where_requests_in_progress_are_the_last(caller: Caller) -> None:
    limit(caller, window="month", amount=Decimal(1))
    assert caller.chat().status_code == 200
    refused = caller.chat()
    assert "0 used and 1 held" in refused.json()["error"]["message"]
    assert (refused.status_code, refused["retry-after"] != "1") == (429, True)


def test_a_limit_of_money_refuses_with_402(caller: Caller) -> None:
    limit(caller, name="Budget", counts="usd", window="month", amount=Decimal("0.000001"))
    answer = post(caller, "chat")
    message = answer.json()["message"]
    assert message.startswith('The limit "Budget" of the organization, 0.000001 USD a month, does not cover this')
    assert (answer.status, answer.json()) == (402, error_of("chat", 402, "billing_error", "limit_reached", message))
    assert nothing_happened(caller)


def test_a_limit_of_tokens_is_the_limit_of_the_answer(caller: Caller) -> None:
    limit(caller, counts="output_tokens", amount=Decimal(2_000))
    answer = caller.chat("hi [[sandbox tag=limited]]")
    assert answer.status_code == 200, answer.content
    assert caller.sent("limited")[0]["body"]["max_tokens"] == 500


def test_a_limit_that_warns_lets_in_and_tells(caller: Caller) -> None:
    limit(caller, name="Soft", amount=Decimal(1), action="warn")
    assert "warnings" not in caller.chat().json()["metadata"]
    settle_all()
    answer = caller.chat()
    assert answer.status_code == 200
    assert answer.json()["metadata"]["warnings"] == [
        {
            "param": "limit",
            "message": 'over the limit "Soft" of the organization, 1 request in all; it does not reset',
        }
    ]
    assert not answer.has_header("x-gateway-loss")


@pytest.mark.parametrize(
    "fields",
    [{"user": "vip"}, {"safety_identifier": "vip", "user": "x"}, {"headers": {"x-end-user-id": "vip"}, "user": "x"}],
)
def test_end_users_have_counters_of_their_own(caller: Caller, fields: dict[str, Any]) -> None:
    project = str(caller.key.project_id)
    limit(caller, scope="end_user", scope_id=project, amount=Decimal(1))
    limit(caller, scope="end_user", scope_id=project, amount=Decimal(2), end_user="vip")
    for user in ("a", "b"):
        assert [caller.chat(user=user).status_code for _ in range(2)] == [200, 429]
    assert [caller.chat(**fields).status_code for _ in range(3)] == [200, 200, 429]
    # Requests without an end user are not limited.
    assert [caller.chat().status_code for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("name", ["user_1_account__session_{}", '{{"device_id": "d", "session_id": "{}"}}'])
def test_one_person_has_one_counter_in_all_sessions_of_claude_code(caller: Caller, name: str) -> None:
    limit(caller, scope="end_user", scope_id=str(caller.key.project_id), amount=Decimal(1))
    assert [caller.chat(user=name.format(session)).status_code for session in ("a1b2", "c3d4")] == [200, 429]
    assert caller.chat(user=name.format("e5").replace("user_1", "user_2").replace('"d"', '"other"')).status_code == 200


def test_anthropics_user_id_names_the_end_user(caller: Caller) -> None:
    limit(caller, scope="end_user", scope_id=str(caller.key.project_id), amount=Decimal(1))
    body = {
        "model": "sandbox/echo",
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "hi"}],
        "metadata": {"user_id": "u1"},
    }
    statuses = [
        caller.client.post(
            "/v1/messages", json.dumps(body), content_type="application/json", headers={"x-api-key": caller.token}
        ).status_code
        for _ in range(2)
    ]
    assert statuses == [200, 429]


def test_a_changed_limit_holds_for_the_next_request(
    caller: Caller, django_capture_on_commit_callbacks: Callable[..., Any]
) -> None:
    assert caller.chat().status_code == 200
    commits = partial(django_capture_on_commit_callbacks, execute=True)
    with commits():
        one = limit(caller, amount=Decimal(1))
    assert [caller.chat().status_code for _ in range(2)] == [200, 429]
    soon = timezone.now() + timedelta(hours=1)
    raise_ = {"raised_amount": Decimal(2), "raised_until": soon, "raise_reason": "launch"}
    with commits():
        actions.change_limit(limit=one, changes=raise_)
    assert [caller.chat().status_code for _ in range(2)] == [200, 429]
    Limit.objects.filter(pk=one.pk).update(raised_until=timezone.now() - timedelta(seconds=1))
    one.refresh_from_db()
    with commits():
        one.bump_generation()
    assert caller.chat().status_code == 429
    with commits():
        actions.delete_limit(limit=one)
    assert caller.chat().status_code == 200


def test_the_state_of_a_limit_says_what_is_used_held_and_left(caller: Caller) -> None:
    one = limit(caller, counts="tokens", amount=Decimal(5_000))
    caller.chat("hi [[sandbox usage=1000,200,0]]")
    # Recorded and not settled yet: it is held.
    state = states_of([one])[one]
    assert state is not None
    assert (state.amount, state.used, state.held, state.left) == ("5000", "0", "1200", "3800")
    settle_all()
    state = states_of([one])[one]
    assert state is not None
    assert (state.used, state.held, state.left, state.share, state.held_share) == ("1200", "0", "3800", 24, 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("o4-mini-2025-04-16", "Not the id of a model but another name: give o4-mini"),
        ("sandbox/echo", "Not the id of a model but another name: give echo, and sandbox in `provider`"),
    ],
)
def test_a_limit_is_not_named_by_another_name_of_a_model(caller: Caller, name: str, message: str) -> None:
    with pytest.raises(InvalidFields) as refused:
        limit(caller, scope="model", model=name)
    assert refused.value.issues == [Issue("model", message)]
    assert not Limit.objects.exists()


def test_a_warm_request_with_ten_limits_and_the_keys_own_makes_no_query_and_two_round_trips(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    for counts in ("requests", "tokens", "usd", "input_tokens", "output_tokens") * 2:
        limit(caller, counts=counts, amount=Decimal(100_000))
    ApiKey.objects.filter(pk=caller.key.pk).update(usage_limit=9, period="day", period_limit=5)
    assert caller.chat().status_code == 200
    trips = round_trips(monkeypatch, kernel_redis.client())
    with CaptureQueriesContext(connection) as queries:
        assert caller.chat().status_code == 200
    assert len(queries) == 0
    assert trips == ["EVALSHA", "EVALSHA"]
    assert outbox.depth()[0] == 2
