"""Bytes that are plainly one whole request, and that the parser reads just that."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway_project.http.request_intake import path_of_plain
from gateway_project.http.request_parser import HeadLimits, RequestParser

LIMITS = HeadLimits(line=8190, headers=20, header=8190)
LINE, HOST, LENGTH, BODY = (
    b"POST /v1/chat/completions HTTP/1.1\r\n",
    b"Host: gateway\r\n",
    b"Content-Length: 5\r\n",
    b"hello",
)
PLAIN = LINE + HOST + LENGTH + b"\r\n" + BODY
SDK = (
    b"POST /v1beta/models/gemini-2.5-flash:generateContent HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n"
    b"Accept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nAccept: application/json\r\n"
    b"Content-Type: application/json\r\nUser-Agent: OpenAI/Python 2.8.1\r\nX-Stainless-OS: Linux\r\n"
    b"Authorization: Bearer sk-gw-0123456789\r\nx-stainless-read-timeout: 600\r\ncontent-length:5\r\n\r\nhello"
)


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (PLAIN, "/v1/chat/completions"),
        (SDK, "/v1beta/models/gemini-2.5-flash:generateContent"),
        (PLAIN.replace(b"Content-Length: 5", b"CONTENT-LENGTH: 005"), "/v1/chat/completions"),
        (LINE + HOST + b"Content-Length: 0\r\nX-Empty:\r\nConnection: Keep-Alive\r\n\r\n", "/v1/chat/completions"),
    ],
)
def test_what_sdks_send_is_plain(data: bytes, path: str) -> None:
    assert path_of_plain(data, LIMITS) == path
    assert read(data) == [(path, data.partition(b"\r\n\r\n")[2], True)]


NOT_PLAIN = {
    "nothing": b"",
    "a part of a body": PLAIN[:-1],
    "another request behind it": PLAIN + PLAIN,
    "a byte behind it": PLAIN + b"\n",
    "a line before it": b"\r\n" + PLAIN,
    "a part of a head": LINE + HOST + LENGTH + b"\r\n"[:-1],
    "another method": PLAIN.replace(b"POST", b"post"),
    "another version": PLAIN.replace(b"/1.1", b"/1.0"),
    "another protocol": PLAIN.replace(b"HTTP", b"http"),
    "a query": PLAIN.replace(b"completions ", b"completions?a=b "),
    "a quoted path": PLAIN.replace(b"/v1/", b"/%761/"),
    "another host's address": PLAIN.replace(b" /v1", b" http://elsewhere/v1"),
    "no host": LINE + LENGTH + b"\r\n" + BODY,
    "two hosts": LINE + HOST + HOST + LENGTH + b"\r\n" + BODY,
    "no length": LINE + HOST + b"\r\n",
    "two lengths": LINE + HOST + LENGTH + b"content-length: 5\r\n\r\n" + BODY,
    "a list of lengths": PLAIN.replace(b": 5", b": 5, 5"),
    "a signed length": PLAIN.replace(b": 5", b": +5"),
    "a length in other digits": PLAIN.replace(b": 5", b": \xb2"),
    "a length of nothing": PLAIN.replace(b": 5", b": "),
    "a long length": PLAIN.replace(b": 5", b": 0000005"),
    "chunks": LINE + HOST + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n" + BODY,
    "chunks in other letters": LINE + HOST + LENGTH + b"tRANSFER-eNCODING:chunked\r\n\r\n" + BODY,
    "a space before a colon": PLAIN.replace(b"Length:", b"Length :"),
    "a folded line": PLAIN.replace(b"gateway", b"gateway\r\n more"),
    "a line feed alone": PLAIN.replace(b"gateway\r\n", b"gateway\n"),
    "a carriage return alone": PLAIN.replace(b"gateway", b"gate\rway"),
    "a zero byte": PLAIN.replace(b"gateway", b"gate\0way"),
    "a name that is none": PLAIN.replace(b"Host: gateway", b"Host: gateway\r\n: b"),
    "a connection that ends": PLAIN.replace(HOST, HOST + b"Connection: close\r\n"),
    "a proxy's connection that ends": PLAIN.replace(HOST, HOST + b"Proxy-Connection: close\r\n"),
    "a connection with more to say": PLAIN.replace(HOST, HOST + b"Connection: keep-alive, close\r\n"),
    "another protocol asked for": PLAIN.replace(HOST, HOST + b"Upgrade: h2c\r\n"),
    "a client that waits": PLAIN.replace(HOST, HOST + b"Expect: 100-continue\r\n"),
    "an id of its own": PLAIN.replace(HOST, HOST + b"X-Request-Id: mine\r\n"),
    "too many headers": PLAIN.replace(HOST, HOST + b"X-A: b\r\n" * 19),
    "a long head": PLAIN.replace(HOST, HOST + b"X-A: " + b"b" * 5000 + b"\r\n"),
}


@pytest.mark.parametrize("data", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_all_else_is_left_to_the_parser(data: bytes) -> None:
    assert path_of_plain(data, LIMITS) is None


def test_limits_of_the_operator_hold() -> None:
    assert path_of_plain(PLAIN, HeadLimits(line=len(PLAIN), headers=2, header=8190)) == "/v1/chat/completions"
    assert path_of_plain(PLAIN, HeadLimits(line=40, headers=2, header=8190)) is None
    assert path_of_plain(PLAIN, HeadLimits(line=8190, headers=1, header=8190)) is None
    assert path_of_plain(PLAIN, HeadLimits(line=8190, headers=2, header=40)) is None


NAMES = st.sampled_from(
    b"Host,Content-Length,Connection,Transfer-Encoding,Expect,Upgrade,X-A,x_b,Trailer,Proxy-Connection,Keep-Alive,"
    b"content-length,TE,X-Request-Id,Content_Length, Host,".split(b",")
)
VALUES = st.sampled_from(
    [b"5", b"0", b"keep-alive", b"close", b"chunked", b"h2c", b"a", b"", b"5 ", b"\xff", b"a\tb", b"\x7f"]
)
HEADERS = st.lists(st.tuples(NAMES, st.sampled_from([b": ", b":", b":  ", b" :", b":\t"]), VALUES), max_size=5)


@given(
    st.sampled_from([b"/", b"/v1/a:b", b"//", b"/./..", b"/~a_b", b"*"]),
    HEADERS,
    st.sampled_from([b"", BODY, b"\r\n", b"POST"]),
)
@example(b"/", [(b"Content_Length", b": ", b"5")], b"")
def test_the_parser_reads_one_request_in_what_is_plain(
    path: bytes, headers: list[tuple[bytes, bytes, bytes]], body: bytes
) -> None:
    lines = [b"".join(header) for header in headers]
    data = b"\r\n".join(
        [b"POST " + path + b" HTTP/1.1", b"Host: a", b"Content-Length: %d" % len(body), *lines, b"", body]
    )
    if (plain := path_of_plain(data, LIMITS)) is not None:
        assert read(data) == [(plain, body, True)]


def read(data: bytes) -> list[tuple[str, bytes, bool]]:
    """Return what the parser reads: path, body, and whether another request may follow."""
    reader = RequestParser(LIMITS)
    reader.feed(data)
    assert all(request.complete and not request.expects for request in reader.requests)
    return [(one.environ["PATH_INFO"], b"".join(one.body), one.keep_alive) for one in reader.requests]
