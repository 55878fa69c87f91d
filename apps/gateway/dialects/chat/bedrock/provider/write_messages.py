"""Bedrock Converse, provider side: writes `system` and `messages`; turns alternate, a user begins, tool results come
first."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Iterable, Iterator
from mimetypes import MimeTypes

from apps.gateway.canonical.chat import (
    Audio,
    CacheMark,
    Chat,
    File,
    Image,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Target,
    Text,
    ToolCall,
    ToolResult,
)
from apps.gateway.dialects.adapting.unsupported_fields import message_path, wants_citations
from apps.gateway.dialects.chat.anthropic.wire import SIGNATURE_FORMAT, read_input
from apps.gateway.dialects.chat.bedrock.provider.read_answer import write_cited_text
from apps.gateway.dialects.chat.bedrock.wire import NAME, Capabilities, refused, write_id
from apps.gateway.dialects.reading.fields import Record, image_type_of
from apps.kernel.errors import InvalidRequest

_DATA_URL = re.compile(r"data:(?P<type>[^;,]*)(?:;[^;,]+)*;base64,", re.IGNORECASE)
_BLANKS = re.compile(r"\s+")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_URL_SAFE = str.maketrans("-_", "+/")

IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/jpg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
VIDEOS = {
    "video/mp4": "mp4",
    "video/webm": "webm",
    "video/quicktime": "mov",
    "video/x-matroska": "mkv",
    "video/x-flv": "flv",
    "video/mpeg": "mpeg",
    "video/x-ms-wmv": "wmv",
    "video/3gpp": "three_gp",
}
DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/markdown": "md",
}
AUDIO_FORMATS = frozenset(
    {"mp3", "opus", "wav", "aac", "flac", "mp4", "ogg", "mkv", "m4a", "mpeg", "mpga", "pcm", "webm"}
)
_AUDIO_FORMAT_NAMES = {"pcm16": "pcm", "x-wav": "wav"}
_TYPES = MimeTypes()
for _type, _format in (VIDEOS | DOCUMENTS | {"image/webp": "webp", "video/x-flv": "flv", "video/3gpp": "3gp"}).items():
    _TYPES.add_type(_type, f".{_format}")
# Characters that a document's name may not have, and its maximum length.
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9()\[\]\s-]+")
_MAX_NAME_LENGTH = 200
_USUAL_NAME = "document"


class Documents:
    """The names of the documents of a request: each has one of its own."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def name(self, filename: str | None) -> str:
        """Return a name for a document, as near to its file's as Bedrock allows."""
        bare, dot, ending = (filename or "").rpartition(".")
        stem = bare if dot and len(ending) <= 5 else filename or ""
        clean = " ".join(_NOT_IN_NAMES.sub(" ", stem).split())[: _MAX_NAME_LENGTH - 8].strip() or _USUAL_NAME
        name, number = clean, 1
        while name in self._taken:
            number += 1
            name = f"{clean} {number}"
        self._taken.add(name)
        return name


def write_image(image: Image, at: str) -> Record:
    """Return an image; `at` is the client's field. Raises InvalidRequest for an address, or for no image."""
    media_type, data = _split(image.url, at)
    return _image(media_type, data, at)


def write_audio(audio: Audio, at: str) -> Record:
    """Return audio. Raises InvalidRequest for a format that Bedrock does not have."""
    word = _AUDIO_FORMAT_NAMES.get(audio.format, audio.format)
    if word not in AUDIO_FORMATS:
        raise refused(f"{at}: this model's provider takes no audio as {audio.format[:32]}", at)
    return {"audio": {"format": word, "source": {"bytes": _clean(audio.data, at)}}}


def write_file(file: File, documents: Documents, at: str) -> Record:
    """Return a document; an image or video as what it is. Raises InvalidRequest for one that is not there in full."""
    if file.data is None:
        raise refused(f"{at}: this model's provider takes the bytes of a file, not its address or id", at)
    media_type, data = file.media_type, file.data
    if data[:5].lower() == "data:":
        media_type, data = _split(data, at)
    else:
        data = _clean(data, at)
    head = _head(data)
    media_type = (media_type or (_TYPES.guess_type(file.filename)[0] if file.filename else None) or "").lower()
    if media_type.startswith("image/") or _sniffed(head):
        return _image(media_type, data, at)
    if media_type in VIDEOS:
        return {"video": {"format": VIDEOS[media_type], "source": {"bytes": data}}}
    word = "pdf" if head.startswith(b"%PDF") else DOCUMENTS.get(media_type)
    if word is None and (media_type.startswith("text/") or media_type in {"application/json", "application/xml"}):
        word = "txt"
    if word is None:
        raise refused(f"{at}: this model's provider takes no files of the type {media_type[:64] or 'unknown'}", at)
    return {"document": {"format": word, "name": documents.name(file.filename), "source": {"bytes": data}}}


def _image(media_type: str, data: str, at: str) -> Record:
    word = _sniffed(_head(data)) or IMAGES.get(media_type)
    if word is None:
        raise refused(f"{at}: this model's provider takes no images of the type {media_type[:64] or 'unknown'}", at)
    return {"image": {"format": word, "source": {"bytes": data}}}


