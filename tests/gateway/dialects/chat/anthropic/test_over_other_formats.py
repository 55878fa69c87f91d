"""Anthropic's clients over other formats' own capabilities: searches, citations, stop reasons, no thinking."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from apps.catalog.models import ModelProvider
from apps.gateway.canonical.chat import Chat, Target, Text
from apps.gateway.canonical.events import Annotated, Event, Finished, OpaqueDelta, TextDelta, UsageReported, fold
from apps.gateway.dialects import find_dialect
from apps.gateway.dialects.chat import anthropic, google, openai, responses
from apps.kernel.usage import Usage
from apps.kernel.valkey import generation
from tests.gateway.dialects.test_laws import QUESTION, SUMMARY, read_stream
from tests.support.anthropic_requests import ask
from tests.support.anthropic_stream import assert_in_order, message_of
from tests.support.aws_event_frames import stream_of
from tests.support.upstream import Caller

WIRE = Path(__file__).parents[2] / "wire"
# A search of each format that has one of its own and tells what it found.
SEARCHES = ["google/search", "responses/search-and-schema", "openai/pages-beside-the-answer"]
_EVENTS: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)


def streamed(events: list[Event], chat: Chat = QUESTION) -> dict[str, Any]:
    """Return the message that Anthropic's clients put together, every event being one that its SDK knows."""
    text = b"".join(anthropic.write_events([*events, SUMMARY], chat)).decode()
    found = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]
    for event in found:
        _EVENTS.validate_python(event)
    assert_in_order(found)
    return message_of(found)


def events_of(case: str) -> list[Event]:
    """Return what an answer of the cases means."""
    folder = WIRE / case
    dialect = find_dialect(folder.parent.name)
    if stream := stream_of(folder):
        return list(read_stream(dialect, stream))
    assert dialect is not None
    return list(dialect.read_reply((folder / "reply.json").read_bytes()))


@pytest.mark.parametrize("case", SEARCHES)
def test_pages_that_another_format_cites_are_citations_of_the_text(case: str) -> None:
    events = events_of(case)
    pages = [event.annotation["url_citation"] for event in events if isinstance(event, Annotated)]
    assert pages
    whole = json.loads(anthropic.write_reply(fold(events), SUMMARY, QUESTION))
    Message.model_validate(whole)
    said = "".join(event.text for event in events if isinstance(event, TextDelta))
    expected = [(page["url"], page["title"], said[page["start_index"] : page["end_index"]]) for page in pages]
    for message in (whole, streamed(events)):
        [text] = [block for block in message["content"] if block["type"] == "text"]
        assert text["text"] == said
        assert [(it["url"], it["title"], it["cited_text"]) for it in text["citations"]] == expected


def test_searches_are_counted_in_anthropics_words() -> None:
    events: list[Event] = [TextDelta(text="Sun"), UsageReported(usage=Usage(input=5, output=2, web_searches=2))]
    summary = SUMMARY.__class__(usage=Usage(input=5, output=2, web_searches=2), cost={}, metadata={})
    usage = json.loads(anthropic.write_reply(fold(events), summary, QUESTION))["usage"]
    assert usage["server_tool_use"] == {"web_search_requests": 2, "web_fetch_requests": 0}
    Message.model_validate(json.loads(anthropic.write_reply(fold(events), summary, QUESTION)))


@pytest.mark.parametrize("dialect", ["anthropic", "openai", "google"])
def test_citations_that_came_of_another_format_go_to_nobody(dialect: str) -> None:
    message = json.loads(anthropic.write_reply(fold(events_of("google/search")), SUMMARY, QUESTION))
    turns = [
        {"role": "user", "content": "News?"},
        {"role": "assistant", "content": message["content"]},
        {"role": "user", "content": "More?"},
    ]
    body = json.dumps({"model": "m", "max_tokens": 10, "messages": turns}).encode()
    chat = anthropic.read_request(body)
    assert chat.source is None
    assert chat.messages[1].parts == [Text(text="Žofie, went.")]
    target = Target(model_name="m", facts={})
    written = find_dialect(dialect)
    assert written is not None
    assert b"citations" not in written.write_request(chat, target)
    assert target.dropped_fields == []


def test_citations_of_anthropics_own_go_back_as_they_came() -> None:
    citation = {
        "type": "web_search_result_location",
        "url": "u",
        "title": "t",
        "cited_text": "c",
        "encrypted_index": "E",
    }
    block = {"type": "text", "text": "Sun", "citations": [citation]}
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": [block]}]
    chat = anthropic.read_request(json.dumps({"model": "m", "max_tokens": 10, "messages": turns}).encode())
    assert chat.source is not None
    assert chat.messages[1].parts == [Text(text="Sun", extra={"citations": [citation]})]


