"""Requests a minute and at a time, on every route that reaches a model (section 8)."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from threading import Timer
from typing import Any
from uuid import uuid4

import pytest

from apps.billing.reservations import flight_key
from apps.gateway.access import policy
from apps.gateway.admission import admit
from apps.kernel.valkey.redis import client as valkey
from apps.organizations.models import Organization
from apps.organizations.plans import PLANS
from gateway_project.wsgi import application
from tests.support.model_routes import PATHS, ROUTES, Answer, body_of, error_of, post
from tests.support.upstream import Caller, nothing_happened, settle_all

FAMILIES = {"chat": "chat", "messages": "messages", "generations": "images", "edits": "images"}


def on_plan(caller: Caller, plan: str) -> None:
    """Move the organization to a plan."""
    Organization.objects.filter(pk=caller.organization_id).update(plan=plan)
    policy.forget_all()


def bucket_of(caller: Caller, route: str) -> str:
    """Return the key of what requests of the organization count against."""
    return f"rate:organization:{caller.organization_id}:{FAMILIES[route]}"


def rate_of(answer: Answer) -> tuple[str, str, str]:
    """Return how the rate stands, as an answer tells it."""
    return tuple(answer.headers[f"ratelimit-{name}"] for name in ("limit", "remaining", "reset"))


def assert_too_fast(answer: Answer, route: str, per_minute: int, wait: float, since: float) -> None:
    """Assert the whole refusal: `wait` seconds after the time `since`, another request was to be let in."""
    message = answer.json()["message"]
    found = re.fullmatch(rf"More than {per_minute} requests a minute; try again in (\d+\.\d) s", message)
    assert found is not None, message
    expected = error_of(route, 429, "rate_limit_error", "rate_limit_exceeded", message)
    assert (answer.status, answer.json()) == (429, expected)
    shortest = wait - (time.time() - since)
    assert shortest - 0.1 <= float(found[1]) <= wait + 0.1
    assert max(math.floor(shortest), 1) <= int(answer.headers["retry-after"]) <= math.ceil(wait) + 1
    assert rate_of(answer)[:2] == (str(per_minute), "0")


def fill(caller: Caller, route: str, seconds: float) -> float:
    """Set a bucket as if it emptied so many seconds from now; return the time that this is counted from."""
    now = time.time()
    valkey().set(bucket_of(caller, route), now + seconds)
    return now


@pytest.mark.parametrize(("plan", "per_minute"), [("free", 60), ("pro", 600), ("enterprise", 6_000)])
def test_a_plans_rate(caller: Caller, plan: str, per_minute: int) -> None:
    on_plan(caller, plan)
    for route in ROUTES:
        valkey().delete(bucket_of(caller, route))
        answer = post(caller, route)
        assert (answer.status, rate_of(answer)) == (200, (str(per_minute), str(per_minute - 1), "1"))
        # All but one of the requests of a minute; places that came free while the request was on its way are left.
        since = fill(caller, route, 60 - 60 / per_minute)
        stated, left, _ = rate_of(post(caller, route))
        assert stated == str(per_minute)
        assert 0 <= int(left) <= (time.time() - since) * per_minute / 60
        settle_all()
        # All of them, as seen by a clock that is half a minute ahead: none is let in before the test has ended.
        since = fill(caller, route, 90)
        answer = post(caller, route)
        assert_too_fast(answer, route, per_minute, 60 / per_minute, since)
        assert nothing_happened(caller)


def test_an_operator_may_state_other_rates_by_plan(caller: Caller, settings: Any) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "pro": 3, "free": 0}
    on_plan(caller, "pro")
    since = time.time()
    answers = [post(caller, "chat") for _ in range(4)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429]
    assert [answer.headers["ratelimit-remaining"] for answer in answers] == ["2", "1", "0", "0"]
    assert [answer.headers["ratelimit-limit"] for answer in answers] == ["3"] * 4
    assert_too_fast(answers[3], "chat", 3, 20, since)
    on_plan(caller, "enterprise")
    assert rate_of(post(caller, "messages"))[0] == "6000"
    on_plan(caller, "free")
    unlimited = post(caller, "messages")
    assert (unlimited.status, [name for name in unlimited.headers if name.startswith("ratelimit")]) == (200, [])


def test_an_organization_and_a_key_may_have_rates_of_their_own(caller: Caller, settings: Any) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "enterprise": 1}
    Organization.objects.filter(pk=caller.organization_id).update(requests_per_minute=3)
    policy.forget_all()
    assert rate_of(post(caller, "chat"))[:2] == ("3", "2")
    type(caller.key).objects.filter(pk=caller.key.pk).update(requests_per_minute=1)
    policy.forget_all()
    since = time.time()
    assert rate_of(post(caller, "chat"))[:2] == ("1", "0")
    assert_too_fast(post(caller, "chat"), "chat", 1, 60, since)
    # The key's refusal has used up nothing of the organization's.
    type(caller.key).objects.filter(pk=caller.key.pk).update(requests_per_minute=None)
    policy.forget_all()
    assert rate_of(post(caller, "chat"))[:2] == ("3", "0")
    Organization.objects.filter(pk=caller.organization_id).update(requests_per_minute=0)
    policy.forget_all()
    assert "ratelimit-limit" not in post(caller, "chat").headers


def test_each_family_of_routes_is_counted_apart_and_all_keys_of_an_organization_together(
    caller: Caller, settings: Any
) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "enterprise": 1}
    assert [post(caller, route).status for route in ROUTES] == [200, 200, 200, 429]
    assert [post(caller, route).status for route in ROUTES] == [429] * 4


def test_a_request_after_the_stated_wait_is_let_in(caller: Caller, settings: Any) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "enterprise": 3}
    for route in ROUTES:
        # 19.9 s from now there is room again.
        since = fill(caller, route, 59.9)
        answer = post(caller, route)
        wait = int(answer.headers["retry-after"])
        assert answer.status == 429
        assert 19.9 - (time.time() - since) <= wait <= 20
        full = float(valkey().get(bucket_of(caller, route)) or 0)
        valkey().set(bucket_of(caller, route), full - wait)
        assert post(caller, route).status == 200


def test_a_refusal_uses_nothing_up(caller: Caller, settings: Any) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "enterprise": 1}
    tag = uuid4().hex
    assert post(caller, "chat").status == 200
    settle_all()
    before = {name: valkey().get(name) for name in valkey().keys("*rate:*")}
    assert len(before) == 1
    for model in ("sandbox/echo", "sandbox/free"):
        assert post(caller, "chat", f"hi [[sandbox tag={tag}]]", model=model).status == 429
    assert {name: valkey().get(name) for name in valkey().keys("*rate:*")} == before
    assert caller.sent(tag) == []
    assert nothing_happened(caller)
    assert Organization.objects.get(pk=caller.organization_id).credits < 100, "the first was charged, the others not"


@pytest.mark.parametrize("script", ["", "status=503", "status=400"])
def test_what_a_provider_refuses_counts_as_well(caller: Caller, settings: Any, script: str) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "enterprise": 1}
    assert post(caller, "chat", f"hi [[sandbox {script}]]").status != 429
    assert post(caller, "chat").status == 429


def test_what_is_refused_before_it_is_let_in_counts_for_nothing(caller: Caller) -> None:
    for fields in ({"model": "nobody"}, {"raw": b"{"}, {"headers": {"authorization": None}}):
        assert post(caller, "chat", **fields).status in {400, 401}
    assert valkey().keys("*rate:*") == []


@pytest.mark.parametrize("route", ["chat", "messages"])
def test_a_streams_head_tells_how_the_rate_stands(caller: Caller, route: str) -> None:
    answer = post(caller, route, stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert (answer.status, rate_of(answer)) == (200, ("6000", "5999", "1"))


# --- free models


def free(caller: Caller, **fields: Any) -> Answer:
    return post(caller, "chat", model="sandbox/free", **fields)


def test_free_models_are_twenty_a_minute(caller: Caller) -> None:
    answer = free(caller)
    assert (answer.status, rate_of(answer)) == (200, ("20", "19", "3"))
    since = time.time()
    valkey().set(f"rate:free:{caller.organization_id}", since + 90)
    settle_all()
    for route in ("chat", "messages"):
        answer = post(caller, route, model="sandbox/free")
        assert_too_fast(answer, route, 20, 3, since)
    assert nothing_happened(caller)
    paid = post(caller, "chat")
    assert (paid.status, rate_of(paid)[0]) == (200, "6000")


def test_the_rate_of_free_models_is_the_operators(caller: Caller, settings: Any) -> None:
    settings.FREE_MODELS_PER_MINUTE = 2
    assert [free(caller).status for _ in range(3)] == [200, 200, 429]
    settings.FREE_MODELS_PER_MINUTE = 0
    assert (free(caller).status, rate_of(free(caller))[0]) == (200, "6000")


def test_auto_that_ends_at_a_free_model_counts_as_one(caller: Caller, settings: Any) -> None:
    settings.FREE_MODELS_PER_MINUTE = 1
    answers = [post(caller, "chat", model="auto", free_models_only=True) for _ in range(2)]
    assert [answer.status for answer in answers] == [200, 429]
    assert answers[0].json()["metadata"]["used_model"] == "free"


# --- at a time


@pytest.mark.parametrize(("plan", "most"), [("free", 20), ("pro", 200), ("enterprise", 2_000)])
def test_a_plans_requests_at_a_time(caller: Caller, plan: str, most: int) -> None:
    on_plan(caller, plan)
    name, now = flight_key(caller.organization_id), time.time()
    valkey().zadd(name, {f"another-{number}": now + 900 for number in range(most)})
    for route in ROUTES:
        answer = post(caller, route)
        message = f"More than {most} requests at once; try again when one of them has been answered"
        expected = error_of(route, 429, "rate_limit_error", "concurrency_exceeded", message)
        assert (answer.status, answer.json(), answer.headers["retry-after"]) == (429, expected, "1")
        assert valkey().keys("*rate:*") == []
        assert valkey().zcard(name) == most
        assert nothing_happened(caller)
    valkey().zrem(name, "another-0")
    for route in ROUTES:
        assert post(caller, route).status == 200
        assert valkey().zcard(name) == most - 1, "an answered request is in flight no more, settled or not"


@pytest.fixture
def one_at_a_time(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The caller may have one request in flight."""
    monkeypatch.setitem(PLANS, "enterprise", replace(PLANS["enterprise"], concurrency=1))
    policy.forget_all()
    yield
    policy.forget_all()


