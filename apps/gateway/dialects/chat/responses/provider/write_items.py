"""OpenAI Responses, provider side: writes `input` items: messages, reasoning, calls and tool results.

A turn of the model is several items. Thinking goes back to its maker alone.
"""

from __future__ import annotations

from hashlib import sha256
from itertools import groupby
from mimetypes import guess_extension, guess_type
from typing import Any

from apps.gateway.canonical.chat import (
    Audio,
    Chat,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Piece,
    Reasoning,
    Refusal,
    Target,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.dialects.adapting.thinking import split_signature
from apps.gateway.dialects.adapting.unsupported_fields import message_path, unsupported_feature
from apps.gateway.dialects.chat.responses.provider.drop_unsupported_fields import is_returnable
from apps.gateway.dialects.chat.responses.wire import (
    BREAKPOINT,
    EXPLICIT,
    INSTRUCTIONS,
    MAX_ID,
    NAME,
    SIGNATURE_FORMAT,
    UNSIGNED_FORMAT,
    Capabilities,
    without_none,
)
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import InvalidRequest

_DIGITS = 40


class CallIds:
    """Which id each of the client's calls has here. An id that fits stays as it is; a signature in it is left out."""

    def __init__(self) -> None:
        self._ours: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, name: str) -> str:
        """Return the id for a call that the client calls `name`."""
        found = self._ours.get(name)
        if found is None:
            bare = split_signature(name)[0] or name
            found = bare if len(bare) <= MAX_ID and bare not in self._taken else shortened(name, "call_")
            self._ours[name] = found
            self._taken.add(found)
        return found


def shortened(name: str, prefix: str) -> str:
    """Return an id that stands for one that is too long."""
    return prefix + sha256(name.encode("utf-8", "replace")).hexdigest()[:_DIGITS]


_AUDIO_FORMATS = frozenset({"wav", "mp3"})
_DATA = "data:"
_CORRECT = {"data:image/jpg;": "data:image/jpeg;"}


def write_content(parts: list[Part], capabilities: Capabilities, at: str, *, own: bool = False) -> str | list[Record]:
    """Return the content of a message; plain text alone is a string. `at` is where it lies in the client's request,
    `own` whether that is of this format, so that what its parts say beyond the canonical language is kept.

    Raises InvalidRequest for what the format has no words for.
    """
    wire = [{**_write_part(part, capabilities, at), **_beside(part, own=own)} for part in parts]
    if not wire:
        return ""
    if len(wire) == 1 and wire[0].keys() == {"type", "text"}:
        return str(wire[0]["text"])
    return wire


def _beside(part: Part, *, own: bool) -> Record:
    """Return what a part says beyond the canonical language; of OpenAI's other format, its mark of what to cache."""
    extra = part.extra or {}
    if own:
        return extra if part.cache is None else {BREAKPOINT: dict(EXPLICIT), **extra}
    return {BREAKPOINT: extra[BREAKPOINT]} if isinstance(extra.get(BREAKPOINT), dict) else {}


def _write_part(part: Part, capabilities: Capabilities, at: str) -> Record:
    match part:
        case Text() | Refusal():
            wire: Record = {"type": "input_text", "text": part.text}
        case Image():
            wire = {"type": "input_image", "image_url": _corrected(part.url)}
            if not capabilities.strict:
                wire["detail"] = part.detail or "auto"
        case Audio():
            wire = _write_audio(part, at)
        case File():
            wire = _write_file(part)
        case Opaque(dialect=dialect, data=data) if dialect == NAME:
            return dict(data)
        case _:
            raise InvalidRequest(
                f"{at}: it holds content that this model's provider has no form for",
                code="unsupported_feature",
                param=at,
            )
    return _with_cache_mark(wire, part, capabilities)


def _with_cache_mark(wire: Record, piece: Piece, capabilities: Capabilities) -> Record:
    """Add a part's cache mark where the model takes those; prompts are cached without one, too."""
    if piece.cache is not None and BREAKPOINT in capabilities.takes:
        wire[BREAKPOINT] = dict(EXPLICIT)
    return wire


def _write_audio(audio: Audio, at: str) -> Record:
    if audio.format not in _AUDIO_FORMATS:
        raise InvalidRequest(
            f"{at}: this model's provider takes audio as wav or mp3", code="unsupported_feature", param=at
        )
    return {"type": "input_audio", "input_audio": {"data": audio.data, "format": audio.format}}


def _write_file(file: File) -> Record:
    """Return a document. Data that is sent along needs a media type and a name: PDF is the default."""
    if file.data is None:
        return {
            "type": "input_file",
            **without_none(file_url=file.url, file_id=file.file_id if file.url is None else None),
        }
    data, known = file.data, file.media_type or (guess_type(file.filename)[0] if file.filename else None)
    if not data.startswith(_DATA):
        data = f"data:{known or 'application/pdf'};base64,{data}"
    media_type = data[len(_DATA) :].partition(",")[0].partition(";")[0]
    name = file.filename or f"document{guess_extension(media_type) or '.pdf'}"
    return {"type": "input_file", "filename": name, "file_data": data}


