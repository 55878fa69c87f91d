"""The client of the management API, against servers that lose answers, redirect, and are no gateways."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from gateway_project.config_as_code.management_api import ManagementApi, RequestRefused, Unreachable
from gateway_project.config_as_code.yaml_file import ConfigError

KEY = "gw_mgmt_" + "0" * 40


class _Handler(BaseHTTPRequestHandler):
    """Gives the server's answers in their order, and remembers the requests."""

    def answer(self) -> None:
        server: Any = self.server
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server.asked.append((self.command, self.path, self.headers["Authorization"], self.headers["Idempotency-Key"]))
        status, headers, body = server.answers.pop(0)
        if status is None:
            # The answer is lost.
            self.connection.close()
            return
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = answer  # noqa: N815 - the names that the library calls

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[Any]:
    """A server that answers as `answers` says: status, headers and body."""
    made: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    made.asked, made.answers = [], []
    made.url = f"http://127.0.0.1:{made.server_port}"
    Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
    yield made
    made.shutdown()
    made.server_close()


def test_a_post_whose_answer_was_lost_is_sent_again_under_the_same_key(server: Any) -> None:
    server.answers = [(None, {}, b""), (503, {}, b"{}"), (200, {}, json.dumps({"project": {"id": "1"}}).encode())]
    assert ManagementApi(server.url, KEY).send("POST", "/projects", {"name": "A"}, "project") == {"id": "1"}
    assert [one[:3] for one in server.asked] == [("POST", "/projects", f"Bearer {KEY}")] * 3
    assert len({one[3] for one in server.asked}) == 1
    assert server.asked[0][3]


def test_a_deletion_that_was_done_already_is_fine(server: Any) -> None:
    server.answers = [(None, {}, b""), (404, {}, b'{"message": "Project not found"}')]
    ManagementApi(server.url, KEY).delete("/projects/1")
    assert len(server.asked) == 2


def test_the_key_is_not_sent_along_a_redirect(server: Any) -> None:
    server.answers = [(302, {"Location": f"{server.url}/elsewhere"}, b"moved")]
    with pytest.raises(Unreachable, match="is answered with 302 and no JSON; is --base-url a gateway"):
        ManagementApi(server.url, KEY).get("/organization", "organizations")
    assert [one[1] for one in server.asked] == ["/organization"]


def test_refusals_carry_their_fields(server: Any) -> None:
    body = {"message": "Invalid request parameters", "issues": [{"path": "name", "message": "Required"}]}
    server.answers = [(400, {}, json.dumps(body).encode())]
    with pytest.raises(RequestRefused) as refused:
        ManagementApi(server.url, KEY).send("POST", "/projects", {})
    assert (refused.value.status, refused.value.issues) == (400, [("name", "Required")])
    assert KEY not in str(refused.value)


def test_an_answer_of_another_version_is_called_so(server: Any) -> None:
    server.answers = [(200, {}, b"{}")]
    with pytest.raises(Unreachable, match="without `organizations`: this gateway has another version"):
        ManagementApi(server.url, KEY).get("/organization", "organizations")


@pytest.mark.parametrize(
    "address", ["gateway.example.com", "ftp://gateway", "https://", "https://me:secret@gateway", "https://gateway/?a=1"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="--base-url must be an address"):
        ManagementApi(address, KEY)
