"""The wire formats that the sandbox speaks, each in a module of this package.

A format is pure: bytes to conversation, answer to bytes. `response_steps` adds time and faults on the way. To add one,
add a module with the members of `SandboxFormat`, or add it to the `FORMATS` of a module; nothing else changes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple, Protocol, cast

from apps.sandbox.conversation import Conversation, SandboxAnswer
from apps.sandbox.scenario import SandboxRefusal, Scenario


class Glance(NamedTuple):
    """Fields of a request that are cheap to read."""

    model: str
    streamed: bool
    wants_usage: bool


class SandboxFormat(Protocol):
    """The interface of a format's module."""

    PATH: re.Pattern[str]
    """The paths whose POSTs it answers, matched in full."""

    MODELS_PATH: str
    """The path whose GET lists the models; formats may share it, and are then told apart by their credentials."""

    STREAM_TYPE: str
    """The content type of its streams; `text/event-stream` lets a scenario play with SSE's framing.

    Optional beside it: `READS_QUERY`, True where `read_request` is to get the path with its query.
    """

    def __hash__(self) -> int:
        """Formats are keys of caches with one entry for each."""

    def find_token(self, headers: Mapping[str, str]) -> str | None:
        """Return the credential that the request presents, if any. Header names are lower-case."""

    def glance(self, path: str, body: bytes) -> Glance | None:
        """Return the few fields that identify a benchmark's request; None where the body does not have them."""

    def read_request(self, path: str, body: bytes) -> Conversation:
        """Return what the request says. Raises Refusal in the provider's words."""

    def write_reply(self, answer: SandboxAnswer, scenario: Scenario) -> bytes:
        """Return the body of a plain reply."""

    def write_events(self, answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
        """Return a stream's events, each framed, the terminal one included."""

    def write_models(self, names: Iterable[str]) -> bytes:
        """Return the list of models."""

    def write_error(self, refusal: SandboxRefusal) -> bytes:
        """Return the body of an error."""

    def write_error_event(self, refusal: SandboxRefusal) -> bytes:
        """Return an error as it appears within a stream, framed."""


class WholeReplyFormat:
    """A format whose answers are never streamed, of a provider whose chats have a format already: all but requests and
    replies is as it is there."""

    def __init__(
        self,
        chats: SandboxFormat,
        path: str,
        read_request: Callable[[str, bytes], Conversation],
        write_reply: Callable[[SandboxAnswer, Scenario], bytes],
    ) -> None:
        self.PATH = re.compile(path)
        self.MODELS_PATH, self.STREAM_TYPE = chats.MODELS_PATH, chats.STREAM_TYPE
        self.find_token, self.write_models = chats.find_token, chats.write_models
        self.write_error, self.write_error_event = chats.write_error, chats.write_error_event
        self.read_request, self.write_reply = read_request, write_reply

    def glance(self, path: str, body: bytes) -> Glance | None:
        """Return None: every request is read."""
        return None

    def write_events(self, answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
        """Return the whole answer as the one event of a stream, which no client can request."""
        return [b"data: " + self.write_reply(answer, scenario) + b"\n\n"]


class SpecialistFormat:
    """A format of a provider that has no chats, and lists no models: answers are sound as it comes, or whole.

    Without `write_reply` they are sound.
    """

    # No path is this one.
    MODELS_PATH = ""

    def __init__(
        self,
        path: str,
        find_token: Callable[[Mapping[str, str]], str | None],
        read_request: Callable[[str, bytes], Conversation],
        write_reply: Callable[[SandboxAnswer, Scenario], bytes] | None,
        write_error: Callable[[SandboxRefusal], bytes],
        *,
        reads_query: bool = False,
    ) -> None:
        self.PATH, self.READS_QUERY = re.compile(path), reads_query
        self.STREAM_TYPE = "application/octet-stream" if write_reply is None else "application/json"
        self.find_token, self.read_request, self.write_error = find_token, read_request, write_error
        self._write_reply = write_reply

    def glance(self, path: str, body: bytes) -> Glance | None:
        """Return None: every request is read."""
        return None

    def write_reply(self, answer: SandboxAnswer, scenario: Scenario) -> bytes:
        """Return the whole answer."""
        return b"".join(answer.sound) if self._write_reply is None else self._write_reply(answer, scenario)

    def write_events(self, answer: SandboxAnswer, scenario: Scenario, *, wants_usage: bool) -> list[bytes]:
        """Return the pieces of the audio; other answers as a whole, as no client can request them as a stream."""
        return list(answer.sound) if self._write_reply is None else [self._write_reply(answer, scenario)]

    def write_models(self, names: Iterable[str]) -> bytes:
        """Return an empty list: no client can request one."""
        return b"[]"

    def write_error_event(self, refusal: SandboxRefusal) -> bytes:
        """Return an error instead of an answer."""
        return self.write_error(refusal)


@cache
def all_formats() -> tuple[SandboxFormat, ...]:
    """Return every format there is."""
    names = sorted(module.name for module in iter_modules(__path__))
    modules = [import_module(f"{__name__}.{name}") for name in names]
    return tuple(cast(SandboxFormat, form) for module in modules for form in getattr(module, "FORMATS", (module,)))


def find_format(method: str, path: str, headers: Mapping[str, str]) -> SandboxFormat | None:
    """Return the format that a request speaks, if there is one."""
    if method == "POST":
        return next((form for form in all_formats() if form.PATH.fullmatch(path)), None)
    listing = [form for form in all_formats() if method == "GET" and path == form.MODELS_PATH]
    return next((form for form in listing if form.find_token(headers)), listing[0] if listing else None)
