"""Thinking that clients do not bring back: kept under the call's id, put back in front of it, and never in the way."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from redis.exceptions import ConnectionError as RedisGone

from apps.gateway.canonical.chat import Chat, Message, Reasoning, Source, Text, ToolCall, ToolResult
from apps.gateway.canonical.events import ReasoningDelta, ToolCallStarted
from apps.gateway.dialects.adapting.thinking import join_signature
from apps.gateway.upstream.thought_signature_cache import (
    MAX_BYTES,
    TIME_TO_LIVE,
    ThoughtSignatureCache,
    cache_key_of,
)
from apps.kernel.valkey import cache_store
from apps.kernel.valkey import redis as kernel_redis
from apps.kernel.valkey.cache_store import CacheShare
from apps.kernel.valkey.redis import cache_client
from tests.support.round_trips import round_trips

OURS = "anthropic-claude-v1"
PROJECT = UUID(int=7)
SHARE = CacheShare(UUID(int=9), 10 * 1024 * 1024)


def history(*answer: Any, result: str = "c1") -> Chat:
    """Return a chat whose model has called a tool, as a client brings it back."""
    return Chat(
        model="m",
        messages=[
            Message(role="user", parts=[Text(text="?")]),
            Message(role="assistant", parts=list(answer)),
            Message(role="tool", parts=[ToolResult(call_id=result, parts=[Text(text="Sun")])]),
        ],
        source=Source(dialect="openai", body=b"{}"),
    )


CALL = ToolCall(id="c1", name="weather", arguments="{}")
THINKING = [
    ReasoningDelta(text="Hm, ", format=OURS),
    ReasoningDelta(text="rain.", format=OURS),
    ReasoningDelta(signature="s1", format=OURS),
    ReasoningDelta(data="hidden", format=OURS, block=1),
]
BLOCKS = [Reasoning(text="Hm, rain.", signature="s1", format=OURS), Reasoning(data="hidden", format=OURS)]


def answered(*events: Any, form: str | None = OURS, project: UUID = PROJECT) -> None:
    """Let an answer pass by, of a model that will want its thinking back."""
    seals = ThoughtSignatureCache(project, SHARE)
    seals.restore_thinking(history(Text(text="no calls")), form)
    assert list(seals.record_thinking(iter(events))) == list(events)


def called(call_id: str = "c1") -> ToolCallStarted:
    return ToolCallStarted(index=0, id=call_id, name="weather")


def test_thinking_comes_back_in_front_of_the_calls_block_by_block() -> None:
    answered(*THINKING, called(), ToolCallStarted(index=1, id="c2", name="weather"))
    chat = history(Text(text="Looking."), CALL)
    again = ThoughtSignatureCache(PROJECT, SHARE).restore_thinking(chat, OURS)
    assert again.messages[1].parts == [*BLOCKS, Text(text="Looking."), CALL]
    assert again.source is None
    # The client's own chat is as it was: another provider may be asked next.
    assert chat.messages[1].parts == [Text(text="Looking."), CALL]
    assert chat.source is not None


def test_what_is_kept_is_sealed_short_lived_and_does_not_show_whose_it_is() -> None:
    answered(*THINKING, called())
    key = cache_key_of(PROJECT, "c1")
    content = SHARE.read(key)
    assert content is not None
    assert "rain." not in content
    assert '"s1"' not in content
    assert "c1" not in key
    assert 0 < cache_client().ttl(SHARE.key(key)) <= TIME_TO_LIVE


def test_another_project_does_not_get_it() -> None:
    answered(*THINKING, called("shared"))
    chat = history(ToolCall(id="shared", name="weather", arguments="{}"))
    assert ThoughtSignatureCache(UUID(int=8), SHARE).restore_thinking(chat, OURS) is chat


@pytest.mark.parametrize(
    "events",
    [
        THINKING,
        [called("nothing-sealed")],
        [ReasoningDelta(text="in the open", format=OURS), called("nothing-sealed")],
        [ReasoningDelta(text="x", signature="s", format="another-v1"), called("nothing-sealed")],
        [ReasoningDelta(text="x" * (MAX_BYTES + 1), signature="s", format=OURS), called("nothing-sealed")],
        [ReasoningDelta(text="\x01" * (MAX_BYTES // 3), signature="s", format=OURS), called("nothing-sealed")],
    ],
)
def test_nothing_is_kept_without_a_call_or_a_seal_or_beyond_the_size(
    events: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_store, "cache_client", forbidden)
    answered(*events)


def forbidden() -> Any:
    raise AssertionError("the store was asked")


@pytest.mark.parametrize("form", [OURS, None])
@pytest.mark.parametrize(
    "chat",
    [
        history(Text(text="no calls")),
        history(Reasoning(text="a", signature="s", format=OURS), CALL),
        history(Reasoning(data="d", format=OURS), CALL),
        history(ToolCall(id=join_signature("c1", "theirs"), name="weather", arguments="{}")),
        history(
            ToolCall(
                id="c1",
                name="weather",
                arguments="{}",
                extra={"extra_content": {"google": {"thought_signature": "x"}}},
            )
        ),
    ],
)
def test_a_history_that_lacks_nothing_asks_nobody(
    chat: Chat, form: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_store, "cache_client", forbidden)
    assert ThoughtSignatureCache(PROJECT, SHARE).restore_thinking(chat, form) is chat


def test_a_target_that_takes_no_thinking_back_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_store, "cache_client", forbidden)
    chat = history(CALL)
    assert ThoughtSignatureCache(PROJECT, SHARE).restore_thinking(chat, None) is chat
    answered(*THINKING, called(), form=None)


def test_thinking_of_another_maker_in_the_history_does_not_count() -> None:
    answered(*THINKING, called("c9"))
    theirs = Reasoning(text="b", signature="s", format="google-gemini-v1")
    chat = history(theirs, ToolCall(id="c9", name="weather", arguments="{}"))
    assert ThoughtSignatureCache(PROJECT, SHARE).restore_thinking(chat, OURS).messages[1].parts[:2] == BLOCKS


@pytest.mark.single_server
def test_a_request_looks_once_whoever_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    answered(*THINKING, called("once"))
    trips = round_trips(monkeypatch, kernel_redis.cache_client())
    seals = ThoughtSignatureCache(PROJECT, SHARE)
    chat = history(ToolCall(id="once", name="weather", arguments="{}"))
    first, second = seals.restore_thinking(chat, OURS), seals.restore_thinking(chat, OURS)
    assert first == second
    assert trips == ["MGET"]


def test_a_store_that_is_away_or_holds_rubbish_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    chat = history(ToolCall(id="rubbish", name="weather", arguments="{}"))
    SHARE.keep([(cache_key_of(PROJECT, "rubbish"), b"rubbish")], 60)
    assert ThoughtSignatureCache(PROJECT, SHARE).restore_thinking(chat, OURS) is chat

    def gone() -> Any:
        raise RedisGone("away")

    monkeypatch.setattr(cache_store, "cache_client", gone)
    assert ThoughtSignatureCache(PROJECT, SHARE).restore_thinking(chat, OURS) is chat
    answered(*THINKING, called())