def _corrected(url: str) -> str:
    """Return an image's address; a data URL under the name that its media type really has."""
    for wrong, right in _CORRECT.items():
        if url.startswith(wrong):
            return right + url[len(wrong) :]
    return url


# The format in which assistants' messages have OpenAI's `annotations` beside them.
_OPENAI = "openai"


def write_instructions(chat: Chat) -> Record:
    """Return the field for the instructions that a client of this format has beside its input."""
    for message in chat.messages:
        if _is_instructions(message, chat):
            return {INSTRUCTIONS: "".join(part.text for part in message.parts if isinstance(part, Text))}
    return {}


def _is_instructions(message: Message, chat: Chat) -> bool:
    return chat.dialect == NAME and bool(message.extra) and INSTRUCTIONS in (message.extra or ())


def write_input(chat: Chat, capabilities: Capabilities, target: Target) -> list[Record]:
    """Return all items. Raises InvalidRequest for what the format has no words for."""
    return _Input(chat, capabilities, target).items


class _Input:
    """The items so far, the calls' ids, and which calls were of custom tools."""

    def __init__(self, chat: Chat, capabilities: Capabilities, target: Target) -> None:
        self.items: list[Record] = []
        self._chat = chat
        self._capabilities = capabilities
        self._target = target
        self._openai = chat.dialect == _OPENAI
        self._own = chat.dialect == NAME
        self._ids = CallIds()
        self._custom: set[str] = set()
        for number, message in enumerate(chat.messages):
            self._add(message, number)

    def _add(self, message: Message, number: int) -> None:
        at = message_path(self._chat, number)
        if _is_instructions(message, self._chat):
            return
        if message.role == "assistant":
            self._add_answer(message, number, at)
            return
        others: list[Part] = [part for part in message.parts if not isinstance(part, ToolResult)]
        for part in message.parts:
            if isinstance(part, ToolResult):
                self.items.append(self._result(part, at))
        if others and all(map(_is_item, others)):
            self.items += [dict(part.data) for part in others if isinstance(part, Opaque)]
        elif others or message.role != "tool":
            role = message.role
            if role == "developer" and not self._capabilities.developer_role:
                role = "system"
            elif role == "tool":
                role = "user"
            self.items.append({"role": role, "content": write_content(others, self._capabilities, at, own=self._own)})

    def _result(self, result: ToolResult, at: str) -> Record:
        parts: list[Part] = list(result.parts)
        if result.is_error:
            parts = _marked_as_error(parts)
        call_id = self._ids.of(result.call_id)
        kind = "custom_tool_call_output" if call_id in self._custom else "function_call_output"
        own = (result.extra or {}) if self._own else {}
        return {
            "type": kind,
            "call_id": call_id,
            **own,
            "output": write_content(parts, self._capabilities, at, own=self._own),
        }

    def _add_answer(self, message: Message, number: int, at: str) -> None:
        """Add what the model said, in the order in which it said it."""
        calls = any(isinstance(part, ToolCall) for part in message.parts)
        before = len(self.items)
        for (kind, _), group in groupby(message.parts, self._kind_and_message):
            parts: list[Any] = list(group)
            if kind == "thinking":
                self.items += [] if self._capabilities.strict else _thinking(parts)
            elif kind == "call":
                self.items += [self._call(part) for part in parts]
            elif kind == "image":
                self._target.note_dropped(f"{at}.images", "images in earlier answers are not taken back")
            elif kind == "own":
                self.items += [dict(part.data) for part in parts if not self._is_lost(part, at)]
            else:
                self._write_text(message, parts, number, at, calls=calls)
        if len(self.items) == before:
            self.items.append({"role": "assistant", "content": ""})

    def _is_lost(self, part: Opaque, at: str) -> bool:
        """Return whether an item is dropped, with a note: thinking that is not kept, or an unaccepted item."""
        if part.data.get("type") == "item_reference":
            self._target.note_dropped(at, "an item of reasoning that is not stored")
            return True
        if self._capabilities.strict:
            self._target.note_dropped(at, "this model's provider takes back messages and calls alone")
        return self._capabilities.strict

    def _call(self, call: ToolCall) -> Record:
        """Return a call; no arguments at all are an empty object."""
        call_id, extra = self._ids.of(call.id), call.extra or {}
        if extra.get("type") == "custom":
            self._custom.add(call_id)
            wire = {"type": "custom_tool_call", "call_id": call_id, "name": call.name, "input": call.arguments}
            return {**wire, **self._beside(call)}
        wire = {"type": "function_call", "call_id": call_id, "name": call.name, **self._beside(call)}
        return {**wire, "arguments": call.arguments if call.arguments.strip() else "{}"}

    def _beside(self, call: ToolCall) -> Record:
        """Return what a client of this format says beside a call; of one of OpenAI's other format, the namespace."""
        if self._own:
            return {name: value for name, value in (call.extra or {}).items() if name != "type"}
        namespace = (call.extra or {}).get("namespace")
        return {"namespace": namespace} if self._openai and isinstance(namespace, str) else {}

    def _kind_and_message(self, part: Part) -> tuple[str, str | None]:
        """Return which kind of item a part belongs to, and which message of a client's of this format it was in."""
        kind = _kind(part)
        if kind != "message" or not self._own or not part.extra:
            return kind, None
        return kind, str([part.extra.get(name) for name in ("id", "phase")])

    def _write_text(self, message: Message, parts: list[Part], number: int, at: str, *, calls: bool) -> None:
        """Add text and words of refusal. Raises InvalidRequest for anything else."""
        texts = [part for part in parts if isinstance(part, Text | Refusal)]
        if len(texts) != len(parts):
            raise unsupported_feature(
                self._chat, "messages", "A message holds content that this model's provider has no form for"
            )
        text = "".join(part.text for part in texts if isinstance(part, Text))
        citations = _citations(message) if self._openai else []
        phase: Record = {}
        if "phase" in self._capabilities.takes:
            phase = {"phase": "commentary" if calls else "final_answer"}
        if self._own:
            citations = [note for part in texts for note in (part.extra or {}).get("annotations", ())]
            stated = (texts[0].extra or {}).get("phase")
            phase = {"phase": stated} if stated is not None and phase else {}
        if self._capabilities.strict:
            self.items.append({"role": "assistant", "content": "".join(part.text for part in texts)})
        elif citations or any(isinstance(part, Refusal) for part in texts):
            place = len(self.items) if self._own else number
            self.items.append({**_whole_message(texts, text, citations, place), **phase})
        elif text:
            self.items.append({"role": "assistant", "content": text, **phase})


