"""Unsupported fields of a request: each that a format or provider cannot take is noted under the client's own name
for it, or refused.

An unsupported hint is left out; a field that would change the answer is refused. A user's identifier that is too long
for OpenAI's formats is sent as its digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any, Final

from msgspec.structs import replace

from apps.gateway.canonical.chat import (
    Chat,
    File,
    Image,
    Message,
    OpaqueTool,
    Part,
    Piece,
    Reasoning,
    Target,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.canonical.tool_result_pairing import has_paired_results, pair
from apps.gateway.dialects import ClientDialect, find_client_dialect
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import InvalidRequest

# Kinds of thinking that are understood; between calls of tools alone, only Anthropic's models think.
_THINKING: Final = ("enabled", "disabled", "adaptive")
# Fields of `thinking` that are supported; the gateway decides whether thinking is shown.
_THINKING_FIELDS: Final = frozenset({"type", "budget_tokens", "display"})
# Fields of several formats that are kept whole, of which some members are read: the paths of the members that are not.
# Those of one format stand with it (`ClientDialect.partly_read_fields`).
_PARTLY_READ: Final[dict[str, Callable[[Record], Iterator[str]]]] = {
    "thinking": lambda value: (
        f"thinking.{name}"
        for name in value
        if name not in _THINKING_FIELDS or (name == "type" and value[name] not in _THINKING)
    ),
    # Each model decides how much of its thinking it shows.
    "reasoning": lambda value: (f"reasoning.{name}" for name in value if name not in ("summary", "generate_summary")),
    "web_search_options": lambda value: (f"web_search_options.{name}" for name in value),
    "metadata": lambda value: (f"metadata.{name}" for name in value if name != "user_id"),
}
# The kind of tool that is emulated where a format lacks it (`emulated_tools.py`).
_CUSTOM: Final = "custom"
# The caller of a tool that is the model itself, as both formats that name callers have it.
_DIRECT: Final = "direct"
# Where Google's clients have what only they say of a call, and of its result.
_OWN_CALLS: Final = ("functionCall", "functionResponse")
# The name of a cache mark in OpenAI's formats.
_BREAKPOINT: Final = "prompt_cache_breakpoint"
# Characters of a user's identifier at OpenAI. Claude Code states device, account and session: twice as many.
MAX_USER: Final = 64
# Characters of a kind's name that a refusal repeats.
_MAX_KIND: Final = 100
# Fields that bring tools which only their own dialect's providers have.
_TOOLS_ELSEWHERE: Final = frozenset({"mcp_servers"})
# Fields that an answer of the gateway's came with: they come back with it, and ask for nothing.
_ECHOED: Final = frozenset(
    {
        "annotations",
        "citations",
        "provider_specific_fields",
        "extra_content",
        "caller",
        "namespace",
        "stop_reason",
        "stop_sequence",
        "usage",
        "model",
        "type",
        "name",
        "index",
        "id",
        "status",
        "function_call",
        "phase",
        "logprobs",
        "instructions",
    }
)
# Values that ask for what happens anyway.
_USUAL: Final[dict[str, tuple[Any, ...]]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "n": (1,),
    "logprobs": (False,),
    "logit_bias": ({},),
    "parallel_tool_calls": (True,),
    "store": (False,),
    "service_tier": ("auto", "default", "standard_only"),
    "metadata": ({},),
    "modalities": (["text"], []),
    "temperature": (),
    "verbosity": ("medium",),
    "top_k": (-1,),
}


def all_members(field: str) -> Callable[[Record], Iterator[str]]:
    """Return a function from the value of a field of which nothing is read to the paths of its members."""
    return lambda value: (f"{field}.{name}" for name in value)


def client_of(chat: Chat) -> ClientDialect | None:
    """Return the client side of the format that a chat was read from; None for a chat that the gateway made."""
    return find_client_dialect(chat.dialect or "")


def client_name_of(chat: Chat, field: str) -> str:
    """Return the client's name of a field of the canonical language."""
    client = client_of(chat)
    return field if client is None else client.field_names.get(field, field)


