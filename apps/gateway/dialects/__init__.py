"""Dialects (wire formats): the client side and the provider side of one as values, and how each is found by name.

A format's own folder defines its sides, `CLIENT` and `PROVIDER`. The fields of these classes are all hooks that exist,
with their defaults; mypy checks them in a new value and in a copy (`dataclasses.replace`). There is no list of formats:
the catalog's providers name the dialect that they are called in. A format declares the facts that it reads of a data
file with `fact`; `facts_reader` reads those of one task (`rerank`, `speech` …), which data files state under its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Meta

from apps.gateway.canonical.chat import Chat, Target, Tool, ToolChoice
from apps.gateway.canonical.events import Event, Reply, Summary
from apps.kernel.concurrency.identity_cache import IdentityCache
from apps.kernel.errors import ApiError

# Server-sent events.
EVENTS: Final = "text/event-stream; charset=utf-8"
# Where chat formats are found.
_CHAT: Final = f"{__name__}.chat"
_Side = TypeVar("_Side")


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientErrorWriter:
    """Writes errors for the clients of an endpoint."""

    # Returns an error's body.
    write_error: Callable[[ApiError], bytes]
    # Returns an error with the status that the format has for it; None where the gateway's own are used.
    client_error: Callable[[ApiError], ApiError] | None = None
    # The header in which the format's clients look for the request's id, beside the gateway's own.
    request_id_header: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientDialect(ClientErrorWriter):
    """The client side of a chat format: reads clients' requests, writes their answers and errors."""

    # Returns the chat that a body asks for. Raises InvalidRequest, which names the field as the client does.
    read_request: Callable[[bytes], Chat]
    # Returns a whole answer.
    write_reply: Callable[[Reply, Summary, Chat], bytes]
    # Yields a streamed answer. Consumes every event, also those after the last one that it writes.
    write_events: Callable[[Iterable[Event], Chat], Iterator[bytes]]
    # The content type of a streamed answer.
    stream_type: str = EVENTS

    # --- what the request log keeps, as the client writes it

    # Returns those of `messages`, `tools`, `tool_choice` and `response_format` that the chat has; a value may be JSON's
    # bytes. Raises InvalidRequest for what the format cannot express.
    logged_request: Callable[[Chat], dict[str, Any]]
    # Returns a choice of tools with nothing in it but names. The second argument says whether calls may be parallel.
    logged_choice: Callable[[ToolChoice, bool | None], str | dict[str, Any]]
    # Returns the tool results within messages.
    logged_results: Callable[[list[Any]], list[Any]]

    # --- how errors and dropped fields are named

    # The client's names of the fields that the canonical language (and OpenAI's format) names otherwise.
    field_names: Mapping[str, str] = field(default_factory=dict)
    # Whether `messages[3]` is the same message for the client as in the canonical language.
    counts_messages_alike: bool = True
    # The field of a message that has its content.
    content_field: str = "content"
    # The field of a message that has a model's earlier thinking.
    thinking_field: str = "reasoning"
    # The field of the instructions, where dropped fields within them are reported under it.
    instructions_field: str | None = None
    # Whether a call of a tool, and its result, are items of their own beside the messages.
    has_call_items: bool = False
    # Returns where the client finds a tool; None where each is an entry of `tools`.
    tool_path: Callable[[Tool], str] | None = None
    # Fields kept whole of which some members are read: from a field's value, the paths of the members that are not.
    partly_read_fields: Mapping[str, Callable[[dict[str, Any]], Iterator[str]]] = field(default_factory=dict)
    # Fields that no other format has and without which the answer would be to another question.
    essential_fields: frozenset[str] = frozenset()

    # --- tools that other formats lack

    # The provider dialects, by name, that take this format's custom tools and namespaces; towards all others functions
    # emulate them. None for a format without such tools.
    custom_tool_dialects: frozenset[str] | None = None
    # Whether clients offer a web search among other tools to every model, so that models without it still answer.
    has_optional_search: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenCounter:
    """How a provider is asked how many tokens a prompt has."""

    # Returns path and body of the question. Raises InvalidRequest as `write_request` does.
    write_request: Callable[[Chat, Target], tuple[str, bytes]]
    # Returns the count of an answer; None where it has none.
    read_count: Callable[[bytes], int | None]
    # Returns the address, from the base URL and the path; None where the path is appended.
    url: Callable[[str, str], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobReader:
    """How the answer of a provider is read that takes a request as a job, to be asked after at another address."""

    # Returns the address of the job that a first answer names; None where it names none.
    read_address: Callable[[bytes], str | None]
    # Returns whether an answer says that the job still runs.
    is_pending: Callable[[bytes], bool]
    # Returns the hosts, beside the one that was asked, at which jobs and results may lie.
    hosts: Callable[[Target], Collection[str]]


def _no_headers(chat: Chat, target: Target) -> dict[str, str]:
    return {}


def _no_signatures(chat: Chat, target: Target) -> str | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProviderDialect:
    """The provider side of a format: writes requests to providers, reads their answers and failures.

    A format that differs from another in a few hooks is a copy with those replaced (`dataclasses.replace`).
    """

    # The name that data files state.
    name: str
    # Returns the path after the provider's base URL.
    path: Callable[[Chat, Target], str]
    # Returns the request's body. Raises InvalidRequest (`unsupported_feature`) for what the format cannot express.
    write_request: Callable[[Chat, Target], bytes]
    # Yields the events of a whole answer, as it would have been streamed.
    read_reply: Callable[[bytes], Iterator[Event]]
    # Yields the events of a streamed answer; an empty frame is silence and becomes `Waiting`.
    read_events: Callable[[Iterable[bytes]], Iterator[Event]]
    # Returns the failure that an answer other than 2xx (its status, its body) reports.
    read_failure: Callable[[int, bytes], Failure]

    # --- hooks that most formats leave as they are

    # How streamed answers are cut into frames: a name in `apps/gateway/framing.py`.
    framing: str = "sse"
    # The facts that a data file may state for the format, as annotated fields; None for a format that reads none.
    facts: type[msgspec.Struct] | None = None
    # Returns the whole address of a request, from the base URL; None where the path is appended.
    url: Callable[[str, Chat, Target], str] | None = None
    # Returns headers that belong to the format itself, such as its version; those of the credential do not.
    headers: Callable[[Chat, Target], dict[str, str]] = _no_headers
    # Returns the format of the thinking signatures that the target wants back for a request; None for none.
    signature_format: Callable[[Chat, Target], str | None] = _no_signatures
    token_counter: TokenCounter | None = None
    jobs: JobReader | None = None

    # --- what the format can express

    # Images and documents by address; otherwise bytes only. The fact `media_urls` overrides it.
    takes_media_urls: bool = True
    # Several answers from one call (`n`).
    takes_several_answers: bool = False
    # The probabilities of tokens.
    has_logprobs: bool = True
    # A web search beside other tools. The fact `takes` overrides it with `search_with_tools`.
    takes_search_with_tools: bool = True
    # Models think only when the request asks for it.
    thinks_when_asked: bool = False

    def url_of(self, base_url: str, chat: Chat, target: Target) -> str:
        """Return where a request goes."""
        return base_url + self.path(chat, target) if self.url is None else self.url(base_url, chat, target)


def find_dialect(name: str) -> ProviderDialect | None:
    """Return the provider side of a chat format; None when the gateway does not speak it to providers."""
    return find_provider_dialect(_CHAT, name)


@cache
def find_provider_dialect(package: str, name: str) -> ProviderDialect | None:
    """Return the `PROVIDER` of the module `name` of a package; None where there is none. `name` is a data file's."""
    return _find(package, name, "PROVIDER", ProviderDialect)


@cache
def find_client_dialect(name: str) -> ClientDialect | None:
    """Return the client side of a chat format; None where it has none."""
    return _find(_CHAT, name, "CLIENT", ClientDialect)


def client_dialect_of(name: str) -> ClientDialect:
    """Return the client side of the format that a chat was read from. Raises LookupError for any other name."""
    dialect = find_client_dialect(name)
    if dialect is None:
        raise LookupError(f"There is no client format {name!r}")
    return dialect


def _find(package: str, name: str, attribute: str, kind: type[_Side]) -> _Side | None:
    module = f"{package}.{name}"
    if not name.isidentifier() or find_spec(module) is None:
        return None
    found = getattr(import_module(module), attribute, None)
    return found if isinstance(found, kind) else None


_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def fact(description: str, *, default: str | None = None, **bounds: Any) -> Meta:
    """Return the annotation of a fact: its description for the documents, bounds on its value (`pattern`, `ge`, `le` …)
    and, where the field's own default does not show it, the effect of a fact that is not stated."""
    return Meta(description=description, extra=None if default is None else {"default": default}, **bounds)


def facts_reader(task: str, struct: type[_Struct]) -> Callable[[Mapping[str, Any]], _Struct | None]:
    """Return a function that reads the facts of a task from an offer's facts; None where the offer states none.

    It reads the same object once.
    """
    read = IdentityCache[Any, _Struct](lambda stated: msgspec.convert(stated, struct))

    def read_stated(facts: Mapping[str, Any]) -> _Struct | None:
        stated = facts.get(task)
        return None if stated is None else read(stated)

    return read_stated