def _is_item(part: Part) -> bool:
    """Return whether a part is an item of its own, and no part of a message."""
    return isinstance(part, Opaque) and part.dialect == NAME and not str(part.data.get("type")).startswith("input_")


def _kind(part: Part) -> str:
    """Return which kind of item a part of an answer belongs to."""
    match part:
        case Reasoning():
            return "thinking"
        case ToolCall():
            return "call"
        case Image():
            return "image"
        case Opaque(dialect=dialect) if dialect == NAME:
            return "own"
        case _:
            return "message"


def _marked_as_error(parts: list[Part]) -> list[Part]:
    """Return what a tool answered, with the word in front that tells that it failed: there is no field for it."""
    if parts and isinstance(first := parts[0], Text):
        return [Text(text=f"Error: {first.text}"), *parts[1:]]
    return [Text(text="Error:"), *parts]


def _thinking(blocks: list[Reasoning]) -> list[Record]:
    """Return the reasoning items for blocks of thinking: those of one id that its maker can verify or read.

    A summary alone is left out: its maker would look for the thinking and not find it.
    """
    items: list[Record] = []
    ours = [block for block in blocks if is_returnable(block)]
    for name, group in groupby(ours, lambda block: block.id or ""):
        parts = list(group)
        wire: Record = {
            "type": "reasoning",
            "id": name if len(name) <= MAX_ID else shortened(name, "rs_"),
            "summary": [
                {"type": "summary_text", "text": part.text}
                for part in parts
                if part.text and part.format == SIGNATURE_FORMAT
            ],
        }
        texts = [part.text for part in parts if part.text and part.format == UNSIGNED_FORMAT]
        signed = next((part.data for part in parts if part.data is not None), None)
        if texts:
            wire["content"] = [{"type": "reasoning_text", "text": text} for text in texts]
        if signed is not None:
            wire["encrypted_content"] = signed
        if texts or signed is not None:
            items.append(wire)
    return items


def _whole_message(texts: list[Any], text: str, citations: list[Record], number: int) -> Record:
    """Return a message in the form in which the model itself had said it."""
    content: list[Record] = [{"type": "output_text", "text": text, "annotations": citations}] if text else []
    content += [{"type": "refusal", "refusal": part.text} for part in texts if isinstance(part, Refusal)]
    return {
        "type": "message",
        "id": f"msg_{number}",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def _citations(message: Message) -> list[Record]:
    """Return the citations that an OpenAI client sends back with an answer, as this format writes them."""
    notes = (message.extra or {}).get("annotations")
    found: list[Record] = []
    for note in notes if isinstance(notes, list) else ():
        page = note.get("url_citation") if isinstance(note, dict) else None
        if not isinstance(page, dict):
            continue
        url, title, start, end = (page.get(name) for name in ("url", "title", "start_index", "end_index"))
        if isinstance(url, str) and isinstance(start, int) and isinstance(end, int):
            place = {"url": url, "title": title if isinstance(title, str) else ""}
            found.append({"type": "url_citation", "start_index": start, "end_index": end, **place})
    return found
