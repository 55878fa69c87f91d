"""Why a provider's filter ended an answer: its words reach the clients of every format, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Message, Text
from apps.gateway.canonical.events import Event, fold
from apps.gateway.dialects.chat import anthropic, google, openai, responses
from tests.gateway.dialects.test_laws import SUMMARY

WORDS = "This could enable cyber harm."
DETAILS = {"type": "refusal", "category": "cyber", "explanation": WORDS}
QUESTION = Chat(model="m", messages=[Message(role="user", parts=[Text(text="?")])])
HEAD = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_sequence": None}
COUNTS = {"input_tokens": 3, "output_tokens": 1}


def from_anthropic(details: Any = DETAILS, *, streamed: bool, stop: str = "refusal") -> list[Event]:
    """Return the events of Anthropic's answer."""
    if not streamed:
        body = {**HEAD, "content": [], "stop_reason": stop, "stop_details": details, "usage": COUNTS}
        return list(anthropic.read_reply(json.dumps(body).encode()))
    frames: list[Any] = [
        {"type": "message_start", "message": {**HEAD, "content": [], "stop_reason": None, "usage": COUNTS}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None, "stop_details": details},
            "usage": COUNTS,
        },
        {"type": "message_stop"},
    ]
    return list(anthropic.read_events(json.dumps(frame).encode() for frame in frames))


def from_google(chunk: Any, *, streamed: bool) -> list[Event]:
    """Return the events of Gemini's answer."""
    body = json.dumps({"responseId": "r", "modelVersion": "gemini", **chunk}).encode()
    return list(google.read_events([body]) if streamed else google.read_reply(body))


def plain(dialect: ModuleType, events: list[Event]) -> Any:
    """Return the whole answer that a client gets."""
    return json.loads(dialect.write_reply(fold(events), SUMMARY, QUESTION))


def stream(dialect: ModuleType, events: list[Event]) -> list[Any]:
    """Return the events that a client of a stream gets."""
    return list(_data(b"".join(dialect.write_events([*events, SUMMARY], QUESTION))))


def _data(body: bytes) -> Iterator[Any]:
    for line in body.splitlines():
        if line.startswith(b"data: {"):
            yield json.loads(line.removeprefix(b"data: "))


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_chats_have_the_words_as_refusal(streamed: bool) -> None:
    events = from_anthropic(streamed=streamed)
    (choice,) = plain(openai, events)["choices"]
    assert choice == {
        "index": 0,
        "message": {"role": "assistant", "content": None, "refusal": WORDS},
        "finish_reason": "content_filter",
    }
    told = [chunk["choices"][0] for chunk in stream(openai, events)]
    assert [(one["delta"].get("refusal"), one["finish_reason"]) for one in told] == [(WORDS, "content_filter")]


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_responses_have_the_words_as_a_part_that_refuses(streamed: bool) -> None:
    events = from_anthropic(streamed=streamed)
    told = stream(responses, events)
    for response in (plain(responses, events), told[-1]["response"]):
        (item,) = response["output"]
        assert item["content"] == [{"type": "refusal", "refusal": WORDS}]
        assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
    assert [one["refusal"] for one in told if one["type"] == "response.refusal.done"] == [WORDS]


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_geminis_clients_have_the_words_beside_the_reason(streamed: bool) -> None:
    events = from_anthropic(streamed=streamed)
    for answer in (plain(google, events), stream(google, events)[-1]):
        (candidate,) = answer["candidates"]
        assert (candidate["finishReason"], candidate["finishMessage"]) == ("SAFETY", WORDS)
        assert candidate["content"]["parts"] == [{"text": ""}]


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_anthropics_clients_have_anthropics_details_as_they_are_and_no_words_as_text(streamed: bool) -> None:
    events = from_anthropic(streamed=streamed)
    whole = plain(anthropic, events)
    assert (whole["stop_reason"], whole["stop_details"], whole["content"]) == ("refusal", DETAILS, [])
    told = stream(anthropic, events)
    assert [one["type"] for one in told] == ["message_start", "message_delta", "message_stop"]
    assert told[0]["message"].get("stop_details") or told[1]["delta"]["stop_details"] == DETAILS


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize(
    ("chunk", "native"),
    [
        ({"candidates": [{"finishReason": "PROHIBITED_CONTENT", "finishMessage": WORDS}]}, "PROHIBITED_CONTENT"),
        ({"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": WORDS}}, "SAFETY"),
    ],
    ids=["candidate", "prompt"],
)
def test_geminis_words_reach_the_clients_of_other_formats(chunk: Any, native: str, streamed: bool) -> None:
    events = from_google(chunk, streamed=streamed)
    details = {"type": "refusal", "category": None, "explanation": WORDS}
    whole = plain(anthropic, events)
    assert (whole["stop_reason"], whole["stop_details"]) == ("refusal", details)
    assert stream(anthropic, events)[-2]["delta"]["stop_details"] == details
    assert plain(openai, events)["choices"][0]["message"]["refusal"] == WORDS
    assert plain(responses, events)["output"][0]["content"] == [{"type": "refusal", "refusal": WORDS}]
    own = plain(google, events)
    if "candidates" in chunk:
        assert own["candidates"][0]["finishReason"] == native
        assert own["candidates"][0]["finishMessage"] == WORDS
    else:
        assert own["promptFeedback"] == chunk["promptFeedback"]


def test_without_words_the_category_is_named() -> None:
    events = from_anthropic({"type": "refusal", "category": "bio", "explanation": None}, streamed=False)
    message = plain(openai, events)["choices"][0]["message"]
    assert message["refusal"] == "The model's provider refused to answer: bio"


@pytest.mark.parametrize("details", [None, "x", {}, {"explanation": 3, "category": 7}, {"explanation": " "}])
def test_details_that_say_nothing_add_nothing(details: Any) -> None:
    message = plain(openai, from_anthropic(details, streamed=False))["choices"][0]["message"]
    assert message == {"role": "assistant", "content": ""}


def test_an_answer_that_came_to_its_end_was_not_refused() -> None:
    message = plain(openai, from_anthropic(streamed=False, stop="end_turn"))["choices"][0]["message"]
    assert "refusal" not in message
