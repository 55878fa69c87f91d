"""OpenAI Responses, client side: reads input items into canonical messages.

The model's items of one turn (thinking, text, calls) are one message; each tool result is a message, too. Items that
only this format has travel as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from apps.gateway.canonical.chat import (
    Audio,
    CacheMark,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.dialects.adapting.foreign_blocks import CONFIGURATION_UPDATE
from apps.gateway.dialects.chat.openai.wire import EFFORTS
from apps.gateway.dialects.chat.responses.client import (
    ReasoningCipher,
    decrypt_blocks,
    is_encrypted_here,
)
from apps.gateway.dialects.chat.responses.wire import (
    BREAKPOINT,
    EXPLICIT,
    NAME,
    REASONING_ID,
    SIGNATURE_FORMAT,
    UNSIGNED_FORMAT,
    encode,
    is_hosted_call,
)
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Record,
    boolean,
    filled_string,
    list_of,
    one_of,
    optional,
    record,
    required,
    string,
)

MAX_PARTS: Final = 10_000
_PLAIN_TEXT: Final = frozenset({"type", "text"})


def read_content(value: Any) -> list[Part]:
    """Read the content of a message: a string, or parts."""
    if isinstance(value, str):
        return [Text(text=value)]
    if isinstance(value, list):
        return _parts(value)
    raise Malformed("must be a string or an array of parts")


def _part(value: Any) -> Part:
    return _read_part_by_type(record(value))


def _rest(wire: Record, *known: str) -> Record | None:
    # A mark with more members is kept whole beside those that were read.
    understood = {BREAKPOINT} if wire.get(BREAKPOINT) == EXPLICIT else set()
    return fields.rest_of(wire, frozenset({"type", *known, *understood}))


def _mark(wire: Record) -> CacheMark | None:
    """Read the mark of what to cache. Where it states how long, that is longer than the shortest time of others: theirs
    is the longer of their two."""
    mark = optional(wire, BREAKPOINT, record)
    if mark is None:
        return None
    return CacheMark(ttl=None if fields.within(BREAKPOINT, _lifetime, mark) is None else "1h")


def _lifetime(mark: Record) -> str | None:
    return optional(mark, "ttl", filled_string)


def _text(wire: Record) -> Text:
    text = required(wire, "text", string)
    if wire.keys() == _PLAIN_TEXT:
        return Text(text=text)
    return Text(text=text, cache=_mark(wire), extra=_rest(wire, "text"))


def _output_text(wire: Record) -> Text:
    """Read a model's text: citations are kept, log probabilities are ignored."""
    notes = [note for note in optional(wire, "annotations", _records) or () if note]
    extra = {**(_rest(wire, "text", "annotations", "logprobs") or {}), **({"annotations": notes} if notes else {})}
    return Text(text=required(wire, "text", string), extra=extra or None)


def _refusal(wire: Record) -> Refusal:
    return Refusal(text=required(wire, "refusal", string), extra=_rest(wire, "refusal"))


def _image(wire: Record) -> Part:
    if wire.get("image_url") is None and optional(wire, "file_id", filled_string) is not None:
        # Only the provider that keeps the file can find it.
        return Opaque(dialect=NAME, data=wire)
    return Image(
        url=required(wire, "image_url", filled_string),
        detail=optional(wire, "detail", string),
        cache=_mark(wire),
        extra=_rest(wire, "image_url", "detail", "file_id"),
    )


def _audio(wire: Record) -> Audio:
    inner = required(wire, "input_audio", record)
    data, audio_format = fields.within(
        "input_audio", lambda it: [required(it, name, filled_string) for name in ("data", "format")], inner
    )
    return Audio(data=data, format=audio_format, cache=_mark(wire), extra=_rest(wire, "input_audio"))


