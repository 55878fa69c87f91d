"""Searches, citations and log probabilities before clients of the Responses format, over HTTP from a provider that
answers in its own format: items and deltas as OpenAI's own models give them, plain and streamed."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.providers_of_every_format import play
from tests.support.responses_calls import ask, events_of
from tests.support.upstream import Caller

pytestmark = pytest.mark.django_db

# Has the provider answer in a format, plain and streamed.
Answers = Callable[[str, bytes, bytes], None]
WIRE = Path(__file__).parents[1] / "dialects" / "wire"
STAGES = [f"response.web_search_call.{stage}" for stage in ("in_progress", "searching", "completed")]
LIKELY = [
    {"token": token, "logprob": -0.5, "bytes": list(token.encode()), "top_logprobs": [{"token": "x", "logprob": -3.0}]}
    for token in ("It", " rains", ".")
]


class Studio(BaseHTTPRequestHandler):
    """Answers with its files: plain, or streamed where the request asks for it."""

    protocol_version = "HTTP/1.1"
    plain, streamed = b"", b""

    def do_POST(self) -> None:
        """Answer."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        stream = asked.get("stream") or "streamGenerateContent" in self.path
        body = self.streamed if stream else self.plain
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if stream else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def studio(caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Answers]:
    """Has `other` answer in a format with these words, plain and streamed."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Studio) as server:

        def answers(dialect: str, plain: bytes, streamed: bytes) -> None:
            monkeypatch.setattr(Studio, "plain", plain)
            monkeypatch.setattr(Studio, "streamed", streamed)
            play(caller, dialect, monkeypatch, tmp_path, web_search=True)
            monkeypatch.setenv("OTHER_BASE_URL", f"http://127.0.0.1:{server.server_port}")

        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield answers
        server.shutdown()


def case_of(name: str) -> tuple[bytes, bytes]:
    """Return the answer of a case, plain and streamed."""
    return (WIRE / name / "reply.json").read_bytes(), (WIRE / name / "stream.sse").read_bytes()


def answered(caller: Caller, *, stream: bool, **fields: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the output of an answer, and the events that told it, none for a plain one."""
    response = ask(caller, "?", stream=stream, **fields)
    assert response.status_code == 200, response.content
    if not stream:
        return response.json()["output"], []
    told = events_of(response)
    return told[-1]["response"]["output"], told


def shown(output: list[dict[str, Any]]) -> list[Any]:
    """Return items without their ids: the queries of searches, and texts with the pages that they cite."""
    return [
        (item["status"], item["action"])
        if item["type"] == "web_search_call"
        else [
            (part["text"], [(note["url"], note["start_index"], note["end_index"]) for note in part["annotations"]])
            for part in item["content"]
        ]
        for item in output
    ]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_a_search_of_claudes_is_an_item_before_the_words_that_cite_its_pages(
    caller: Caller, studio: Answers, stream: bool
) -> None:
    studio("anthropic", *case_of("anthropic/search-and-citations"))
    output, told = answered(caller, stream=stream, tools=[{"type": "web_search"}])
    assert shown(output) == [
        [("Searching.", [])],
        ("completed", {"type": "search", "query": "rain", "queries": ["rain"]}),
        [("It rains a lot", [("https://w.example", 8, 14)])],
    ]
    if stream:
        places = [event["type"] for event in told if event.get("output_index") == 1]
        assert places == ["response.output_item.added", *STAGES, "response.output_item.done"]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_searches_of_geminis_are_items_and_its_sources_are_citations(
    caller: Caller, studio: Answers, stream: bool
) -> None:
    studio("google", *case_of("google/search"))
    output, _ = answered(caller, stream=stream, tools=[{"type": "web_search"}])
    searches = [
        ("completed", {"type": "search", "query": query, "queries": [query]})
        for query in ("news paris", "news paris today")
    ]
    words = [("Žofie, went.", [("https://a.example", 0, 5), ("https://b.example", 7, 12)])]
    # Its stream tells of searches behind the first words.
    assert shown(output) == ([words, *searches] if stream else [*searches, words])


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_pages_that_are_cited_in_openais_chat_format_were_searched_for(
    caller: Caller, studio: Answers, stream: bool
) -> None:
    page = {"url": "https://w.example", "title": "W", "start_index": 0, "end_index": 2}
    message = {
        "role": "assistant",
        "content": "It rains.",
        "annotations": [{"type": "url_citation", "url_citation": page}],
    }
    whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    plain = {**whole, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    chunk = {**whole, "choices": [{"index": 0, "delta": message, "finish_reason": "stop"}]}
    studio("openai", json.dumps(plain).encode(), f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())
    output, _ = answered(caller, stream=stream)
    assert shown(output) == [("completed", {"type": "search"}), [("It rains.", [("https://w.example", 0, 2)])]]


def test_log_probabilities_stand_in_the_deltas_that_say_their_tokens(caller: Caller, studio: Answers) -> None:
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [
        {"index": 0, "delta": {"content": entry["token"]}, "logprobs": {"content": [entry]}, "finish_reason": None}
        for entry in LIKELY
    ]
    chunks.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    lines = "".join(f"data: {json.dumps({**base, 'choices': [chunk]})}\n\n" for chunk in chunks)
    studio("openai", b"", f"{lines}data: [DONE]\n\n".encode())
    output, told = answered(caller, stream=True, include=["message.output_text.logprobs"], top_logprobs=1)
    wanted = [{**entry, "top_logprobs": [{**entry["top_logprobs"][0], "bytes": [120]}]} for entry in LIKELY]
    deltas = [event for event in told if event["type"] == "response.output_text.delta"]
    assert [(event["delta"], event["logprobs"]) for event in deltas] == [(entry["token"], [entry]) for entry in wanted]
    (added,) = [event for event in told if event["type"] == "response.content_part.added"]
    assert added["part"]["logprobs"] == []
    (done,) = [event for event in told if event["type"] == "response.output_text.done"]
    assert done["logprobs"] == output[0]["content"][0]["logprobs"] == wanted
