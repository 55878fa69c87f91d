"""Bodies and streams that are not what they should be, and manners that a client has to bear."""

from __future__ import annotations

import gzip
import json

import pytest

from tests.sandbox.conftest import (
    Upstream,
    answer,
    events,
    read_until_silence,
    request_bytes,
    same_id,
    unchunked,
)

ERROR = {
    "error": {
        "message": "The server had an error while processing your request. Sorry about that!",
        "type": "server_error",
        "param": None,
        "code": None,
    }
}


def test_breaks_the_json_of_a_plain_reply(upstream: Upstream) -> None:
    for response in (upstream.chat("hello", model="broken"), upstream.chat("hello [[sandbox broken]]")):
        assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
        assert len(response.content) == int(response.headers["content-length"])
        with pytest.raises(json.JSONDecodeError):
            json.loads(response.content)


def test_breaks_one_event_of_a_stream(upstream: Upstream) -> None:
    whole = same_id(events(upstream))
    broken = same_id(unchunked(answer(upstream, "one two three [[sandbox broken=2]]", stream=True)[1]))
    assert broken[:2] + broken[3:] == whole[:2] + whole[3:]
    assert broken[2].startswith(b'data: {"id":"ID","object":"chat.completion.chunk"')
    assert broken[2].endswith(b"\n\n")
    with pytest.raises(json.JSONDecodeError):
        json.loads(broken[2][6:])


def test_an_error_object_with_status_200(upstream: Upstream) -> None:
    response = upstream.chat("hello [[sandbox error]]")
    assert (response.status_code, response.json()) == (200, ERROR)


@pytest.mark.parametrize(("directive", "before"), [("error", 0), ("error=body", 0), ("error=3", 3)])
def test_an_error_object_within_a_stream(upstream: Upstream, directive: str, before: int) -> None:
    whole = same_id(events(upstream))
    head, body = answer(upstream, f"one two three [[sandbox {directive}]]", stream=True)
    assert head.startswith("HTTP/1.1 200 OK")
    *chunks, error, end = same_id(unchunked(body))
    assert (chunks, end) == (whole[:before], b"")
    assert error == b"data: " + json.dumps(ERROR, separators=(",", ":")).encode() + b"\n\n"


def test_line_ends_are_crlf(upstream: Upstream) -> None:
    whole = b"".join(same_id(events(upstream)))
    chunks = unchunked(answer(upstream, "one two three [[sandbox crlf]]", stream=True)[1])
    assert all(chunk.endswith(b"\r\n\r\n") for chunk in chunks[:-1])
    identity = json.loads(chunks[0][6:])["id"].encode()
    assert b"".join(chunks).replace(identity, b"ID") == whole.replace(b"\n", b"\r\n")


def test_comments_come_before_each_event(upstream: Upstream) -> None:
    whole = same_id(events(upstream))
    chunks = same_id(unchunked(answer(upstream, "one two three [[sandbox comments]]", stream=True)[1]))
    assert chunks[:-1:2] == [b": OPENROUTER PROCESSING\n\n"] * (len(whole) - 1)
    assert chunks[1::2] == whole[:-1]


def test_one_byte_a_write(upstream: Upstream) -> None:
    chunks = unchunked(answer(upstream, "é [[sandbox bytewise]]", stream=True)[1])
    assert {len(chunk) for chunk in chunks[:-1]} == {1}
    assert "é".encode() in b"".join(chunks)
    plain = upstream.chat("é [[sandbox bytewise]]")
    assert plain.json()["choices"][0]["message"]["content"] == "You said: é"


@pytest.mark.parametrize("stream", [False, True])
def test_gzip_when_accepted(upstream: Upstream, stream: bool) -> None:
    content = "hello [[sandbox gzip]]"
    packed = upstream.chat(content, stream=stream, headers={"accept-encoding": "gzip, br"})
    plain = upstream.chat(content, stream=stream, headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content


def test_gzip_is_flushed_with_every_event(upstream: Upstream) -> None:
    request = request_bytes("one two [[sandbox gzip hang=2]]", stream=True)
    with upstream.connect() as connection:
        connection.sendall(request.replace(b"host:", b"accept-encoding: gzip\r\nhost:"))
        chunks = unchunked(read_until_silence(connection).partition(b"\r\n\r\n")[2])
    assert len(chunks) == 2
    with pytest.raises(EOFError):
        gzip.decompress(b"".join(chunks))


@pytest.mark.parametrize("stream", [False, True])
def test_fields_that_nobody_knows(upstream: Upstream, stream: bool) -> None:
    response = upstream.chat("hello [[sandbox extra]]", stream=stream)
    texts = [event.removeprefix("data: ") for event in response.text.split("\n\n") if event and "[DONE]" not in event]
    assert len(texts) == (5 if stream else 1)
    assert all(json.loads(text)["x_sandbox"] == {"note": "an unknown field"} for text in texts)


def test_nothing_is_said(upstream: Upstream) -> None:
    reply = upstream.chat("call x [[sandbox empty]]", reasoning_effort="high").json()
    assert reply["choices"][0]["message"] == {"role": "assistant", "content": "", "refusal": None}
    assert reply["usage"]["completion_tokens"] == 0


def test_huge_answers(upstream: Upstream) -> None:
    assert len(upstream.text("hello [[sandbox kb=2048]]")) == 2048 * 1024
    assert upstream.chat("hello [[sandbox kb=2048]]", stream=True).text.count("\n\ndata: ") == 2048 + 2
