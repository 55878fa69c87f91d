"""Streams: the bytes, exactly."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sandbox.conftest import Upstream


def chunks_of(body: bytes) -> list[dict[str, Any]]:
    """Return the JSON of each event of a complete stream."""
    events = body.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    return [json.loads(event.removeprefix("data: ")) for event in events[:-2]]


def contents(chunks: list[dict[str, Any]], field: str = "content") -> list[str]:
    """Return the deltas of a field of the first choice, without the empty one that comes with the role."""
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"] if choice["index"] == 0]
    return [delta[field] for delta in deltas if delta.get(field)]


def test_streams_exactly_these_bytes(upstream: Upstream) -> None:
    response = upstream.chat("hi", stream=True, stream_options={"include_usage": True})
    identity = upstream.chat("hi").json()["id"]
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["transfer-encoding"] == "chunked"
    head = (
        f'data: {{"id":"{identity}","object":"chat.completion.chunk","created":1767225600,"model":"echo",'
        '"system_fingerprint":"fp_sandbox","choices":['
    )
    usage = (
        '{"prompt_tokens":1,"completion_tokens":3,"total_tokens":4,'
        '"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},'
        '"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}}'
    )

    def event(delta: str, finish: str = "null") -> str:
        choice = f'{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}'
        return f'{head}{choice}],"usage":null}}\n\n'

    assert response.text == (
        event('{"role":"assistant","content":"","refusal":null}')
        + event('{"content":"You "}')
        + event('{"content":"said: "}')
        + event('{"content":"hi"}')
        + event("{}", '"stop"')
        + f'{head}],"usage":{usage}}}\n\n'
        + "data: [DONE]\n\n"
    )


def test_usage_comes_only_when_asked_for(upstream: Upstream) -> None:
    asked: list[dict[str, Any]] = [{}, {"stream_options": {"include_usage": False}}, {"stream_options": None}]
    for options in asked:
        chunks = chunks_of(upstream.chat("hi", stream=True, **options).content)
        assert all("usage" not in chunk for chunk in chunks)
        assert all(chunk["choices"] for chunk in chunks)


def test_usage_on_the_finish_chunk_whether_asked_for_or_not(upstream: Upstream) -> None:
    asked: list[dict[str, Any]] = [{}, {"stream_options": {"include_usage": True}}]
    for options in asked:
        chunks = chunks_of(upstream.chat("hi [[sandbox usage-at=finish usage=10,5]]", stream=True, **options).content)
        assert [chunk["usage"]["total_tokens"] for chunk in chunks if "usage" in chunk] == [15]
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
        assert "usage" in chunks[-1]


def test_no_usage_although_asked_for(upstream: Upstream) -> None:
    response = upstream.chat("hi", model="no-usage", stream=True, stream_options={"include_usage": True})
    assert all(chunk.get("usage") is None and chunk["choices"] for chunk in chunks_of(response.content))


@pytest.mark.parametrize(
    ("directives", "pieces"),
    [
        ("chunks=3", ["You sai", "d: hell", "o there"]),
        ("chunk=8", ["You said", ": hello ", "there"]),
        ("words=2", ["word-1 ", "word-2"]),
        ("kb=2", ["sandbox " * 128] * 2),
        ("kb=1 chunks=50", None),
        ("empty", []),
    ],
)
def test_streams_in_pieces(upstream: Upstream, directives: str, pieces: list[str] | None) -> None:
    streamed = contents(chunks_of(upstream.chat(f"hello there [[sandbox {directives}]]", stream=True).content))
    if pieces is None:
        assert (len(streamed), "".join(streamed)) == (50, "sandbox " * 128)
    else:
        assert streamed == pieces


def test_a_stream_says_what_the_plain_reply_says(upstream: Upstream) -> None:
    content = "héllo wörld, twice"
    limits: dict[str, Any] = {"reasoning_effort": "low", "max_tokens": 25}
    plain = upstream.chat(content, **limits).json()
    chunks = chunks_of(upstream.chat(content, **limits, stream=True, stream_options={"include_usage": True}).content)
    message = plain["choices"][0]["message"]
    assert "".join(contents(chunks)) == message["content"]
    assert "".join(contents(chunks, "reasoning_content")) == message["reasoning_content"]
    assert chunks[-2]["choices"][0]["finish_reason"] == plain["choices"][0]["finish_reason"] == "length"
    assert (chunks[-1]["usage"], {chunk["id"] for chunk in chunks}) == (plain["usage"], {plain["id"]})


def test_reasoning_comes_before_the_text(upstream: Upstream) -> None:
    chunks = chunks_of(upstream.chat("hi [[sandbox reasoning=2 reasoning-field=reasoning]]", stream=True).content)
    assert [chunk["choices"][0]["delta"] for chunk in chunks][1:] == [
        {"reasoning": "thought-1 "},
        {"reasoning": "thought-2"},
        {"content": "You "},
        {"content": "said: "},
        {"content": "hi"},
        {},
    ]


def test_several_choices_each_begin_and_finish(upstream: Upstream) -> None:
    chunks = chunks_of(upstream.chat("hi", stream=True, n=2).content)
    choices = [chunk["choices"][0] for chunk in chunks]
    for index, text in enumerate(["You said: hi", "You said: hi (choice 2)"]):
        own = [choice for choice in choices if choice["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert "".join(choice["delta"].get("content") or "" for choice in own) == text
        assert [choice["finish_reason"] for choice in own] == [None] * (len(own) - 1) + ["stop"]


def test_the_benchmark_model_streams_fifty_deltas(upstream: Upstream) -> None:
    asked: dict[str, Any] = {"model": "echo-fast", "stream": True}
    with_usage = upstream.chat("hello", **asked, stream_options={"include_usage": True})
    chunks = chunks_of(with_usage.content)
    assert (len(contents(chunks)), "".join(contents(chunks))) == (50, "sandbox " * 128)
    assert chunks[-1]["usage"]["total_tokens"] == 506
    assert upstream.chat("other", **asked, stream_options={"include_usage": True}).content == with_usage.content
    assert all("usage" not in chunk for chunk in chunks_of(upstream.chat("hello", **asked).content))
