"""The meaning of an OpenAI-alike's answers, and the answers to clients, where no file of `wire` can say it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from apps.gateway.canonical.chat import Chat, Message, ReasoningRequest, Text
from apps.gateway.canonical.events import (
    Choice,
    Failed,
    Finished,
    ReasoningDelta,
    Reply,
    Started,
    Summary,
    TextDelta,
    ToolCallStarted,
    Waiting,
    WholeCall,
    fold,
)
from apps.gateway.dialects import Failure
from apps.gateway.dialects.chat import openai
from apps.kernel.errors import InvalidRequest, Overloaded
from apps.kernel.usage import Usage

SUMMARY = Summary(usage=Usage(input=1, output=1), cost={"total": Decimal("0.10")}, metadata={"used_model": "fox-1"})


def question(**fields: Any) -> Chat:
    return Chat(model="fox-1", messages=[Message(role="user", parts=[Text(text="?")])], **fields)


def chunk(**fields: Any) -> bytes:
    return json.dumps({"id": "x", "created": 1, "model": "m", **fields}).encode()


def delta(finish: str | None = None, **fields: Any) -> bytes:
    return chunk(choices=[{"index": 0, "delta": fields, "finish_reason": finish}])


@pytest.mark.parametrize(
    ("word", "calls", "reason"),
    [
        ("stop", False, "stop"),
        ("length", False, "length"),
        ("content_filter", False, "content_filter"),
        ("stop", True, "tool_calls"),
        ("eos", True, "tool_calls"),
        ("function_call", True, "tool_calls"),
        # A call that was cut off must not be taken for a whole one.
        ("length", True, "length"),
        ("content_filter", True, "content_filter"),
        ("MAX_TOKENS", False, "length"),
        ("sensitive", False, "content_filter"),
        ("whatever", False, "stop"),
        (None, False, "stop"),
    ],
)
def test_why_an_answer_ended(word: str | None, calls: bool, reason: str) -> None:
    call = {"id": "call_1", "function": {"name": "f", "arguments": "{}"}}
    message = {"content": "a", "tool_calls": [call] if calls else None}
    [choice] = fold(openai.read_reply(chunk(choices=[{"message": message, "finish_reason": word}]))).choices
    assert (choice.finish, choice.native_finish) == (reason, word)


@pytest.mark.parametrize("word", ["error", "network_error", "insufficient_system_resource"])
def test_an_end_that_is_a_failure(word: str) -> None:
    choice = {"index": 0, "message": {"content": "a"}, "finish_reason": word}
    *_, last = openai.read_reply(chunk(choices=[choice]))
    assert isinstance(last, Failed)
    assert (last.error.status, last.error.type) == (502, "upstream_error")
    assert last.error.message == f"The provider ended its answer with `{word}`"


def test_the_error_of_a_choice_ends_the_answer() -> None:
    choice = {"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 503, "message": "overloaded"}}
    *_, last = openai.read_events([delta(content="a"), chunk(choices=[choice]), delta(content="never read")])
    assert isinstance(last, Failed)
    assert (last.error.status, last.error.message) == (503, "overloaded")


def test_calls_without_ids_get_ids_and_stay_apart() -> None:
    calls = [{"function": {"name": name, "arguments": {"of": name}}} for name in ("a", "b")]
    message = {"content": None, "tool_calls": calls}
    streamed = [delta(tool_calls=[call]) for call in calls]
    for events in (
        openai.read_reply(chunk(choices=[{"message": message}])),
        openai.read_events([*streamed, b"[DONE]"]),
    ):
        [choice] = fold(events).choices
        assert [(call.name, call.arguments) for call in choice.tool_calls] == [("a", '{"of":"a"}'), ("b", '{"of":"b"}')]
        ids = {call.id for call in choice.tool_calls}
        assert len(ids) == 2
        assert all(re.fullmatch("call_[0-9a-f]{24}", one) for one in ids)


def test_silence_becomes_a_sign_of_life() -> None:
    frames = [b"", delta(content="a"), b"", delta("stop"), b"[DONE]"]
    assert [type(event) for event in openai.read_events(frames)] == [Waiting, Started, TextDelta, Waiting, Finished]
    assert list(openai.write_events([Waiting()], question())) == [b": ping\n\n"]


def test_empty_text_is_said_last_so_that_it_does_not_count_as_an_answers_beginning() -> None:
    frames = [delta(role="assistant", content=""), delta("length"), b"[DONE]"]
    assert list(openai.read_events(frames)) == [
        Started(id="x", model="m", created=1),
        TextDelta(text=""),
        Finished(reason="length", native="length"),
    ]


def test_a_finished_answer_without_its_last_words_is_complete_and_an_unfinished_one_is_cut() -> None:
    assert isinstance(list(openai.read_events([delta(content="a"), delta("stop")]))[-1], Finished)
    for frames in ([], [delta(content="a")], [chunk(choices=[])]):
        [failure] = [event for event in openai.read_events(frames) if isinstance(event, Failed)]
        assert (failure.error.status, failure.error.code) == (502, "upstream_cut")


def test_after_the_end_the_rest_is_read_for_the_connections_sake() -> None:
    left = ["the end of the body"]

    def frames() -> Iterator[bytes]:
        yield delta("stop", content="a")
        yield b"[DONE]"
        left.clear()

    assert isinstance(list(openai.read_events(frames()))[-1], Finished)
    assert left == []


def test_what_happens_to_the_connection_after_the_end_is_no_failure_of_the_answer() -> None:
    def frames() -> Iterator[bytes]:
        yield delta("stop", content="a")
        yield b"[DONE]"
        raise ConnectionResetError

    assert isinstance(list(openai.read_events(frames()))[-1], Finished)


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        (
            {"error": {"message": "No such model", "type": "t", "param": "model", "code": "model_not_found"}},
            Failure(message="No such model", code="model_not_found", param="model"),
        ),
        ({"error": {"message": "Slow down", "code": 429}}, Failure(message="Slow down")),
        ({"error": "nope", "code": "x"}, Failure(message="nope", code="x")),
        ({"object": "error", "message": "bad", "type": "t", "code": None}, Failure(message="bad")),
        ({"message": "Unauthorized"}, Failure(message="Unauthorized")),
        ({"detail": "Not Found"}, Failure(message="Not Found")),
        ({"detail": [{"loc": ["body"]}]}, Failure(message='[{"loc":["body"]}]')),
        ([{"error": {"message": "listed", "code": 400}}], Failure(message="listed")),
        ({"error": {"message": "x" * 9_000}}, Failure(message="x" * 2_000)),
        ({"error": {}}, Failure(message="The provider answered with status 418")),
        ({"choices": []}, Failure(message="The provider answered with status 418")),
        (b"<html>Bad gateway</html>", Failure(message="The provider answered with status 418")),
        (b"\xff" * 9, Failure(message="The provider answered with status 418")),
        (b"[" * 100_000, Failure(message="The provider answered with status 418")),
        (b"", Failure(message="The provider answered with status 418")),
    ],
)
def test_a_providers_refusal_keeps_its_words(body: Any, failure: Failure) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    assert openai.read_failure(418, raw) == failure


def test_an_error_has_the_body_that_clients_look_into() -> None:
    error = InvalidRequest("messages: Required", code="invalid_parameters", param="messages")
    assert json.loads(openai.write_error(error)) == {
        "error": {
            "message": "messages: Required",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "invalid_parameters",
        },
        "status": 400,
        "message": "messages: Required",
    }
    assert b'"param":null' in openai.write_error(Overloaded("later"))


def test_a_failed_stream_ends_with_its_error_and_without_done() -> None:
    closed = []

    def events() -> Iterator[Any]:
        yield Started(id="x", model="m", created=1)
        yield TextDelta(text="a")
        yield Failed(error=Overloaded("later"))
        yield SUMMARY
        closed.append(True)

    pieces = list(openai.write_events(events(), question()))
    assert pieces[1:] == [
        b'data: {"error":{"message":"later","type":"api_error","param":null,"code":"overloaded"}}\n\n'
    ]
    # The source of the events runs to its end.
    assert closed == [True]


def test_an_answer_without_choices_still_ends() -> None:
    [last] = openai.write_events([Started(id="x", model="m", created=1), SUMMARY], question(include_usage=False))
    assert last == (
        b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m",'
        b'"choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )


def test_an_answer_without_an_id_gets_one() -> None:
    [piece, _] = openai.write_events([Started(), TextDelta(text="a"), SUMMARY], question())
    assert re.match(rb'data: \{"id":"chatcmpl-[0-9a-f]{24}",', piece)
    assert json.loads(openai.write_reply(Reply(), SUMMARY, question()))["id"].startswith("chatcmpl-")


def test_thinking_that_the_client_does_not_want_stays_out() -> None:
    silent = question(reasoning=ReasoningRequest(exclude=True))
    thought = ReasoningDelta(text="Hm", signature="c2ln", format="f")
    for chat, expected in ((silent, False), (question(), True)):
        streamed = b"".join(openai.write_events([Started(), thought, TextDelta(text="a"), SUMMARY], chat))
        plain = openai.write_reply(Reply(choices=[Choice(text="a", reasoning=[thought])]), SUMMARY, chat)
        assert (b"Hm" in streamed, b"Hm" in plain) == (expected, expected)


@pytest.mark.parametrize(
    ("choice", "content"),
    [
        (Choice(text=None, finish="length"), ""),
        (Choice(text="", finish="stop"), ""),
        (Choice(text=None, tool_calls=[WholeCall(id="c", name="f")], finish="tool_calls"), None),
        (Choice(text="", tool_calls=[WholeCall(id="c", name="f")], finish="tool_calls"), ""),
        (Choice(text=None, refusal="no", finish="stop"), None),
    ],
)
def test_content_is_null_only_beside_what_stands_for_it(choice: Choice, content: str | None) -> None:
    reply = json.loads(openai.write_reply(Reply(choices=[choice]), SUMMARY, question()))
    assert reply["choices"][0]["message"]["content"] == content


@pytest.mark.parametrize("at", [{"index": 0}, {}])
def test_a_call_named_late_or_never_still_comes_out(at: dict[str, int]) -> None:
    late = [delta(tool_calls=[{**at, "id": "c"}]), delta(tool_calls=[{**at, "function": {"arguments": "{"}}])]
    never = list(openai.read_events([*late, b"[DONE]"]))
    assert ToolCallStarted(index=0, id="c", name="") in never
    named = delta(tool_calls=[{**at, "function": {"name": "f", "arguments": "}"}}])
    [choice] = fold(openai.read_events([*late, named, b"[DONE]"])).choices
    assert choice.tool_calls == [WholeCall(id="c", name="f", arguments="{}")]


def test_choices_may_come_in_any_order() -> None:
    frames = [chunk(choices=[{"index": index, "delta": {"content": str(index)}}]) for index in (2, 0, 1, 0)]
    assert [choice.text for choice in fold(openai.read_events([*frames, b"[DONE]"])).choices] == ["00", "1", "2"]
    answer = chunk(choices=[{"index": index, "message": {"content": str(index)}} for index in (1, 0)])
    assert [choice.text for choice in fold(openai.read_reply(answer)).choices] == ["0", "1"]


@pytest.mark.parametrize("said", ["", "Hel"], ids=["nowhere else", "in deltas too"])
def test_text_that_stands_in_a_message_beside_the_delta_is_read_once(said: str) -> None:
    def choice(delta: str, message: str, end: str | None) -> bytes:
        pieces = {"delta": {"role": "assistant", "content": delta}, "message": {"content": message}}
        return json.dumps({"id": "x", "model": "m", "choices": [{"index": 0, "finish_reason": end, **pieces}]}).encode()

    whole = fold(openai.read_reply(choice("", "Hello", "stop")))
    assert whole.choices[0].text == "Hello"
    frames = [choice(said, said, None), choice("lo" if said else "", "Hello", "stop"), b"[DONE]"]
    assert fold(openai.read_events(frames)).choices[0].text == "Hello"


def told_so_far(text: str, content: str | None, finish: str | None = None) -> bytes:
    """Return a chunk as Perplexity writes it: a delta, and beside it the message so far."""
    said = {} if content is None else {"role": "assistant", "content": content}
    choice = {"index": 0, "delta": said, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return chunk(choices=[choice])


@pytest.mark.parametrize(
    "frames",
    [
        # Its deltas say all of it, none of it, or a part of it.
        [told_so_far("One ", "One "), told_so_far("One two", "two"), told_so_far("One two", "", "stop")],
        [told_so_far("One ", ""), told_so_far("One two", ""), told_so_far("One two", "", "stop")],
        [told_so_far("One ", None), told_so_far("One two", None), told_so_far("One two", None, "stop")],
        [told_so_far("One ", "One "), told_so_far("One two", ""), told_so_far("One two", None, "stop")],
        # The whole message comes at the end alone, behind pieces that are read by their bytes.
        [delta(content="One"), *(delta(content=one) for one in " two"), told_so_far("One two", None, "stop")],
    ],
)
def test_what_a_message_has_beyond_its_deltas_is_said_once(frames: list[bytes]) -> None:
    events = list(openai.read_events([*frames, b"[DONE]"]))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "One two"
    assert isinstance(events[-1], Finished)
