"""Google's answers, also strange ones and failures; beside the cases of `tests/gateway/dialects/wire/google`."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.gateway.canonical.events import Event, Failed, Finished, Started, TextDelta, UsageReported, Waiting, fold
from apps.gateway.dialects import Failure
from apps.gateway.dialects.chat import google, openai
from apps.gateway.dialects.chat.google.wire import FAILURE_WORDS
from apps.gateway.framing import sse_frames
from apps.kernel.usage import COUNTS
from tests.gateway.dialects.test_laws import QUESTION, SUMMARY, has_no_doubles
from tests.support.property_examples import examples

OVERFLOW = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."


def answer(*parts: Any, reason: str | None = "STOP", **fields: Any) -> bytes:
    """Return an answer of one candidate."""
    candidate = {"content": {"role": "model", "parts": list(parts)}, "finishReason": reason}
    return json.dumps({"candidates": [candidate], "responseId": "r-1", **fields}).encode()


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("STOP", "stop"),
        ("MAX_TOKENS", "length"),
        ("SAFETY", "content_filter"),
        ("RECITATION", "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"),
        ("BLOCKLIST", "content_filter"),
        ("SPII", "content_filter"),
        ("IMAGE_SAFETY", "content_filter"),
        ("OTHER", "content_filter"),
        ("A_NEW_WORD", "stop"),
    ],
)
def test_googles_words_for_the_end_have_one_meaning(word: str, reason: str) -> None:
    [choice] = fold(google.read_reply(answer({"text": "Hi"}, reason=word))).choices
    assert (choice.finish, choice.native_finish) == (reason, word)


def test_calls_mean_tool_calls_unless_the_answer_was_cut_off() -> None:
    call = {"functionCall": {"name": "weather", "args": {}}}
    assert fold(google.read_reply(answer(call))).choices[0].finish == "tool_calls"
    assert fold(google.read_reply(answer(call, reason="MAX_TOKENS"))).choices[0].finish == "length"


@pytest.mark.parametrize("word", sorted(FAILURE_WORDS))
def test_an_answer_of_no_use_is_a_failure_that_another_provider_may_mend(word: str) -> None:
    *before, last = google.read_events([answer(reason=word)])
    assert [type(event) for event in before] == [Started]
    assert isinstance(last, Failed)
    assert (last.error.status, last.error.code, last.error.message) == (
        502,
        word.lower(),
        f"The provider ended its answer with `{word}`",
    )


def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    call = {"functionCall": {"name": "weather", "args": {"a": 123456789012345678901234567890}}}
    first, second = fold(google.read_reply(answer(call, call))).choices[0].tool_calls
    assert first.id.startswith("call_")
    assert len(first.id) == 29
    assert first.id != second.id
    assert first.arguments == '{"a":123456789012345678901234567890}'


def test_text_may_follow_a_call_and_the_last_chunk_may_be_empty() -> None:
    call = {"functionCall": {"id": "c1", "name": "weather"}}
    chunks = [answer(call, reason=None), b"", answer({"text": "Wait."}, reason=None), answer(reason="STOP")]
    events = list(google.read_events(chunks))
    assert [type(event) for event in events if isinstance(event, Waiting | TextDelta | Finished)] == [
        Waiting,
        TextDelta,
        Finished,
    ]
    [choice] = fold(events).choices
    assert (choice.text, [call.arguments for call in choice.tool_calls]) == ("Wait.", ["{}"])
    assert choice.finish == "tool_calls"


def test_counts_are_running_totals_and_the_last_wins() -> None:
    counts = [{"promptTokenCount": 5, "candidatesTokenCount": written} for written in (1, 3, 8)]
    chunks = [answer({"text": "x"}, reason=None, usageMetadata=count) for count in counts]
    usage = fold(google.read_events([*chunks, answer(reason="STOP")])).usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (5, 8)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"candidates": []}', b'{"usageMetadata": {}}'])
def test_what_is_no_answer_is_a_failure(body: bytes) -> None:
    [failed] = [event for event in google.read_reply(body) if isinstance(event, Failed)]
    assert (failed.error.status, failed.error.code) == (502, "upstream_broken")


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        (
            {"error": {"code": 404, "message": "models/x is not found", "status": "NOT_FOUND"}},
            Failure(message="models/x is not found", code="NOT_FOUND"),
        ),
        (
            [{"error": {"code": 429, "message": "Slow down", "status": "RESOURCE_EXHAUSTED"}}],
            Failure(message="Slow down", code="RESOURCE_EXHAUSTED"),
        ),
        (
            {
                "error": {
                    "code": 400,
                    "message": "API key not valid. Please pass a valid API key.",
                    "status": "INVALID_ARGUMENT",
                    "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}],
                }
            },
            Failure(message="API key not valid. Please pass a valid API key.", code="API_KEY_INVALID", status=401),
        ),
        (
            {
                "error": {
                    "code": 400,
                    "message": OVERFLOW,
                    "status": "INVALID_ARGUMENT",
                }
            },
            Failure(
                message=OVERFLOW,
                code="context_length_exceeded",
            ),
        ),
        ({"error": {}}, Failure(message="The provider answered with status 400")),
        ("<html>", Failure(message="The provider answered with status 400")),
    ],
)
def test_a_refusal_is_read_in_googles_words(body: Any, failure: Failure) -> None:
    assert google.read_failure(400, json.dumps(body).encode()) == failure


def test_a_refusal_within_an_answer_keeps_its_status() -> None:
    body = json.dumps({"error": {"code": 400, "message": "No", "status": "INVALID_ARGUMENT"}}).encode()
    [failed] = google.read_events([body])
    assert isinstance(failed, Failed)
    assert (failed.error.status, failed.error.code, failed.error.message) == (400, "INVALID_ARGUMENT", "No")


NAMES = ("text", "thought", "thoughtSignature", "functionCall", "inlineData", "id", "name", "args", "mimeType", "data")
LEAVES = st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats(-9, 1e300) | st.text(max_size=4)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, min_size=1, max_size=4),
    max_leaves=8,
)


def maybe(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    """Draw an object that has some of these fields, with anything in them."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, ANYTHING))


