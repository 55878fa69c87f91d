"""The response cache: the same question of the same project is answered once, plain or streamed, and costs once."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import uuid4

import gevent
import pytest

from apps.gateway import response_cache
from apps.gateway.access import policy
from apps.gateway.canonical.chat import Chat, Message, Text
from apps.gateway.canonical.events import Event, Finished, TextDelta, Waiting
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.response_cache import CacheEntry, find_cache_entry
from apps.kernel.ids import new_id
from apps.kernel.valkey.cache_store import CacheShare
from apps.kernel.valkey.redis import cache_client
from apps.logs.models import RequestLog
from apps.organizations.models import Organization, Project
from tests.support.hanging_names import wait_until
from tests.support.upstream import Caller, chunks_of, settle_all


@pytest.fixture
def caching(caller: Caller) -> Caller:
    """A caller whose project keeps answers for a minute."""
    Project.objects.filter(pk=caller.key.project_id).update(caching_enabled=True, cache_duration_seconds=60)
    policy.forget_all()
    return caller


def ask(caller: Caller, tag: str, **fields: Any) -> Any:
    return caller.chat(f"hi [[sandbox tag={tag} usage=1000,200]]", **fields)


def test_the_second_time_nobody_is_asked_and_nothing_is_paid(caching: Caller) -> None:
    tag = uuid4().hex
    first, second = ask(caching, tag), ask(caching, tag)
    assert (first["x-gateway-cache"], second["x-gateway-cache"]) == ("miss", "hit")
    assert second.json()["choices"] == first.json()["choices"]
    assert second.json()["usage"]["prompt_tokens"] == 1000
    assert (first.json()["usage"]["cost_usd_total"], second.json()["usage"]["cost_usd_total"]) == (0.00027, 0)
    assert second.json()["metadata"]["cached"] is True
    assert len(caching.sent(tag)) == 1
    assert settle_all() == 2
    rows = RequestLog.objects.order_by("created_at")
    assert [(row.cached, row.cost) for row in rows] == [(False, Decimal("0.00027")), (True, Decimal(0))]
    assert Organization.objects.get(pk=caching.organization_id).credits == Decimal("99.99973")


def test_an_answer_of_a_fallback_model_is_not_kept_as_the_first_ones(caching: Caller) -> None:
    question = f"hi [[sandbox tag={uuid4().hex} status=503 times=1]]"
    answers = [caching.chat(question, model="echo", models=["echo-fast"]) for _ in range(3)]
    told = [(answer["x-gateway-cache"], answer.json()["metadata"]["used_model"]) for answer in answers]
    assert told == [("miss", "echo-fast"), ("miss", "echo"), ("hit", "echo")]


@pytest.mark.parametrize("first", [True, False])
def test_a_plain_answer_serves_a_stream_and_the_other_way_round(caching: Caller, first: bool) -> None:
    tag = uuid4().hex
    answers = []
    for stream in (first, not first):
        response = ask(caching, tag, stream=stream)
        if stream:
            chunks = chunks_of(response)
            assert chunks[-1] == "[DONE]"
            deltas = [chunk["choices"][0]["delta"].get("content") for chunk in chunks[:-1] if chunk["choices"]]
            answers.append("".join(delta or "" for delta in deltas))
        else:
            answers.append(response.json()["choices"][0]["message"]["content"])
        last = response["x-gateway-cache"]
    assert answers == ["You said: hi", "You said: hi"]
    assert (last, len(caching.sent(tag))) == ("hit", 1)


def test_any_difference_is_another_question(caching: Caller) -> None:
    tag = uuid4().hex
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    for fields in ({}, {"temperature": 0.5}, {"max_tokens": 50}, {"tools": [tool]}, {"seed": 1}):
        assert ask(caching, tag, **fields)["x-gateway-cache"] == "miss"
    assert ask(caching, tag, user="another", metadata={"a": "b"})["x-gateway-cache"] == "hit"


def test_another_project_never_gets_the_answer(caching: Caller) -> None:
    tag = uuid4().hex
    ask(caching, tag)
    other = Project.objects.create(
        organization_id=caching.organization_id, name="Other", caching_enabled=True, cache_duration_seconds=60
    )
    caching.key.project = other
    caching.key.save()
    policy.forget_all()
    assert ask(caching, tag)["x-gateway-cache"] == "miss"
    assert len(caching.sent(tag)) == 2


def test_a_project_that_keeps_none_is_told_nothing_of_it(caller: Caller) -> None:
    tag = uuid4().hex
    assert [ask(caller, tag).has_header("x-gateway-cache") for _ in range(2)] == [False, False]
    assert len(caller.sent(tag)) == 2
    assert cache_client().keys("*:answer:*") == []


@pytest.mark.parametrize("directive", ["status=500", "finish=length", "finish=content_filter"])
def test_errors_and_answers_cut_short_are_not_kept(caching: Caller, directive: str) -> None:
    tag = uuid4().hex
    for _ in range(2):
        caching.chat(f"hi [[sandbox tag={tag} {directive}]]")
    assert len(caching.sent(tag)) == 2
    assert cache_client().keys("*:answer:*") == []


def test_an_answer_is_kept_as_long_as_the_project_says(caching: Caller) -> None:
    ask(caching, uuid4().hex)
    (key,) = cache_client().keys("*:answer:*")
    assert 58 <= cache_client().ttl(key) <= 60


# --- the same question at the same time


def place() -> CacheEntry:
    chat = Chat(model="m", messages=[Message(role="user", parts=[Text(text="?")])])
    found = find_cache_entry(PROJECT, SHARE, 60, "m", None, chat, ClientDisconnect(None))
    assert found is not None
    return found


PROJECT = new_id()
SHARE = CacheShare(new_id(), 10 * 1024 * 1024)
ANSWER: list[Event] = [TextDelta(text="one"), Finished(reason="stop", native="stop")]


@pytest.fixture(autouse=True)
def _nobody_underway() -> Iterator[None]:
    yield
    assert response_cache._inflight == {}


def test_the_same_words_in_another_kind_of_request_are_another_question() -> None:
    chat = Chat(model="m", messages=[Message(role="user", parts=[Text(text="a fox")])])
    images = Chat(model="m", messages=chat.messages, task="images")
    places = [
        find_cache_entry(PROJECT, SHARE, 60, "m", None, asked, ClientDisconnect(None)) for asked in (chat, images, chat)
    ]
    keys = [place.key for place in places if place is not None]
    assert (keys[0] == keys[2], keys[0] == keys[1], len(keys)) == (True, False, 3)


def test_whoever_asks_the_same_meanwhile_waits_for_the_first(settings: Any) -> None:
    settings.HEARTBEAT_INTERVAL = 0.01
    first, second = place(), place()
    assert list(first.replay()) == []
    heard: list[Event] = []
    waiting = gevent.spawn(lambda: heard.extend(second.replay()))
    wait_until(lambda: heard)
    assert all(isinstance(event, Waiting) for event in heard)
    for event in ANSWER:
        assert first.take(event) is event
    first.store(first.model_id, 0)
    first.close()
    waiting.get(timeout=5)
    assert second.hit
    assert [event for event in heard if not isinstance(event, Waiting)] == ANSWER
    second.close()


def test_if_the_first_fails_the_second_goes_itself() -> None:
    first, second = place(), place()
    assert list(first.replay()) == []
    waiting = gevent.spawn(lambda: list(second.replay()))
    gevent.sleep(0)
    first.close()
    assert waiting.get(timeout=5) == []
    assert not second.hit
    second.close()