def note_dropped(chat: Chat, target: Target, field: str, why: str) -> None:
    """Note that a field is dropped or changed, under the client's own name for it: the client is warned."""
    target.note_dropped(client_name_of(chat, field), why)


def unsupported_feature(chat: Chat, field: str, message: str) -> InvalidRequest:
    """Return the error for a field that the target does not support, and that would change what the client gets."""
    return InvalidRequest(message, code="unsupported_feature", param=client_name_of(chat, field))


def is_default_value(field: str, value: Any) -> bool:
    """Return whether a field's value asks for what happens by default."""
    return value is None or value in _USUAL.get(field, ())


def note_unsupported_hints(chat: Chat, target: Target, *fields: str) -> None:
    """Note those of the chat's fields that are set to anything but their default, as unsupported."""
    for field in fields:
        value = getattr(chat, field)
        if not is_default_value(field, value):
            note_dropped(chat, target, field, "not available from this model's provider")


def shorten_user(chat: Chat, target: Target) -> Chat:
    """Return the chat with a user identifier that OpenAI takes; another one than the client's is noted.

    The same user keeps the same digest, which is all that the field is for.
    """
    user = chat.user
    if user is None or len(user) <= MAX_USER:
        return chat
    note_dropped(chat, target, "user", f"sent as a digest: the provider takes at most {MAX_USER} characters")
    return replace(chat, user=sha256(user.encode("utf-8", "replace")).hexdigest())


def wants_citations(fields: Any) -> bool:
    """Return whether a document's fields, as Anthropic's format has them, ask that the answer cites it."""
    asked = fields.get("citations") if isinstance(fields, dict) else None
    return isinstance(asked, dict) and asked.get("enabled") is True


def repair_tool_results(chat: Chat, target: Target, *, runs: bool) -> Chat:
    """Return the chat with one result for each tool call; changes are noted. A sound chat is returned as it is.

    `runs`: the format takes messages of one side that follow one another for one turn.
    """
    if chat.kinds.isdisjoint((ToolCall, ToolResult)) or has_paired_results(chat.messages, runs=runs):
        return chat
    messages, repairs = pair(chat.messages, runs=runs)
    for repair in repairs:
        path = repair.param if _counts_alike(chat) else client_name_of(chat, "messages")
        target.note_dropped(path, repair.message)
    return replace(chat, messages=messages, source=None)


def message_path(chat: Chat, number: int) -> str:
    """Return where the client finds a message: Anthropic's has fewer of them than the canonical language, and an item
    of the Responses format may be a part of one."""
    client = client_of(chat)
    if client is not None and client.instructions_field is not None and chat.messages[number].role == "system":
        return client.instructions_field
    return f"messages[{number}]" if _counts_alike(chat) else client_name_of(chat, "messages")


def note_generated_images(chat: Chat, target: Target) -> None:
    """Note that images in earlier answers are not sent, once."""
    if Image not in chat.kinds:
        return
    for number, message in enumerate(chat.messages):
        if message.role == "assistant" and any(isinstance(part, Image) for part in message.parts):
            target.note_dropped(f"{message_path(chat, number)}.images", "images in earlier answers are not taken back")
            return


def content_path(chat: Chat, place: str) -> str:
    """Return where the client finds the content of the message at `place`."""
    client = client_of(chat)
    return f"{place}.{'content' if client is None else client.content_field}"


def _thinking_field(chat: Chat) -> str:
    client = client_of(chat)
    return "reasoning" if client is None else client.thinking_field


def tool_path(chat: Chat, number: int) -> str:
    """Return where the client finds a tool."""
    client = client_of(chat)
    if client is None or client.tool_path is None:
        return f"tools[{number}]"
    return client.tool_path((chat.tools or [])[number])