def _split(url: str, at: str) -> tuple[str, str]:
    """Return the media type and the base64 of a data URL. Raises InvalidRequest for any other URL."""
    if url[:5].lower() != "data:":
        raise refused(f"{at}: this model's provider takes the bytes of an image or file, not its address", at)
    head = _DATA_URL.match(url)
    if head is None:
        raise _malformed(at)
    return head["type"].lower(), _clean(url[head.end() :], at)


def _clean(data: str, at: str) -> str:
    """Return base64 as Bedrock takes it: without blanks, in the usual alphabet."""
    if not _BASE64.fullmatch(data):
        data = _BLANKS.sub("", data).translate(_URL_SAFE)
        if not _BASE64.fullmatch(data):
            raise _malformed(at)
    return data + "=" * (-len(data) % 4)


def _malformed(at: str) -> InvalidRequest:
    return InvalidRequest(f"{at}: must hold base64, with data:<media type>;base64, before it", param=at)


def _head(data: str) -> bytes:
    """Return the first bytes of what base64 holds."""
    try:
        return b64decode(data[:32])
    except Error:
        return b""


def _sniffed(head: bytes) -> str | None:
    """Return what kind of image the bytes begin, None when of no kind that Bedrock takes."""
    media_type = image_type_of(head)
    return None if media_type is None else media_type.removeprefix("image/")


EMPTY_TEXT: Record = {"text": "."}


class Blocks:
    """Writes the blocks of one request: it knows the model, and the names that its documents have so far."""

    def __init__(self, target: Target, capabilities: Capabilities) -> None:
        self._target = target
        self._capabilities = capabilities
        self._documents = Documents()

    def write(self, part: Part, role: str, at: str) -> list[Record]:
        """Return a part's blocks; none for what says nothing here. `at` is the client's field.

        Raises InvalidRequest for what the format has no form for.
        """
        block = self._block(part, role, at)
        if block is None:
            return []
        return [block, *self.mark(part.cache, block, at)]

    def mark(self, mark: CacheMark | None, after: Record, at: str, word: str = "cache_points") -> list[Record]:
        """Return a cache mark to stand after a block; none where the model takes none there, which is a loss."""
        if mark is None:
            return []
        takes = self._capabilities.takes
        if word not in takes:
            self._target.note_dropped(f"{at}.cache_control", "this model does not cache up to here")
            return []
        if "video" in after or ("document" in after and after["document"]["format"] != "pdf"):
            self._target.note_dropped(
                f"{at}.cache_control", "this model's provider takes no cache mark behind such a file"
            )
            return []
        point: Record = {"type": "default"}
        if mark.ttl == "1h" and "cache_1h" in takes:
            point["ttl"] = mark.ttl
        elif mark.ttl not in (None, "5m"):
            self._target.note_dropped(f"{at}.cache_control.ttl", "this model's cache is kept for five minutes")
        return [{"cachePoint": point}]

    def _block(self, part: Part, role: str, at: str) -> Record | None:
        match part:
            case Text() | Refusal():
                return self._text(part, role) if part.text.strip() else None
            case Reasoning():
                return self._thinking(part)
            case ToolCall():
                call = {"toolUseId": write_id(part.id), "name": part.name}
                return {"toolUse": {**call, "input": read_input(part.arguments)}}
            case ToolResult():
                return {"toolResult": self._result(part, at)}
            case Image() if role == "assistant":
                self._target.note_dropped(at, "this model's provider does not take back images that a model made")
                return None
            case Image():
                return write_image(part, at)
            case Audio():
                return write_audio(part, at)
            case File():
                return self._file(part, at)
            case Opaque() if part.dialect == NAME:
                return dict(part.data)
            case _:
                raise refused(f"{at}: holds content that this model's provider has no form for", at)

    def _text(self, part: Text | Refusal, role: str) -> Record:
        """Return text; that of an earlier answer with its citations of documents, to a model that cites."""
        cited = None
        if part.extra and role == "assistant" and "citations" in self._capabilities.takes:
            cited = write_cited_text(part.text, part.extra.get("citations"))
        return {"text": part.text} if cited is None else cited

    def _file(self, file: File, at: str) -> Record:
        """Return a file; of a document also what it is about, and that the answer is to cite it."""
        wire = write_file(file, self._documents, at)
        document, extra = wire.get("document"), file.extra or {}
        if document is None:
            return wire
        if isinstance(about := extra.get("context"), str) and about:
            document["context"] = about
        if wants_citations(extra):
            if "citations" in self._capabilities.takes:
                document["citations"] = {"enabled": True}
            else:
                self._target.note_dropped(f"{at}.citations", "this model does not cite documents")
        return wire

    def _thinking(self, part: Reasoning) -> Record | None:
        """Return thinking under the signature of Claude's maker, which is valid on Bedrock and elsewhere alike."""
        if not self._capabilities.signs_thinking or part.format not in (None, SIGNATURE_FORMAT):
            return None
        if part.data is not None:
            if part.format is None:
                return None
            return {"reasoningContent": {"redactedContent": b64encode(part.data.encode()).decode()}}
        if part.signature is None:
            return None
        return {"reasoningContent": {"reasoningText": {"text": part.text, "signature": part.signature}}}

    def _result(self, result: ToolResult, at: str) -> Record:
        """Return what a tool answered. A result that says nothing says "."; failure is said in words where the model
        knows no status."""
        content: list[Record] = []
        for part in result.parts:
            if isinstance(part, Audio):
                raise refused(f"{at}: a tool's answer cannot hold audio for this model's provider", at)
            if part.cache is not None:
                self._target.note_dropped(f"{at}.cache_control", "this provider takes no cache mark inside of a result")
            block = self._block(part, "tool", at)
            if block is not None:
                content.append(block)
        wire: Record = {"toolUseId": write_id(result.call_id), "content": content or [EMPTY_TEXT]}
        if result.is_error:
            if self._capabilities.result_status:
                wire["status"] = "error"
            else:
                wire["content"] = [{"text": "The tool failed:"}, *content]
        return wire


