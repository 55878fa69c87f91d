"""Turns an answer and a scenario into steps: bytes, pauses, and the end of the connection. Pure.

Events and bodies come from a format; here they are broken, delayed, split and compressed as the scenario says.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from apps.sandbox.conversation import Conversation, SandboxAnswer
from apps.sandbox.formats import SandboxFormat
from apps.sandbox.scenario import FAST, SandboxRefusal, Scenario, evenly, scenario_of
from apps.sandbox.scripted_reply import answer_of

JSON = "application/json"
HTML = "text/html"
SSE = "text/event-stream"
COMMENT = b": OPENROUTER PROCESSING\n\n"
SERVER_ERROR = "The server had an error while processing your request. Sorry about that!"

_REASONS = {
    400: "The request is invalid.",
    401: "Incorrect API key provided.",
    402: "Insufficient balance.",
    403: "You are not allowed to do this.",
    404: "There is no such thing.",
    408: "The request timed out.",
    413: "The request is too large.",
    429: "Rate limit reached for requests.",
    503: "The engine is currently overloaded, please try again later.",
}
_MIDWAY = SandboxRefusal(500, SERVER_ERROR)
_GZIP_WINDOW = 31
"""zlib's way of asking for gzip's header and the largest window."""


@dataclass(frozen=True, slots=True)
class Head:
    """Status line and headers. `length` is the body's in bytes; None means that the body is chunked."""

    status: int
    headers: tuple[tuple[str, str], ...]
    length: int | None


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes of the body, in a write of their own."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing for so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hang:
    """Nothing any more, until the client leaves."""


@dataclass(frozen=True, slots=True)
class Close:
    """The connection ends here, whatever was promised; with a RST when `reset`."""

    reset: bool = False


Step = Head | Body | Pause | Hang | Close

_ENDINGS: dict[str, Step] = {"hang": Hang(), "cut": Close(), "reset": Close(reset=True)}


def perform(
    form: SandboxFormat, conversation: Conversation, answer: SandboxAnswer, scenario: Scenario, *, gzipped: bool = False
) -> Iterator[Step]:
    """Return the steps of an answer; `gzipped` where the scenario says so and the client accepts it."""
    if scenario.latency:
        yield Pause(scenario.latency / 1000)
    fault = scenario.fault
    if fault and fault.point == "head" and fault.kind in _ENDINGS:
        yield _ENDINGS[fault.kind]
    elif scenario.status >= 400:
        refusal = SandboxRefusal(
            scenario.status,
            _REASONS.get(scenario.status, SERVER_ERROR),
            code=scenario.code,
            retry_after=scenario.retry_after,
        )
        body = _page(refusal) if scenario.html else form.write_error(refusal)
        yield from _whole(refusal.status, body, _headers(refusal, HTML if scenario.html else JSON, answer.id), scenario)
    elif conversation.streamed:
        yield from _stream(form, conversation, answer, scenario, gzipped)
    else:
        broken = fault and fault.kind == "error"
        body = form.write_error(_MIDWAY) if broken else form.write_reply(answer, scenario)
        yield from _whole(200, body, _headers(None, JSON, answer.id, gzipped), scenario, gzipped)


def say(status: int, body: bytes) -> tuple[Step, ...]:
    """Return the steps of a plain JSON answer."""
    return Head(status, (("content-type", JSON),), len(body)), Body(body)


def refuse(form: SandboxFormat, refusal: SandboxRefusal) -> Iterator[Step]:
    """Return the steps of an error that no scenario asked for."""
    return _whole(refusal.status, form.write_error(refusal), _headers(refusal, JSON), Scenario())


@cache
def fixed_performance(form: SandboxFormat, *, streamed: bool, wants_usage: bool) -> tuple[Step, ...]:
    """Return the steps of the benchmark model: made once, the same for every request, the body in one write."""
    conversation = Conversation(FAST, (), streamed=streamed, wants_usage=wants_usage)
    scenario = scenario_of(FAST)
    head, *rest = perform(form, conversation, answer_of(conversation, scenario), scenario)
    return head, Body(b"".join(step.data for step in rest if isinstance(step, Body)))


def _stream(
    form: SandboxFormat, conversation: Conversation, answer: SandboxAnswer, scenario: Scenario, gzipped: bool
) -> Iterator[Step]:
    events = form.write_events(answer, scenario, wants_usage=conversation.wants_usage)
    fault = scenario.fault
    if fault:
        place = fault.place(len(events))
        if fault.kind == "broken":
            place = min(place, len(events) - 1)
            events[place] = events[place][: len(events[place]) // 2] + b"\n\n"
        else:
            events = events[:place] + ([form.write_error_event(_MIDWAY)] if fault.kind == "error" else [])
    if form.STREAM_TYPE == SSE:
        events = _in_manner(events, scenario)
    ending = _ENDINGS.get(fault.kind) if fault else None
    yield Head(200, _headers(None, form.STREAM_TYPE, answer.id, gzipped), None)
    writes: Iterable[bytes] = _compressed(events, complete=ending is None) if gzipped else events
    yield from _writes(writes, scenario)
    if ending:
        yield ending


def _whole(
    status: int, body: bytes, headers: tuple[tuple[str, str], ...], scenario: Scenario, gzipped: bool = False
) -> Iterator[Step]:
    fault = scenario.fault
    if fault and fault.kind in ("broken", "end"):
        body = body[: fault.place(len(body))]
    if gzipped:
        body = gzip.compress(body, mtime=0)
    ending = _ENDINGS.get(fault.kind) if fault else None
    written = body[: fault.place(len(body))] if fault and ending else body
    yield Head(status, headers, len(body))
    yield from _writes(evenly(written, scenario.chunks or 1), scenario)
    if ending:
        yield ending


def _writes(writes: Iterable[bytes], scenario: Scenario) -> Iterator[Step]:
    if scenario.bytewise:
        writes = (bytes([byte]) for data in writes for byte in data)
    for number, data in enumerate(writes):
        if number and scenario.gap:
            yield Pause(scenario.gap / 1000)
        yield Body(data)


def _in_manner(events: list[bytes], scenario: Scenario) -> list[bytes]:
    if scenario.comments:
        events = [line for event in events for line in (COMMENT, event)]
    if scenario.crlf:
        events = [event.replace(b"\n", b"\r\n") for event in events]
    return events


def _compressed(writes: Iterable[bytes], *, complete: bool) -> Iterator[bytes]:
    packer = zlib.compressobj(wbits=_GZIP_WINDOW)
    for data in writes:
        yield packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)
    if complete:
        yield packer.flush()


def _headers(
    refusal: SandboxRefusal | None, content_type: str, identity: str = "refused", gzipped: bool = False
) -> tuple[tuple[str, str], ...]:
    limited = refusal is not None and refusal.status == 429
    headers = [
        ("content-type", content_type),
        ("x-request-id", f"req_{identity}"),
        ("x-ratelimit-limit-requests", "10000"),
        ("x-ratelimit-remaining-requests", "0" if limited else "9999"),
    ]
    if refusal is not None and refusal.retry_after is not None:
        headers.append(("retry-after", f"{refusal.retry_after:g}"))
    if gzipped:
        headers.append(("content-encoding", "gzip"))
    return tuple(headers)


def _page(refusal: SandboxRefusal) -> bytes:
    return f"<html><body><h1>{refusal.status}</h1><p>{refusal.message}</p></body></html>".encode()