PARTS = st.lists(maybe(*NAMES[:5]) | ANYTHING, max_size=3)
GROUNDING = maybe("groundingChunks", "groundingSupports", "webSearchQueries")
CANDIDATES = st.fixed_dictionaries(
    {},
    optional={
        "index": ANYTHING,
        "content": st.fixed_dictionaries({"parts": PARTS}) | ANYTHING,
        "finishReason": st.sampled_from(("STOP", "SAFETY", "OTHER")) | ANYTHING,
        "groundingMetadata": GROUNDING | ANYTHING,
        "logprobsResult": maybe("chosenCandidates", "topCandidates") | ANYTHING,
    },
)
ANSWERS = st.fixed_dictionaries(
    {"candidates": st.lists(CANDIDATES | ANYTHING, max_size=2)},
    optional={
        "promptFeedback": maybe("blockReason") | ANYTHING,
        "usageMetadata": maybe("promptTokenCount", "candidatesTokenCount", "promptTokensDetails") | ANYTHING,
        "responseId": ANYTHING,
        "createTime": ANYTHING,
    },
)


@settings(max_examples=examples(300))
@given(chunks=st.lists(ANSWERS, min_size=1, max_size=3))
def test_no_answer_of_googles_shape_is_too_strange_to_be_read(chunks: list[Any]) -> None:
    bodies = [msgspec.json.encode(chunk) for chunk in chunks]
    for events in (list(google.read_reply(bodies[0])), list(google.read_events(bodies))):
        assert sum(isinstance(event, Failed) for event in events[:-1]) == 0
        assert_counts_make_sense(events)
        if not isinstance(events[-1], Failed):
            assert fold(events).choices
            written = list(sse_frames(openai.write_events([*events, SUMMARY], QUESTION)))
            assert all(has_no_doubles(payload) for payload in written if payload != b"[DONE]")


def assert_counts_make_sense(events: list[Event]) -> None:
    """No class of tokens is below zero."""
    for event in events:
        if isinstance(event, UsageReported):
            assert min(getattr(event.usage, name) for name in COUNTS) >= 0


