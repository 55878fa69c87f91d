"""Bedrock's answers, read: failures with the status that they stand for, and strange parts of blocks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from apps.gateway.canonical.events import Event, Failed, Finished, Started, TextDelta, ToolCallDelta, Waiting, fold
from apps.gateway.dialects import Failure
from apps.gateway.dialects.chat import bedrock
from apps.kernel.errors import AllProvidersFailed, UpstreamRefused


def reply(*blocks: Any, stop: str = "end_turn", **fields: Any) -> bytes:
    return json.dumps({"output": {"message": {"content": blocks}}, "stopReason": stop, **fields}).encode()


def streamed(*events: dict[str, Any] | bytes) -> list[Event]:
    frames: Iterator[bytes] = (one if isinstance(one, bytes) else json.dumps(one).encode() for one in events)
    return list(bedrock.read_events(frames))


START = {"messageStart": {"role": "assistant"}}
STOP = {"messageStop": {"stopReason": "end_turn"}}
METADATA = {"metadata": {"usage": {"inputTokens": 1, "outputTokens": 2}}}


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("throttlingException", 429),
        ("modelNotReadyException", 429),
        ("validationException", 400),
        ("accessDeniedException", 403),
        ("resourceNotFoundException", 404),
        ("internalServerException", 500),
        ("serviceUnavailableException", 503),
        ("modelStreamErrorException", 502),
        ("modelTimeoutException", 504),
        ("unheardOfException", 502),
    ],
)
def test_an_exception_of_the_stream_has_its_status(name: str, status: int) -> None:
    *_, failed = streamed(START, {"exception": {name: {"message": "Alas"}}})
    assert isinstance(failed, Failed)
    kind = UpstreamRefused if status in {400, 403, 404} else AllProvidersFailed
    assert isinstance(failed.error, kind)
    assert (failed.error.status, failed.error.message, failed.error.code) == (status, "Alas", name)


@pytest.mark.parametrize("raised", [None, [], {}, {"": None}, "words", {"x": {"message": 3}}])
def test_an_exception_that_says_nothing_is_one_all_the_same(raised: Any) -> None:
    [failed] = streamed({"exception": raised})
    assert isinstance(failed, Failed)
    assert (failed.error.status, bool(failed.error.message)) == (502, True)


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    [
        (429, b'{"message": "Too many"}', Failure(message="Too many")),
        (403, b'{"Message": "No"}', Failure(message="No")),
        (424, b'{"message": "It broke"}', Failure(message="It broke", status=502)),
        (
            400,
            b'{"message": "The provided model identifier is invalid."}',
            Failure(message="The provided model identifier is invalid.", status=404),
        ),
        (
            400,
            b'{"message": "Input is too long for requested model."}',
            Failure(message="Input is too long for requested model.", code="context_length_exceeded"),
        ),
        (
            404,
            b'{"__type": "com.amazon.coral.service#UnknownOperationException", "message": "?"}',
            Failure(message="?", code="unknownOperationException"),
        ),
        (500, b"<html>", Failure(message="The provider answered with status 500")),
        (500, b'{"message": null}', Failure(message="The provider answered with status 500")),
    ],
)
def test_a_refusal_is_told_in_bedrocks_words(status: int, body: bytes, failure: Failure) -> None:
    assert bedrock.read_failure(status, body) == failure


def test_a_failure_in_a_plain_answer_of_status_200_is_one() -> None:
    [failed] = bedrock.read_reply(b'{"message": "The service is out of order"}')
    assert isinstance(failed, Failed)
    assert (failed.error.status, failed.error.message) == (502, "The service is out of order")


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b"{}", b'{"output": {}}', b'{"output": {"message": null}}'])
def test_a_plain_answer_without_content_is_broken(body: bytes) -> None:
    [failed] = bedrock.read_reply(body)
    assert isinstance(failed, Failed)
    assert (failed.error.status, failed.error.code) == (502, "upstream_broken")


def test_an_answer_of_no_blocks_is_one_all_the_same() -> None:
    events = list(bedrock.read_reply(reply()))
    assert [type(event) for event in events] == [Started, Finished]


def test_silence_becomes_waiting_and_the_counts_end_the_stream() -> None:
    text = {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Hi"}}}
    events = streamed(b"", START, text, b"", STOP, METADATA, {"exception": {"late": {}}})
    assert [type(event).__name__ for event in events] == [
        *("Waiting", "Started", "TextDelta", "Waiting", "UsageReported", "Finished")
    ]
    assert isinstance(events[0], Waiting)


def test_a_stream_that_ends_without_its_counts_is_complete() -> None:
    text = {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "Hi"}}}
    answer = fold(streamed(START, text, STOP))
    assert (answer.choices[0].text, answer.choices[0].finish, answer.usage) == ("Hi", "stop", None)


def test_arguments_are_the_text_that_the_model_wrote() -> None:
    use = '{"toolUse": {"toolUseId": "t", "name": "f", "input": {"a": 1.50, "a": 2}}}'
    body = reply("USE", stop="tool_use").replace(b'"USE"', use.encode())
    [arguments] = [event.arguments for event in bedrock.read_reply(body) if isinstance(event, ToolCallDelta)]
    assert arguments == '{"a": 1.50, "a": 2}'


def test_a_call_means_tool_calls_whatever_the_provider_says() -> None:
    use = {"toolUse": {"toolUseId": "t", "name": "f", "input": {}}}
    assert fold(bedrock.read_reply(reply(use))).choices[0].finish == "tool_calls"
    assert fold(bedrock.read_reply(reply(use, stop="max_tokens"))).choices[0].finish == "length"


def test_redacted_thinking_that_is_no_text_is_left_out() -> None:
    blocks = ({"reasoningContent": {"redactedContent": "//79"}}, {"text": "So."})
    assert [type(event) for event in bedrock.read_reply(reply(*blocks))] == [Started, TextDelta, Finished]