def note_unsupported_fields(
    chat: Chat,
    target: Target,
    dialect: str,
    *,
    marks: bool,
    names: bool,
    details: bool,
    thinking: Callable[[Reasoning], bool],
    documents: bool = False,
    written: frozenset[str] = frozenset(),
) -> None:
    """Note what only the client's dialect supports, and is not written in `dialect`: the caller drops it.

    `marks`, `names`, `details`, `thinking` and `documents` say which are written: marks of what to cache, names of
    speakers, how closely images are looked at, which thinking goes back, metadata of documents; `written` names
    fields of parts that are the same in `dialect`. Marks are no loss where a provider caches by itself.
    """
    if chat.is_simple_text:
        return
    foreign = chat.dialect != dialect
    if foreign:
        _refuse_essential(chat, dialect)
        client = client_of(chat)
        partly_read = {} if client is None else client.partly_read_fields
        for field, value in (chat.extra or {}).items():
            _note_field(field, value, target, partly_read.get(field) or _PARTLY_READ.get(field))
        if chat.betas:
            note_dropped(chat, target, "betas", f"previews of another format: {', '.join(chat.betas)[:200]}")
    if chat.is_simple_text:
        return
    walk = _Walk(chat, target, foreign=foreign, details=not details, thinking=thinking)
    walk.marks = not marks and not target.facts.get("prompt_cache")
    walk.documents = not documents
    walk.written = written
    for number, message in enumerate(chat.messages):
        walk.look(message, number, names=not names)
    for number, tool in enumerate(chat.tools or ()):
        walk.look_at_tool(tool, tool_path(chat, number))


def _refuse_essential(chat: Chat, dialect: str) -> None:
    """Raise InvalidRequest for what only the client's format has and the answer depends on; it is named."""
    client = client_of(chat)
    essential = frozenset[str]() if client is None else client.essential_fields
    for name in essential & (chat.extra or {}).keys():
        raise unsupported_feature(chat, name, f"{name} is not available from this model's provider")
    config = (chat.extra or {}).get("generationConfig")
    if isinstance(config, dict) and (form := config.get("responseMimeType")) is not None:
        why = f"Answers of the type {str(form)[:_MAX_KIND]} are not available from this model's provider"
        raise unsupported_feature(chat, "response_format", why)
    for number, tool in enumerate(chat.tools or ()):
        if isinstance(tool, OpaqueTool) and tool.dialect != dialect and (kind := kind_of(tool.data)) != _CUSTOM:
            place = tool_path(chat, number)
            raise unsupported_feature(chat, place, f"{kind} is a tool that this model's provider does not have")


def kind_of(data: Any) -> str:
    """Return what the maker of a tool, or of a block, calls its kind: its type, or, at Google, its only field."""
    kind = data.get("type") or next(iter(data), "") if isinstance(data, dict) else ""
    return str(kind)[:_MAX_KIND]


def _note_field(field: str, value: Any, target: Target, unread: Callable[[Record], Iterator[str]] | None) -> None:
    if field in _TOOLS_ELSEWHERE and value:
        # Without its tools the model would be another one.
        raise InvalidRequest(
            f"{field}: only models that are called in Anthropic's format can use them",
            code="unsupported_feature",
            param=field,
        )
    if unread is None or not isinstance(value, dict):
        target.note_dropped(field, "a field that is not known to this model's provider")
        return
    for name in unread(value):
        target.note_dropped(name, "a field that is not known to this model's provider")


def _counts_alike(chat: Chat) -> bool:
    """Return whether the client counts messages as the canonical language does."""
    client = client_of(chat)
    return client is None or client.counts_messages_alike


