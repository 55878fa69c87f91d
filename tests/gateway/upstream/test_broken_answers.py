"""Answers that break, from providers of every format, for clients of both: never taken for an answer that is complete.

Before the first content another provider takes over, or the status says that it failed; after it the stream ends with
the client's own kind of error, and with nothing that looks like an end.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from pkgutil import iter_modules
from typing import Any
from uuid import uuid4

import pytest

from apps.gateway.dialects import chat, find_dialect
from apps.gateway.routing import circuit_breaker
from tests.support.anthropic_requests import ask as ask_messages
from tests.support.providers_of_every_format import OTHER, PLACES, play
from tests.support.upstream import Caller, chunks_of

pytestmark = pytest.mark.django_db

SURFACES = ["openai", "anthropic"]
ALONE = {"X-No-Fallback": "true"}
MIDDLE = ["cut=middle", "end=middle", "broken=middle"]
AT_ONCE = ["cut=body", "end=body", "error=body", "broken=body"]
# Numbered words in many pieces, so that something is said before the middle.
LONG = "words=40 chunks=20"


@pytest.fixture(params=PLACES)
def provider(request: pytest.FixtureRequest, caller: Caller, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Caller:
    """The caller, in front of a provider of each format and of the sandbox itself."""
    play(caller, request.param, monkeypatch, tmp_path)
    return caller


def ask(caller: Caller, surface: str, script: str, **fields: Any) -> Any:
    """Ask the provider for the sandbox's scenario in the client's format, whatever it did before."""
    circuit_breaker.CIRCUIT_BREAKERS.reset()
    content = f"hi [[sandbox tag={uuid4().hex} {script}]]"
    if surface == "openai":
        return caller.chat(content, **{"model": f"{OTHER}/echo", **fields})
    return ask_messages(caller, content, **{"model": f"{OTHER}/echo", **fields})


def error_of(surface: str, body: Any) -> dict[str, Any]:
    """Return the error in an answer; a body of Anthropic's says that it is one."""
    if surface == "anthropic":
        assert body["type"] == "error"
    error: dict[str, Any] = body["error"]
    assert error["message"]
    assert error["type"]
    return error


def test_every_format_is_tried() -> None:
    names = [name for _, name, _ in iter_modules(chat.__path__)]
    assert set(PLACES) == {name for name in names if find_dialect(name) is not None}


def test_a_stream_that_breaks_in_the_middle_ends_with_an_error(provider: Caller) -> None:
    for surface, fault in product(SURFACES, [*MIDDLE, "reset=middle", "error=middle"]):
        events = chunks_of(ask(provider, surface, f"{LONG} {fault}", stream=True))
        assert "word" in str(events[:-1]), (surface, fault)
        assert error_of(surface, events[-1])
        assert "[DONE]" not in events
        if surface == "openai":
            assert not any(chunk["choices"][0]["finish_reason"] for chunk in events[:-1] if "choices" in chunk)
        else:
            assert not {"message_delta", "message_stop"} & {event["type"] for event in events}


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_what_breaks_before_anything_is_said_has_the_status_of_a_failure(provider: Caller, stream: bool) -> None:
    for surface, fault in product(SURFACES, [*AT_ONCE, "cut=head", "status=503"]):
        response = ask(provider, surface, fault, stream=stream, headers=ALONE)
        # Anthropic's and Google's error objects have the status of what the sandbox says: a failure of its own.
        assert response.status_code in {500, 502, 503}, (surface, fault, response.status_code)
        assert response["content-type"] == "application/json"
        assert error_of(surface, response.json())


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_another_provider_takes_over_before_anything_is_said(provider: Caller, stream: bool) -> None:
    for fault in AT_ONCE:
        response = ask(provider, "openai", f"{fault} times=1", stream=stream)
        assert response.status_code == 200, (fault, response.content)
        metadata = chunks_of(response)[-2]["metadata"] if stream else response.json()["metadata"]
        assert [(line["provider"], line["succeeded"]) for line in metadata["routing"]] == [
            (OTHER, False),
            ("sandbox", True),
        ]


def test_a_whole_answer_that_breaks_is_no_answer(provider: Caller) -> None:
    for surface, fault in product(SURFACES, MIDDLE):
        response = ask(provider, surface, f"{LONG} {fault}", headers=ALONE)
        assert response.status_code == 502, (surface, fault, response.content)
        assert error_of(surface, response.json())