def _file(wire: Record) -> File:
    data, url, file_id, filename = (
        optional(wire, name, string) for name in ("file_data", "file_url", "file_id", "filename")
    )
    if not (data or url or file_id):
        raise Malformed("Required", "file_data")
    return File(
        data=data,
        url=url,
        file_id=file_id,
        filename=filename,
        cache=_mark(wire),
        extra=_rest(wire, "file_data", "file_url", "file_id", "filename"),
    )


_PARTS: dict[str, Callable[[Record], Part]] = {
    "input_text": _text,
    "output_text": _output_text,
    "text": _text,
    "summary_text": _text,
    "refusal": _refusal,
    "input_image": _image,
    "input_audio": _audio,
    "input_file": _file,
}
_read_part_by_type = fields.pick(_PARTS, "type")
_parts = list_of(_part, MAX_PARTS)
_records = list_of(record, MAX_PARTS)


# Bounds far beyond any model's context.
MAX_ITEMS: Final = 20_000
# Items that a model makes, and that only this format has.
_MODELS_OWN: Final = frozenset(
    {
        *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "computer_call"),
        *("local_shell_call", "shell_call", "apply_patch_call", "mcp_call", "mcp_list_tools", "mcp_approval_request"),
        *("tool_search_call", "compaction", "program", "x_search_call"),
        *("search_results", "fetch_url_results", "people_search_results", "finance_results", "sandbox_results"),
    }
)
# Items that a client answers with, and that only this format has.
_CLIENTS_OWN: Final = frozenset(
    {
        *("computer_call_output", "local_shell_call_output", "shell_call_output", "apply_patch_call_output"),
        *("mcp_approval_response", "tool_search_output", "additional_tools", "program_output", "compaction_trigger"),
        CONFIGURATION_UPDATE,
    }
)


class _Read(NamedTuple):
    """The content of an item: its role and its parts."""

    role: Role
    parts: list[Part]


def read_input(value: Any, cipher: ReasoningCipher | None) -> list[Message]:
    """Read `input`: what the user says, or items. Reasoning that was encrypted by `cipher` is opened."""
    if isinstance(value, str):
        return [Message(role="user", parts=[Text(text=value)])]
    messages: list[Message] = []
    for read in list_of(lambda item: _item(item, cipher), MAX_ITEMS)(value):
        if read.role == "assistant" and messages and _continues_turn(messages[-1], read.parts):
            messages[-1].parts.extend(read.parts)
        else:
            messages.append(Message(role=read.role, parts=read.parts))
    if not messages:
        raise Malformed("must hold at least one item")
    return messages


def _continues_turn(message: Message, parts: list[Part]) -> bool:
    """Return whether what the model did next belongs to the same message: words after words are another one, unless
    calls wait for their results."""
    if message.role != "assistant":
        return False
    words = all(isinstance(part, Text | Refusal) for part in (*message.parts[-1:], *parts))
    return not words or any(isinstance(part, ToolCall) for part in message.parts)


def _item(value: Any, cipher: ReasoningCipher | None) -> _Read:
    wire = record(value)
    kind = optional(wire, "type", string)
    if kind is None and "role" in wire:
        kind = "message"
    if kind == "reasoning":
        return _Read("assistant", list(_reasoning(wire, cipher)))
    if kind == CONFIGURATION_UPDATE:
        optional(wire, "reasoning", _check_effort)
    if kind in _MODELS_OWN or is_hosted_call(wire):
        return _Read("assistant", [Opaque(dialect=NAME, data=wire)])
    if kind in _CLIENTS_OWN:
        return _Read("user", [Opaque(dialect=NAME, data=wire)])
    if kind == "item_reference":
        if required(wire, "id", filled_string).startswith(REASONING_ID):
            # Where no store keeps it, the model thinks again, which is noted.
            return _Read("assistant", [Opaque(dialect=NAME, data=wire)])
        raise Malformed("responses are not stored here: send the item itself", "type")
    return _read_by_type({**wire, "type": kind} if kind is not None else wire)


def _check_effort(value: Any) -> None:
    optional(record(value), "effort", one_of(*EFFORTS))


