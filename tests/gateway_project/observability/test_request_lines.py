"""A line for each request: what it says once its answer has ended, and what it never says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from apps.gateway import metrics
from gateway_project.observability.request_lines import RequestLines


class Body:
    """An answer in pieces, that knows whether it was closed."""

    closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield b"piece"

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the written lines; all listeners to requests stop with the test."""
    monkeypatch.setattr(metrics, "_listeners", [])
    return []


def serve(lines: list[str], path: str, recorded: Any = None, body: Any = None) -> Iterable[bytes]:
    def application(environ: Any, start_response: Any) -> Any:
        if recorded is not None:
            for listener in metrics._listeners:
                listener(recorded)
        start_response("200 OK", [("x-request-id", "one")])
        return [b"whole"] if body is None else body

    environ = {"REQUEST_METHOD": "POST", "PATH_INFO": path, "QUERY_STRING": "key=secret"}

    def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
        return None

    return RequestLines(application, lines.append)(environ, start)


def test_a_line_comes_when_the_answer_has_ended_with_model_provider_and_cost(lines: list[str]) -> None:
    entry = SimpleNamespace(
        request_id="one", used_model="echo", used_provider="sandbox", cost=Decimal("0.000002700000")
    )
    body = Body()
    answer: Any = serve(lines, "/v1/chat/completions", entry, body)
    assert b"".join(answer) == b"piece"
    assert lines == []
    answer.close()
    assert body.closed
    assert re.sub(r"\d+ ms", "N ms", lines[0]) == "POST /v1/chat/completions 200 N ms echo at sandbox $0.0000027"


def test_no_query_and_no_control_character_is_written_and_files_are_left_out(lines: list[str]) -> None:
    answer: Any = serve(lines, "/keys\x1b[31m\n/api")
    answer.close()
    assert re.sub(r"\d+ ms", "N ms", lines[0]) == "POST /keys?[31m?/api 200 N ms"
    assert serve(lines, "/static/console/page.js") == [b"whole"]
    assert len(lines) == 1