@pytest.mark.usefixtures("one_at_a_time")
def test_what_another_worker_has_just_answered_does_not_count(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    name = flight_key(caller.organization_id)
    valkey().zadd(name, {"another": time.time() + 900})
    monkeypatch.setattr(admit, "_RETRY_PAUSE", 0.5)
    answered = Timer(0.1, valkey().zrem, (name, "another"))
    answered.start()
    assert post(caller, "chat").status == 200
    answered.join()
    assert valkey().zcard(name) == 0


def open_stream(caller: Caller, route: str) -> Any:
    """Ask for a stream and return its pieces unread."""
    body = json.dumps(body_of(route, "one two three [[sandbox chunks=3]]", stream=True)).encode()
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": PATHS[route],
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_AUTHORIZATION": f"Bearer {caller.token}",
        "wsgi.input": BytesIO(body),
    }
    return application(environ, lambda *_: None)


@pytest.mark.parametrize("route", ["chat", "messages"])
@pytest.mark.parametrize("ending", ["read", "left"])
def test_a_stream_is_in_flight_until_it_is_read_or_left(
    caller: Caller, one_at_a_time: None, route: str, ending: str
) -> None:
    stream = open_stream(caller, route)
    assert post(caller, route).json()["message"].startswith("More than 1 requests at once")
    if ending == "read":
        assert b"".join(stream)
    stream.close()
    assert post(caller, route).status == 200
    assert valkey().zcard(flight_key(caller.organization_id)) == 0


@pytest.mark.parametrize("script", ["status=400", "status=503", "cut=head"])
def test_a_request_that_fails_is_in_flight_no_more(caller: Caller, one_at_a_time: None, script: str) -> None:
    for route in ROUTES:
        assert post(caller, route, f"hi [[sandbox {script}]]").status in {400, 502, 503}
    assert valkey().zcard(flight_key(caller.organization_id)) == 0
