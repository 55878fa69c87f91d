"""Answers in Ollama's format: what other formats have other places for, whole and streamed alike."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from apps.gateway.canonical.chat import ReasoningRequest
from apps.gateway.canonical.events import (
    Annotated,
    AudioDelta,
    Event,
    Failed,
    Finished,
    ImageMade,
    Logprobs,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Waiting,
    fold,
)
from apps.gateway.dialects.chat.ollama import CLIENT
from apps.gateway.dialects.chat.ollama.wire import write_counts
from apps.gateway.dialects.chat.ollama_generate import CLIENT as GENERATE
from apps.kernel.errors import Overloaded
from tests.gateway.dialects.test_laws import SUMMARY

CHAT = CLIENT.read_request(b'{"model": "m", "messages": [{"role": "user", "content": "?"}]}')
STARTED = Started(id="r", model="fox", created=1_700_000_000)
PAGE = {"type": "url_citation", "url_citation": {"url": "https://a.b", "title": "A", "start_index": 0, "end_index": 2}}
TOKEN = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": [{"token": "Hi", "logprob": -0.5}]}


def written(*events: Event, client: Any = CLIENT, chat: Any = CHAT) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the whole answer and the lines of the streamed one."""
    all_events = [STARTED, *events]
    plain = json.loads(client.write_reply(fold(all_events), SUMMARY, chat))
    lines = b"".join(client.write_events([*all_events, SUMMARY], chat)).decode().splitlines()
    return plain, [json.loads(line) for line in lines]


def test_the_last_line_and_the_whole_answer_have_the_same_fields() -> None:
    plain, (piece, last) = written(TextDelta(text="Hi"), Finished(reason="length"))
    assert piece == {
        "model": "fox",
        "created_at": "2023-11-14T22:13:20Z",
        "message": {"role": "assistant", "content": "Hi"},
        "done": False,
    }
    assert last == {**plain, "message": {"role": "assistant", "content": ""}}
    assert (plain["model"], plain["done"], plain["done_reason"]) == ("fox-1", True, "length")
    assert (plain["prompt_eval_count"], plain["eval_count"]) == (17, 7)
    assert plain["message"] == {"role": "assistant", "content": "Hi"}
    assert plain["metadata"] == SUMMARY.metadata
    assert plain["cost_usd"] == {"total": 1.23e-07, "input": 1e-07, "request": 0}


def test_durations_are_nanoseconds_and_never_zero() -> None:
    counts = write_counts(replace(SUMMARY, duration=1500, time_to_first_token=400))
    durations = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
    assert [counts[name] for name in durations] == [1_500_000_000, 0, 400_000_000, 1_100_000_000]
    unknown = write_counts(SUMMARY)
    assert [unknown[name] for name in durations] == [2, 0, 1, 1]


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (RefusalDelta(text="No."), {"content": "No."}),
        (AudioDelta(id="a", data="AAAA", transcript="Hello"), {"content": "Hello"}),
        (ReasoningDelta(text="Hm."), {"content": "", "thinking": "Hm."}),
        (ImageMade(url="data:image/png;base64,AAAA"), {"content": "", "images": ["AAAA"]}),
        (ImageMade(url="https://a.b/c.png"), {"content": "![image](https://a.b/c.png)"}),
        (Annotated(annotation=PAGE), {"content": "", "annotations": [PAGE]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_everything_has_a_place_in_the_message(event: Event, message: dict[str, Any]) -> None:
    plain, lines = written(event, Finished(reason="stop"))
    assert plain["message"] == {"role": "assistant", **message}
    assert lines[0]["message"] == {"role": "assistant", **message}
    assert lines[-1]["message"] == {"role": "assistant", "content": ""}


def test_the_reason_of_a_filter_is_said() -> None:
    plain, lines = written(TextDelta(text="I "), Finished(reason="content_filter", explanation="Blocked."))
    assert (plain["message"]["content"], plain["done_reason"]) == ("I Blocked.", "content_filter")
    assert [line["message"]["content"] for line in lines] == ["I ", "Blocked.", ""]


def test_all_calls_come_in_one_line_with_their_arguments_as_objects() -> None:
    events = [
        *(ToolCallStarted(index=0, id="a", name="look"), ToolCallDelta(index=0, arguments='{"n":\n1.50}')),
        *(ToolCallStarted(index=1, id="b", name="wait"), ToolCallDelta(index=0, arguments="")),
        *(ToolCallStarted(index=2, id="c", name="say"), ToolCallDelta(index=2, arguments="not json")),
    ]
    calls = [
        {"id": "a", "function": {"index": 0, "name": "look", "arguments": {"n": 1.5}}},
        {"id": "b", "function": {"index": 1, "name": "wait", "arguments": {}}},
        {"id": "c", "function": {"index": 2, "name": "say", "arguments": {"input": "not json"}}},
    ]
    plain, (line, last) = written(*events, Finished(reason="tool_calls"))
    assert plain["message"]["tool_calls"] == calls
    assert line["message"] == {"role": "assistant", "content": "", "tool_calls": calls}
    assert (plain["done_reason"], last["done_reason"]) == ("stop", "stop")


def test_log_probabilities_are_those_of_the_line() -> None:
    plain, lines = written(Logprobs(logprobs={"content": [TOKEN]}), TextDelta(text="Hi"), Finished(reason="stop"))
    assert plain["logprobs"] == [TOKEN]
    assert [line.get("logprobs") for line in lines] == [[TOKEN], None]


def test_thinking_that_is_switched_off_is_not_shown() -> None:
    silent = replace(CHAT, reasoning=ReasoningRequest(effort="none", exclude=True))
    plain, lines = written(ReasoningDelta(text="Hm."), TextDelta(text="Hi"), Finished(reason="stop"), chat=silent)
    assert plain["message"] == {"role": "assistant", "content": "Hi"}
    assert not any("thinking" in line["message"] for line in lines)


def test_a_sign_of_life_is_a_line_without_text() -> None:
    lines = b"".join(CLIENT.write_events([STARTED, Waiting()], CHAT)).splitlines()
    assert [json.loads(line)["message"] for line in lines] == [{"role": "assistant", "content": ""}]


def test_a_failure_ends_a_stream_without_its_end() -> None:
    events = [STARTED, TextDelta(text="Hi"), Failed(error=Overloaded("Too much")), TextDelta(text="!"), SUMMARY]
    lines = [json.loads(line) for line in b"".join(CLIENT.write_events(events, CHAT)).splitlines()]
    assert len(lines) == 2
    assert (lines[1]["error"], lines[1]["param"]) == ("Too much", None)


def test_a_prompts_answer_has_its_text_as_response() -> None:
    plain, (thought, piece, last) = written(
        ReasoningDelta(text="Hm."), TextDelta(text="Hi"), Finished(reason="stop"), client=GENERATE
    )
    assert (plain["response"], plain["thinking"]) == ("Hi", "Hm.")
    assert (thought["response"], thought["thinking"], piece["response"], last["response"]) == ("", "Hm.", "Hi", "")
    assert "message" not in {*plain, *piece, *last}
