"""Dialects (wire formats): the protocols of their client and provider sides, and how a dialect is found by name.

Nobody keeps a list: a dialect is found by its name, which the catalog's providers state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, cast

import msgspec

from apps.gateway.canonical.chat import Chat, Target, ToolChoice
from apps.gateway.canonical.events import Event, Reply, Summary
from apps.kernel.errors import ApiError


class Failure(msgspec.Struct, frozen=True):
    """A provider's refusal in its own words.

    `status` is what it should have answered, where it answers something misleading (a bad credential with 400);
    `retry_after` the seconds after which it wants to be asked again, where its body says so.
    """

    message: str
    code: str | None = None
    param: str | None = None
    status: int | None = None
    retry_after: float | None = None


class ClientErrorWriter(Protocol):
    """What writes errors for clients."""

    def write_error(self, error: ApiError) -> bytes:
        """Return an error's body."""


class ClientReplyWriter(ClientErrorWriter, Protocol):
    """What writes plain answers and errors for clients: all that a client side without streams needs."""

    def write_reply(self, reply: Reply, summary: Summary, chat: Chat) -> bytes:
        """Return a whole answer."""


class ClientDialect(ClientReplyWriter, Protocol):
    """The client side of a dialect: reads requests of clients, writes their answers and errors."""

    def read_request(self, body: bytes) -> Chat:
        """Return the chat that a body asks for. Raises InvalidRequest naming the field."""

    def write_events(self, events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
        """Yield a streamed answer."""

    def logged_request(self, chat: Chat) -> dict[str, Any]:
        """Return what is there of `messages`, `tools`, `tool_choice` and `response_format` as the client writes them;
        values may be JSON's bytes. Raises InvalidRequest for what the format has no words for."""

    def logged_choice(self, choice: ToolChoice, parallel: bool | None) -> str | dict[str, Any]:
        """Return a choice of tools in the client's words, with nothing in it but names."""

    def logged_results(self, messages: list[Any]) -> list[Any]:
        """Return what tools answered within messages as the client writes them."""


class ProviderDialect(Protocol):
    """The provider side of a dialect: writes requests to providers, reads their answers and failures.

    What it may have beside this, `optional_attribute` finds: `docs/adding-a-dialect.md` lists it.
    """

    FRAMING: str

    def __hash__(self) -> int:
        """Modules have one."""

    def path(self, chat: Chat, target: Target) -> str:
        """Return the path after the provider's base URL."""

    def write_request(self, chat: Chat, target: Target) -> bytes:
        """Return the body of the request to the provider."""

    def read_reply(self, body: bytes) -> Iterator[Event]:
        """Yield the events of a whole answer."""

    def read_events(self, frames: Iterable[bytes]) -> Iterator[Event]:
        """Yield the events of a streamed answer; an empty frame is silence and becomes `Waiting`."""

    def read_failure(self, status: int, body: bytes) -> Failure:
        """Return what a provider says in an answer that is not 2xx."""


def url_of(dialect: ProviderDialect, base_url: str, chat: Chat, target: Target) -> str:
    """Return where a request goes: below the base URL, or wherever the optional `url(base_url, chat, target)` says."""
    url = optional_attribute(dialect, "url")
    return base_url + dialect.path(chat, target) if url is None else str(url(base_url, chat, target))


def headers_of(dialect: ProviderDialect, chat: Chat, target: Target) -> dict[str, str]:
    """Return the headers that belong to a format itself: what its optional `headers(chat, target)` says."""
    headers = optional_attribute(dialect, "headers")
    return {} if headers is None else dict(headers(chat, target))


def signature_format_of(dialect: ProviderDialect, chat: Chat, target: Target) -> str | None:
    """Return the format of the thinking signatures that a target wants back for this request; None for none.

    A dialect says so with its optional `signature_format(chat, target)`.
    """
    signature_format = optional_attribute(dialect, "signature_format")
    return None if signature_format is None else signature_format(chat, target)


@cache
def optional_attribute(dialect: ProviderDialect, name: str) -> Any:
    """Return an optional attribute of a dialect, None where it has none. Cached: looking for what is not there takes
    ten times as long."""
    return getattr(dialect, name, None)


@cache
def find_dialect(name: str) -> ProviderDialect | None:
    """Return the provider side of a dialect, or None when the gateway does not speak it."""
    module = f"{__name__}.{name}"
    return cast(ProviderDialect, import_module(module)) if find_spec(module) else None


def client_dialect_of(name: str) -> ClientDialect:
    """Return the client side of the dialect that a chat was read from."""
    return cast(ClientDialect, find_dialect(name))