class _Walk:
    """A look at every message and tool; of each kind of loss the first place is noted."""

    def __init__(
        self, chat: Chat, target: Target, *, foreign: bool, details: bool, thinking: Callable[[Reasoning], bool]
    ) -> None:
        self.marks = False
        self.documents = True
        self.written: frozenset[str] = frozenset()
        self._chat = chat
        self._target = target
        self._foreign = foreign
        self._details = details
        self._thinking = thinking
        self._placed = _counts_alike(chat)
        self._noted: set[str] = set()

    def look(self, message: Message, number: int, *, names: bool) -> None:
        """Look at one message."""
        place = message_path(self._chat, number)
        if names and message.name is not None:
            self._note(place, "name", "names of speakers are not known to this model's provider")
        if message.extra and self._foreign:
            self._look_at_fields(place, message.extra)
        shift = 0
        if Reasoning in self._chat.kinds:
            thoughts = [part for part in message.parts if isinstance(part, Reasoning)]
            if not all(self._thinking(part) for part in thoughts):
                name = (
                    _thinking_field(self._chat) if self._placed else content_path(self._chat, place).rpartition(".")[2]
                )
                self._note(place, name, "thinking that this provider does not take back")
            shift = len(thoughts)
        for at, part in enumerate(message.parts):
            if type(part) is Text and part.cache is None and part.extra is None:
                # Plain text is always written whole.
                continue
            inner = [part, *part.parts] if isinstance(part, ToolResult) else [part]
            where = content_path(self._chat, place) + (f"[{at - shift}]" if self._placed else "")
            for one in inner:
                self._look_at_part(one, where)

    def look_at_tool(self, tool: Any, place: str) -> None:
        """Look at one tool."""
        self._look_at_mark(tool, place)
        extra = tool.extra
        if extra and self._foreign and not isinstance(tool, OpaqueTool):
            self._look_at_fields(place, extra)

    def _look_at_part(self, part: Part, place: str) -> None:
        self._look_at_mark(part, place)
        if self._details and isinstance(part, Image) and part.detail not in (None, "auto"):
            self._note(place, "image_url.detail", "how closely an image is looked at cannot be said")
        if not part.extra or not self._foreign or isinstance(part, Reasoning):
            return
        if isinstance(part, File):
            self._look_at_document(place, part.extra)
            return
        # A mark that was read as one is looked at as one.
        understood = self.written | ({_BREAKPOINT} if part.cache is not None else set())
        if isinstance(part, ToolCall | ToolResult):
            if (client := client_of(self._chat)) is not None and client.has_call_items:
                place = place.removesuffix(".content")
            self._look_at_call(place, part.extra)
            understood |= {"async", *_OWN_CALLS}
        self._look_at_fields(place, {name: it for name, it in part.extra.items() if name not in understood})

    def _look_at_call(self, place: str, extra: Record) -> None:
        """Look at who made a call, for a model of another format it is as if it had been the model itself; and at what
        Google's clients say of a call or of its result beyond what every format has."""
        caller = extra.get("caller")
        if isinstance(caller, dict) and caller.get("type") != _DIRECT:
            self._note(place, "caller", "programs that call tools are not known to this model's provider")
        if extra.get("async") is True:
            self._note(place, "async", "calls that an answer does not wait for are not known to this model's provider")
        for kind in _OWN_CALLS:
            if isinstance(own := extra.get(kind), dict):
                self._look_at_fields(f"{place}.{kind}", own)

    def _look_at_document(self, place: str, extra: Record) -> None:
        if not self.documents:
            self._look_at_fields(place, {name: value for name, value in extra.items() if name != "context"})
            return
        if wants_citations(extra):
            self._note(place, "citations", "documents are not cited by this model's provider")
        self._look_at_fields(place, extra)

    def _look_at_mark(self, piece: Piece, place: str) -> None:
        if self.marks and piece.cache is not None:
            self._note(place, "cache_control", "marks of what to cache are not known to this model's provider")

    def _look_at_fields(self, place: str, extra: Record) -> None:
        for name in extra:
            if name not in _ECHOED:
                self._note(place, name, "a field that is not known to this model's provider")

    def _note(self, place: str, name: str, why: str) -> None:
        if name not in self._noted:
            self._noted.add(name)
            self._target.note_dropped(f"{place}.{name}", why)
