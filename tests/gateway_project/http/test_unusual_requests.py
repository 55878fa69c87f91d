"""The server's answers to unusual clients: another form of a path, HTTP/2, a key of another kind."""

from __future__ import annotations

import pytest

from tests.gateway_project.http.conftest import Server, until_closed
from tests.gateway_project.http.test_hostile_clients import body_of
from tests.gateway_project.http.test_http import HOST, read_one, status_of, told

# More than any route takes that leads to no model.
BIG = b"a" * (2 * 1024 * 1024)


def post(server: Server, path: str, headers: bytes, size: int) -> bytes:
    """Return the answer to a POST of so many bytes."""
    with server.connect() as client:
        head = f"POST {path} HTTP/1.1\r\n".encode() + HOST + headers + b"Content-Length: %d\r\n\r\n" % size
        client.sendall(head)
        if b"x-" in headers or b"api-key" in headers:
            client.sendall(BIG[:size])
        return read_one(client)


@pytest.mark.parametrize(
    "path", ["/chat/completions", "//v1/chat/completions/", "/openai/deployments/m/chat/completions"]
)
def test_another_form_of_a_path_has_the_limits_of_its_route(server: Server, path: str) -> None:
    answer = post(server, path, b"x-api-key: k\r\n", len(BIG))
    assert (status_of(answer), told(answer)["PATH_INFO"]) == (200, "/v1/chat/completions")
    refused = post(server, path, b"", len(BIG))
    assert (status_of(refused), body_of(refused)["error"]["code"]) == (401, "invalid_api_key")  # type: ignore[index]  # JSON
    assert b"x-should-retry: false\r\n" in refused


@pytest.mark.parametrize("header", [b"api-key: k\r\n", b"x-goog-api-key: k\r\n"])
def test_a_large_body_is_read_of_every_kind_of_key(server: Server, header: bytes) -> None:
    assert status_of(post(server, "/v1/chat/completions", header, len(BIG))) == 200


def test_no_form_of_a_path_slips_past_the_throttle_of_sign_ins(server: Server) -> None:
    """They are led nowhere: the application sees the path as sent, and has nothing there."""
    for path in ("//auth/sign-in/email", "/v1/auth/sign-in/email", "/api/v1/auth/sign-in/email"):
        answer = server.ask(f"POST {path} HTTP/1.1\r\n".encode() + HOST + b"Content-Length: 0\r\n\r\n")
        assert told(answer)["PATH_INFO"] == path


@pytest.mark.parametrize("pieces", [[24], [1, 23], [14, 10], [18, 6, 9]])
def test_http_2_gets_an_answer_in_http_2(server: Server, pieces: list[int]) -> None:
    sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9)
    with server.connect() as client:
        for size in pieces:
            client.sendall(sent[:size])
            sent = sent[size:]
        client.sendall(sent)
        answer = until_closed(client)
    assert answer[:18].hex() == "000000040000000000" + f"{len(answer) - 18:06x}" + "070000000000"
    assert answer[18:26].hex() == "00000000" + "0000000d"
    assert answer[26:].startswith(b"Only HTTP/1.1 is spoken here")


@pytest.mark.parametrize(("line", "status"), [(b"GET / HTTP/2.0", 505), (b"PRI /x HTTP/2.0", 400)])
def test_what_is_not_the_preface_is_answered_in_http_1(server: Server, line: bytes, status: int) -> None:
    answer = server.ask(line + b"\r\n" + HOST + b"\r\n")
    assert (status_of(answer), body_of(answer)["status"]) == (status, status)