_INSTRUCTIONS = frozenset({"system", "developer"})
_FILES = ("document", "video")


def write_messages(chat: Chat, blocks: Blocks, capabilities: Capabilities) -> tuple[list[Record], list[Record]]:
    """Return the instructions that the conversation begins with, and its turns. Raises InvalidRequest.

    Neighbours of one role are one turn; who says nothing says ".". Instructions in mid-conversation stay where they
    are, as marked text of the user's. A conversation of nothing but instructions is followed by a user's ".".
    """
    messages = chat.messages
    begins = next(
        (at for at, it in enumerate(messages) if it.role not in _INSTRUCTIONS or not _is_text(it)), len(messages)
    )
    places = [message_path(chat, number) for number in range(len(messages))]
    system = [
        block
        for message, place in zip(messages[:begins], places[:begins], strict=True)
        for block in _blocks(message, place, "system", blocks)
    ]
    turns: list[Record] = []
    for message, place in zip(messages[begins:], places[begins:], strict=True):
        role, content = _turn(message, place, blocks)
        if not content:
            continue
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += content
        else:
            turns.append({"role": role, "content": content})
    if not turns or turns[0]["role"] != "user":
        turns.insert(0, {"role": "user", "content": [EMPTY_TEXT]})
    return system, [split for turn in turns for split in _in_order(turn, capabilities)]


def _is_text(message: Message) -> bool:
    return all(isinstance(part, Text) for part in message.parts)


def _turn(message: Message, place: str, blocks: Blocks) -> tuple[str, list[Record]]:
    """Return the role that speaks, and what it says."""
    if message.role == "assistant":
        return "assistant", _blocks(message, place, "assistant", blocks)
    if message.role not in _INSTRUCTIONS:
        return "user", _blocks(message, place, message.role, blocks) or [EMPTY_TEXT]
    if not _is_text(message):
        raise refused("Instructions can only be text for this model's provider", place)
    content = _blocks(message, place, "system", blocks)
    texts = [block for block in content if "text" in block]
    if texts:
        texts[0]["text"] = f"<system>\n{texts[0]['text']}"
        texts[-1]["text"] = f"{texts[-1]['text']}\n</system>"
    return "user", content


def _blocks(message: Message, place: str, role: str, blocks: Blocks) -> list[Record]:
    """Return what a message says; each part under the name that the client has for its place."""
    counted = place != "messages"
    thoughts = sum(isinstance(part, Reasoning) for part in message.parts)
    return [
        block
        for at, part in enumerate(message.parts)
        for block in blocks.write(part, role, f"{place}.content[{at - thoughts}]" if counted else f"{place}.content")
    ]


def _in_order(turn: Record, capabilities: Capabilities) -> Iterator[Record]:
    """Yield a turn, what tools answered first. A user's is in two where the model cannot hear both at once."""
    if turn["role"] == "assistant":
        yield turn
        return
    results, others = _apart(turn["content"])
    if results and _must_part(others, capabilities):
        yield {"role": "user", "content": results}
        yield {"role": "assistant", "content": [EMPTY_TEXT]}
        results = []
    if any("document" in block for block in others) and not any("text" in block for block in others):
        others.append(EMPTY_TEXT)
    yield {"role": "user", "content": results + others}


def _apart(content: Iterable[Record]) -> tuple[list[Record], list[Record]]:
    """Return the results, and everything else; a cache mark stays with what it stands behind."""
    results: list[Record] = []
    others: list[Record] = []
    latest = others
    for block in content:
        if "cachePoint" not in block:
            latest = results if "toolResult" in block else others
        latest.append(block)
    return results, others


def _must_part(others: list[Record], capabilities: Capabilities) -> bool:
    """Return whether what a user says cannot stand beside what tools answered."""
    if capabilities.tool_results == "alone":
        return bool(others)
    return capabilities.tool_results == "without_files" and any(kind in block for block in others for kind in _FILES)