@given(
    texts=st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=4),
    size=st.integers(1, 200),
    crlf=st.booleans(),
)
def test_a_stream_means_the_same_wherever_it_is_cut(texts: list[str], size: int, crlf: bool) -> None:
    end = b"\r\n\r\n" if crlf else b"\n\n"
    chunks = [answer({"text": text}, reason=None) for text in texts] + [answer(reason="STOP")]
    data = b"".join(b"data: " + chunk + end for chunk in chunks)
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert list(google.read_events(sse_frames(pieces))) == list(google.read_events(chunks))


def chunk(*parts: Any, reason: str | None = None, **fields: Any) -> bytes:
    candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    return json.dumps({"candidates": [candidate | ({"finishReason": reason} if reason else {})], **fields}).encode()


TOTALS = {"promptTokenCount": 20, "candidatesTokenCount": 3, "thoughtsTokenCount": 7, "totalTokenCount": 30}


@pytest.mark.parametrize("last", [({"text": ""},), ({"text": "", "thoughtSignature": "c2ln"},), ()])
def test_counts_that_add_up_end_a_stream_that_names_no_reason(last: tuple[Any, ...]) -> None:
    events = list(google.read_events(iter([chunk({"text": "Fine."}), chunk(*last, usageMetadata=TOTALS)])))
    assert events[-1] == Finished(reason="stop", native=None)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Fine."]
    called = chunk({"functionCall": {"name": "look", "args": {}}})
    events = list(google.read_events(iter([called, chunk(*last, usageMetadata=TOTALS)])))
    assert events[-1] == Finished(reason="tool_calls", native=None)


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk({"text": "Fine."})],
        [chunk({"text": "Fine."}), chunk({"text": ""})],
        # Counts are running totals: beside content they do not mean that it was the last.
        [chunk({"text": "Fine."}), chunk({"text": " And"}, usageMetadata=TOTALS)],
        [chunk({"text": "Fine."}), chunk({"functionCall": {"name": "look"}}, usageMetadata=TOTALS)],
        [chunk({"text": "", "thought": True}, usageMetadata=TOTALS), chunk({"text": "Fine."})],
        [chunk({"text": "Fine."}), chunk({"text": ""}, usageMetadata=TOTALS | {"totalTokenCount": 31})],
        [chunk({"text": "Fine."}), chunk({"text": ""}, usageMetadata={"promptTokenCount": 20})],
    ],
)
def test_without_them_it_was_cut_off(chunks: list[bytes]) -> None:
    last = list(google.read_events(iter(chunks)))[-1]
    assert isinstance(last, Failed)
    assert last.error.message == "The provider's answer ended before it was complete"


def test_the_only_picture_is_one_though_it_is_marked_as_a_thought() -> None:
    def blob(data: str, **marks: Any) -> dict[str, Any]:
        return {"inlineData": {"mimeType": "image/png", "data": data}, **marks}

    def pictures(*parts: Any) -> list[str]:
        whole = fold(google.read_reply(answer(*parts))).choices[0].images
        streamed = fold(google.read_events(iter([answer(*parts)]))).choices[0].images
        assert whole == streamed
        return [url.removeprefix("data:image/png;base64,") for url in whole]

    sketch = {"text": "A sketch.", "thought": True}
    assert pictures(sketch, blob("AAAA", thought=True), blob("BBBB", thought=True)) == ["BBBB"]
    assert pictures(sketch, blob("AAAA", thought=True), blob("BBBB")) == ["BBBB"]
    assert pictures(blob("BBBB"), blob("AAAA", thought=True)) == ["BBBB"]
    signed = fold(google.read_reply(answer(blob("AAAA", thought=True, thoughtSignature="c2ln")))).choices[0]
    assert [(block.id, block.signature) for block in signed.reasoning] == [("image-0", "c2ln")]


@pytest.mark.parametrize("chunks", [True, 3, "x", {"maps": {}}])
def test_grounding_whose_chunks_are_no_list_is_read(chunks: Any) -> None:
    grounding = {"groundingChunks": chunks}
    candidate = {"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP", "groundingMetadata": grounding}
    reply = fold(google.read_reply(json.dumps({"candidates": [candidate]}).encode()))
    assert reply.choices[0].text == "Hi"