@pytest.mark.parametrize(
    ("native", "reason", "anthropics", "openais"),
    [
        ("end_turn", "stop", "end_turn", "stop"),
        ("stop_sequence", "stop", "stop_sequence", "stop"),
        ("pause_turn", "stop", "pause_turn", "stop"),
        ("tool_use", "tool_calls", "tool_use", "tool_calls"),
        ("max_tokens", "length", "max_tokens", "length"),
        ("model_context_window_exceeded", "length", "model_context_window_exceeded", "length"),
        ("refusal", "content_filter", "refusal", "content_filter"),
        ("STOP", "stop", "end_turn", "stop"),
        ("MAX_TOKENS", "length", "max_tokens", "length"),
        ("SAFETY", "content_filter", "refusal", "content_filter"),
        (None, "tool_calls", "tool_use", "tool_calls"),
    ],
)
def test_every_reason_to_stop_has_a_word_in_both_formats(
    native: str | None, reason: Any, anthropics: str, openais: str
) -> None:
    events: list[Event] = [TextDelta(text="Sun"), Finished(reason=reason, native=native)]
    whole = json.loads(anthropic.write_reply(fold(events), SUMMARY, QUESTION))
    Message.model_validate(whole)
    assert (whole["stop_reason"], streamed(events)["stop_reason"]) == (anthropics, anthropics)
    told = json.loads(openai.write_reply(fold(events), SUMMARY, QUESTION))
    assert told["choices"][0]["finish_reason"] == openais


@pytest.mark.parametrize(
    "reason",
    [
        "end_turn",
        "stop_sequence",
        "pause_turn",
        "tool_use",
        "max_tokens",
        "refusal",
        "model_context_window_exceeded",
    ],
)
def test_anthropics_own_reasons_pass_through_with_their_sequence(reason: str) -> None:
    stopped_by = "END" if reason == "stop_sequence" else None
    body = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "fox",
        "content": [{"type": "text", "text": "Sun"}],
        "stop_reason": reason,
        "stop_sequence": stopped_by,
        "usage": {"input_tokens": 3, "output_tokens": 2},
    }
    events = list(anthropic.read_reply(json.dumps(body).encode()))
    whole = json.loads(anthropic.write_reply(fold(events), SUMMARY, QUESTION))
    again = streamed(events)
    for message in (whole, again):
        assert (message["stop_reason"], message["stop_sequence"]) == (reason, stopped_by)
    finished = [event for event in events if isinstance(event, Finished)]
    assert [event.native for event in finished] == [reason]
    assert all(event.of != "stream" for event in events if isinstance(event, OpaqueDelta))


OFF = {"thinking": {"type": "disabled"}}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("reasoning", "efforts", "sent", "lost"),
    [
        (False, [], None, []),
        (True, ["none", "low"], "none", []),
        (True, ["low", "high"], None, ["thinking"]),
        (True, [], None, ["thinking"]),
    ],
)
def test_thinking_is_switched_off_where_a_model_can(
    caller: Caller, reasoning: bool, efforts: list[str], sent: str | None, lost: list[str]
) -> None:
    facts = {"reasoning_efforts": efforts} if efforts else {}
    ModelProvider.objects.filter(provider_id="sandbox", model_id="echo").update(reasoning=reasoning, facts=facts)
    generation.bump(generation.CATALOG)
    response = ask(caller, "hi [[sandbox tag=off]]", **OFF)
    assert response.status_code == 200, response.content
    assert caller.sent("off")[-1]["body"].get("reasoning_effort") == sent
    assert response.headers.get("x-gateway-loss", "") == ", ".join(lost)


@pytest.mark.parametrize(
    ("effort", "efforts", "sent", "losses"),
    [
        ("xhigh", ["low", "medium", "high", "xhigh"], "xhigh", []),
        ("max", ["low", "medium", "high", "xhigh"], "xhigh", ["output_config.effort"]),
        ("max", ["low", "medium", "high"], "high", ["output_config.effort"]),
        ("enormous", ["low", "medium", "high"], None, ["output_config.effort"]),
    ],
)
def test_the_greatest_efforts_reach_other_formats(
    effort: str, efforts: list[str], sent: str | None, losses: list[str]
) -> None:
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "?"}]}
    # As Claude Code says it.
    asked = {**body, "output_config": {"effort": effort}, "thinking": {"type": "adaptive", "display": "omitted"}}
    chat = anthropic.read_request(json.dumps(asked).encode())
    facts = {"reasoning_efforts": efforts}
    for written, effort_in in (
        (openai, lambda wire: wire.get("reasoning_effort")),
        (responses, lambda wire: wire.get("reasoning", {}).get("effort")),
        (google, lambda wire: wire["generationConfig"].get("thinkingConfig", {}).get("thinkingLevel")),
    ):
        target = Target(model_name="m", facts=facts)
        wire = json.loads(written.write_request(chat, target))
        assert effort_in(wire) == (sent and sent.upper() if written is google else sent)
        assert [loss.param for loss in target.dropped_fields] == losses


@pytest.mark.parametrize("dialect", ["openai", "responses"])
def test_a_user_identifier_that_is_too_long_for_openai_is_sent_as_its_digest(dialect: str) -> None:
    # As Claude Code sends it.
    user = json.dumps({"device_id": "d" * 64, "account_uuid": "", "session_id": "s" * 36})
    body = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "?"}]}
    written = find_dialect(dialect)
    assert written is not None
    for said, sent, losses in (
        (user, sha256(user.encode()).hexdigest(), ["metadata.user_id"]),
        ("u" * 64, "u" * 64, []),
    ):
        chat = anthropic.read_request(json.dumps({**body, "metadata": {"user_id": said}}).encode())
        target = Target(model_name="m", facts={})
        wire = json.loads(written.write_request(chat, target))
        assert (wire["user"], [loss.param for loss in target.dropped_fields]) == (sent, losses)
