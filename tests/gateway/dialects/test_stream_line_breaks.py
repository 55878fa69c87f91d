"""Every event of a stream stays on its lines: no text of a provider's breaks one, whatever white space is in it."""

from __future__ import annotations

import json
from pkgutil import iter_modules
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.gateway.canonical.events import Event, Finished, Started, TextDelta, ToolCallDelta, ToolCallStarted
from apps.gateway.dialects import chat, find_client_dialect
from apps.gateway.dialects.chat import google, openai
from apps.gateway.dialects.chat.bedrock.wire import STREAM_TYPE
from apps.gateway.framing import escape_separators, sse_frames
from tests.gateway.dialects.test_laws import SUMMARY
from tests.support.aws_event_frames import lines_of

CLIENTS = {
    name: client for _, name, _ in iter_modules(chat.__path__) if (client := find_client_dialect(name)) is not None
}
# Formats without tool calls.
WITHOUT_CALLS = {"completions"}
CHAT = openai.read_request(b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"stream":true}')
SEPARATORS = "\r\n\t \x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
SPACES = st.text(" \t\r\n", max_size=4)
WORDS = st.text('ab"\\/' + SEPARATORS, max_size=6)


@st.composite
def spaced_objects(draw: st.DrawFn) -> str:
    """Draw a JSON object with white space between its tokens, and separators of lines in its texts."""
    members = []
    for name in draw(st.lists(WORDS, max_size=3, unique=True)):
        value = draw(st.one_of(WORDS, st.integers(), st.just([]), st.just({"a": None})))
        said = json.dumps(value, ensure_ascii=draw(st.booleans()))
        if value == {"a": None}:
            said = said.replace(":", f"{draw(SPACES)}:{draw(SPACES)}")
        members.append(f"{draw(SPACES)}{json.dumps(name, ensure_ascii=False)}{draw(SPACES)}:{draw(SPACES)}{said}")
    return f"{draw(SPACES)}{{{(draw(SPACES) + ',').join(members)}{draw(SPACES)}}}{draw(SPACES)}"


@st.composite
def pieces_of(draw: st.DrawFn, texts: st.SearchStrategy[str]) -> list[str]:
    text = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def streamed(client: str, events: list[Event]) -> list[Any]:
    """Return the events that a reader gets who goes by Unicode's lines, and one who goes by those of SSE."""
    stream_type = CLIENTS[client].stream_type
    pieces = CLIENTS[client].write_events([*events, SUMMARY], CHAT)
    if stream_type == STREAM_TYPE:
        # Frames say how long they are.
        return [json.loads(line.partition(" ")[2]) for line in lines_of(b"".join(pieces))]
    written = b"".join(map(escape_separators, pieces))
    if stream_type == "application/x-ndjson":
        # Each line is an event, and none is empty.
        return [json.loads(line) for line in written.decode().splitlines()]
    lines = [line.removeprefix("data: ") for line in written.decode().splitlines() if line.startswith("data: ")]
    assert lines == [frame.decode() for frame in sse_frames([written])]
    assert all(line == "" or line.startswith(("data: ", "event: ", ": ")) for line in written.decode().splitlines())
    return [json.loads(line) for line in lines if line != "[DONE]"]


def arguments_in(client: str, told: list[Any]) -> Any:
    if client == "openai":
        deltas = [call for one in told for choice in one["choices"] for call in choice["delta"].get("tool_calls", ())]
        return json.loads("".join(call["function"]["arguments"] for call in deltas))
    if client == "cohere":
        deltas = [one["delta"]["message"]["tool_calls"] for one in told if one["type"] == "tool-call-delta"]
        return json.loads("".join(call["function"]["arguments"] for call in deltas))
    if client == "bedrock":
        deltas = [one["delta"]["toolUse"] for one in told if "delta" in one]
        return json.loads("".join(delta["input"] for delta in deltas))
    if client == "anthropic":
        return json.loads("".join(one["delta"].get("partial_json", "") for one in told if "delta" in one) or "{}")
    if client == "responses":
        return json.loads(next(one["arguments"] for one in told if one["type"].endswith("arguments.done")))
    if client.startswith("ollama"):
        [call] = [call for one in told for call in one.get("message", one).get("tool_calls", ())]
        return call["function"]["arguments"]
    parts = [part for one in told for candidate in one["candidates"] for part in candidate["content"]["parts"]]
    return next(part["functionCall"]["args"] for part in parts if "functionCall" in part)


@pytest.mark.parametrize("client", sorted(CLIENTS.keys() - WITHOUT_CALLS))
@given(pieces=pieces_of(spaced_objects()))
def test_arguments_arrive_whatever_white_space_is_in_them(client: str, pieces: list[str]) -> None:
    events: list[Event] = [Started(id="r", model="m"), ToolCallStarted(index=0, id="call_1", name="look")]
    events += [ToolCallDelta(index=0, arguments=piece) for piece in pieces]
    told = streamed(client, [*events, Finished(reason="tool_calls")])
    assert arguments_in(client, told) == json.loads("".join(pieces))


@pytest.mark.parametrize("client", CLIENTS)
@given(pieces=pieces_of(WORDS))
def test_text_arrives_whatever_separators_are_in_it(client: str, pieces: list[str]) -> None:
    events: list[Event] = [Started(id="r", model="m"), *(TextDelta(text=piece) for piece in pieces)]
    told = streamed(client, [*events, Finished(reason="stop")])
    whole = json.dumps(told, ensure_ascii=False)
    assert all(json.dumps(piece, ensure_ascii=False)[1:-1] in whole for piece in pieces)


def test_numbers_keep_all_of_their_digits() -> None:
    events: list[Event] = [Started(id="r", model="m"), ToolCallStarted(index=0, id="call_1", name="look")]
    events += [ToolCallDelta(index=0, arguments='{\r\n "a" : 1.00000000000000000001,\n"b": 2E5}')]
    written = b"".join(google.write_events([*events, Finished(reason="tool_calls"), SUMMARY], CHAT))
    assert b'"args":{"a":1.00000000000000000001,"b":2E5}' in written


def test_only_separators_are_escaped() -> None:
    assert escape_separators("a\u2028b\u2029c\x85d’ é\u2027".encode()) == (
        b"a\\u2028b\\u2029c\\u0085d" + "’ é\u2027".encode()
    )