def _message(wire: Record) -> _Read:
    role: Role = required(wire, "role", _role)
    parts = required(wire, "content", read_content)
    if role != "assistant":
        return _Read(role, parts)
    around = {name: wire[name] for name in ("id", "phase") if isinstance(wire.get(name), str)}
    for part in parts:
        if around and isinstance(part, Text | Refusal):
            part.extra = {**(part.extra or {}), **around}
    return _Read(role, parts)


def _reasoning(wire: Record, cipher: ReasoningCipher | None) -> list[Reasoning]:
    """Read thinking: blocks as their maker gave them, where they travelled encrypted."""
    item_id = optional(wire, "id", string)
    encrypted = optional(wire, "encrypted_content", string)
    thoughts = [
        *(Reasoning(text=text, summary=True, id=item_id, format=SIGNATURE_FORMAT) for text in _texts(wire, "summary")),
        *(Reasoning(text=text, id=item_id, format=UNSIGNED_FORMAT) for text in _texts(wire, "content")),
    ]
    if not encrypted:
        return thoughts
    if not is_encrypted_here(encrypted):
        return [*thoughts, Reasoning(data=encrypted, id=item_id, format=SIGNATURE_FORMAT)]
    blocks = fields.within("encrypted_content", lambda it: decrypt_blocks(it, cipher), encrypted)
    if any(block.text or not (block.format or "").startswith(SIGNATURE_FORMAT) for block in blocks):
        return blocks
    made = blocks[0]
    for block in thoughts:
        # Only the encrypted text says who made the thinking.
        block.id = made.id
        block.format = made.format if block.format == SIGNATURE_FORMAT else block.format
    return [*thoughts, *blocks]


def _texts(wire: Record, name: str) -> list[str]:
    """Read the texts of a summary or of thinking in clear."""
    return optional(wire, name, list_of(lambda part: required(record(part), "text", string), MAX_ITEMS)) or []


def _function_call(wire: Record) -> _Read:
    return _Read("assistant", [_call(wire, _arguments(wire), {})])


def _custom_call(wire: Record) -> _Read:
    return _Read("assistant", [_call(wire, optional(wire, "input", string) or "", {"type": "custom"})])


def _call(wire: Record, arguments: str, extra: Record) -> ToolCall:
    extra = extra | _stated(wire, **_BESIDE_CALLS)
    call_id, name = required(wire, "call_id", filled_string), required(wire, "name", filled_string)
    return ToolCall(id=call_id, name=name, arguments=arguments, extra=extra or None)


def _arguments(wire: Record) -> str:
    """Return the text the model wrote. Clients that send the object instead get it as JSON text."""
    arguments = wire.get("arguments")
    return encode(arguments).decode() if isinstance(arguments, dict) else optional(wire, "arguments", string) or ""


def _output(wire: Record) -> _Read:
    parts = required(wire, "output", read_content)
    extra = _stated(wire, name=string, namespace=string, caller=record)
    result = ToolResult(call_id=required(wire, "call_id", filled_string), parts=parts, extra=extra or None)
    return _Read("tool", [result])


def _stated(wire: Record, **readers: Callable[[Any], Any]) -> Record:
    """Return those of an item's fields that say something, read."""
    read = {name: optional(wire, name, reader) for name, reader in readers.items()}
    return {name: value for name, value in read.items() if value is not None}


# The caller, the model or a program of its, and whether the answer goes on meanwhile.
_BESIDE_CALLS: Final[dict[str, Callable[[Any], Any]]] = {"namespace": string, "caller": record, "async": boolean}
_role = one_of("system", "developer", "user", "assistant")
_ITEMS: dict[str, Callable[[Record], _Read]] = {
    "message": _message,
    "function_call": _function_call,
    "custom_tool_call": _custom_call,
    "function_call_output": _output,
    "custom_tool_call_output": _output,
}
_read_by_type = fields.pick(_ITEMS, "type")
