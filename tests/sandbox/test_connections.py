"""Connections that hang, are cut or reset, or end too early, at the level of bytes."""

from __future__ import annotations

import json

import pytest

from tests.sandbox.conftest import (
    Upstream,
    answer,
    events,
    read_until_silence,
    received,
    same_id,
    unchunked,
)


@pytest.mark.parametrize("stream", [False, True])
def test_hangs_before_the_head(upstream: Upstream, stream: bool) -> None:
    for model, content in (("hang", "hello"), ("echo", "hello [[sandbox hang]]")):
        with upstream.ask(content, model=model, stream=stream) as connection:
            connection.settimeout(0.3)
            with pytest.raises(TimeoutError):
                connection.recv(1)


@pytest.mark.parametrize("stream", [False, True])
def test_hangs_after_the_head(upstream: Upstream, stream: bool) -> None:
    with upstream.ask("hello [[sandbox hang=body]]", stream=stream) as connection:
        data = read_until_silence(connection)
    assert data.startswith(b"HTTP/1.1 200 OK\r\n")
    assert data.endswith(b"\r\n\r\n")
    assert data.count(b"\r\n\r\n") == 1


def test_hangs_within_a_stream(upstream: Upstream) -> None:
    with upstream.ask("one two three [[sandbox hang=3]]", stream=True) as connection:
        chunks = unchunked(read_until_silence(connection).partition(b"\r\n\r\n")[2])
    assert [json.loads(chunk[6:])["choices"][0]["delta"].get("content") for chunk in chunks] == ["", "You ", "said: "]


def test_hangs_within_a_plain_body(upstream: Upstream) -> None:
    with upstream.ask("hello [[sandbox hang=10]]") as connection:
        assert read_until_silence(connection).partition(b"\r\n\r\n")[2] == b'{"id":"cha'


@pytest.mark.parametrize("stream", [False, True])
def test_cuts_before_the_head(upstream: Upstream, stream: bool) -> None:
    with upstream.ask("hello [[sandbox cut=head]]", stream=stream) as connection:
        assert received(connection) == b""


def test_cuts_a_plain_body_short_of_its_length(upstream: Upstream) -> None:
    for model, content in (("cut", "hello"), ("echo", "hello [[sandbox cut]]")):
        head, body = answer(upstream, content, model=model)
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        assert len(body) == length // 2


def test_cuts_a_stream_without_its_last_chunk(upstream: Upstream) -> None:
    whole = events(upstream)
    assert whole[-2:] == [b"data: [DONE]\n\n", b""]
    _, body = answer(upstream, "one two three [[sandbox cut=4]]", stream=True)
    assert same_id(unchunked(body)) == same_id(whole)[:4]
    _, body = answer(upstream, "one two three", model="cut", stream=True)
    assert len(unchunked(body)) == (len(whole) - 1) // 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("point", ["head", "body", "middle"])
def test_resets_the_connection(upstream: Upstream, point: str, stream: bool) -> None:
    with (
        upstream.ask(f"hello [[sandbox reset={point}]]", stream=stream) as connection,
        pytest.raises(ConnectionResetError),
    ):
        received(connection)


def test_ends_a_stream_too_early_but_cleanly(upstream: Upstream) -> None:
    whole = events(upstream)
    _, body = answer(upstream, f"one two three [[sandbox end={len(whole) - 2}]]", stream=True)
    assert same_id(unchunked(body)) == [*same_id(whole)[:-2], b""]  # all but [DONE]


def test_ends_a_plain_body_too_early_but_cleanly(upstream: Upstream) -> None:
    head, body = answer(upstream, "hello [[sandbox end=20]]")
    assert "content-length: 20" in head
    assert body == b'{"id":"chatcmpl-' + body[-4:]
