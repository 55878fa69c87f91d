"""Chat texts: every text and file of a chat that a model will read, by the client's path to it, and how to redact each.

Also collects text of the client's own bytes beyond the understood fields, since the bytes may be sent unchanged.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from apps.gateway.canonical.chat import (
    Audio,
    Chat,
    File,
    FunctionTool,
    Image,
    Opaque,
    OpaqueTool,
    Part,
    Reasoning,
    Refusal,
    Source,
    Text,
    Tool,
    ToolCall,
    ToolResult,
)
from apps.gateway.guard.client_path import UnreadableText
from apps.gateway.guard.documents import AttachedDocument, read_document
from apps.gateway.guard.json_text import (
    EmbeddedFile,
    JsonText,
    Redaction,
    WritePlaceholder,
    apply_redactions,
    encode_json,
    iterate_strings,
    parse_json_text,
    write_fixed,
)
from apps.guardrails.files.document_text import DocumentText, document_text, is_document
from apps.guardrails.files.mime_sniffing import sniff_mime_type
from apps.guardrails.findings.scan_types import DOCUMENT, TOOL_RESULT
from apps.kernel.json_bounds import OutOfBounds

# Members of a request that no model reads: who asks, and keys to servers that the provider is to call.
_BESIDE: Final = frozenset({"metadata", "mcp_servers", "safety_identifier", "cache_control"})
# Roles, types and their like, which every request has.
_WORD_OF_FORMAT: Final = re.compile("[a-z_/-]{1,24}")
_TOOLS: Final = "tool"
# Names, strings and numbers of JSON in all of a request: some 300 bytes each while they are looked at.
MAX_VALUES: Final = 300_000
# The beginning of PDF and zip files in base64.
_DOCUMENTS: Final = (b"JVBER", b"UEsDB")
# Kinds of content that have no text to look through.
_WITHOUT_TEXT: Final = ("image/", "audio/", "video/", "font/")


class RedactText(Protocol):
    """Changes the chat where a text is cut."""

    def __call__(self, redactions: Iterable[Redaction], write: WritePlaceholder = write_fixed) -> None:
        """Write placeholders into the chat."""


class ChatText(msgspec.Struct, frozen=True):
    """One text, who speaks it, and how the chat is changed where it is cut; None where it cannot be.

    `said` is what the client may have written for it; empty where that is not known. `is_earlier`, `parts_of`: see
    `Segment`. `is_signed` is set for thinking that only its provider may change.
    """

    path: str
    role: str
    text: str
    redact: RedactText | None
    said: tuple[Any, ...] = ()
    is_earlier: bool = False
    parts_of: Callable[[int, int], list[tuple[int, int]]] | None = None
    is_signed: bool = False


class FilePlace(msgspec.Struct, frozen=True):
    """The sender of a file, and how a text replaces it; None where it cannot be removed."""

    role: str
    is_earlier: bool
    remove: Callable[[str], None] | None


class ChatTexts:
    """The texts and files of a chat, in order. `files` are those outside its messages: pairs of path and data URL."""

    def __init__(self, chat: Chat, files: Iterable[tuple[str, str]] = ()) -> None:
        self.texts: list[ChatText] = []
        self.files: list[AttachedDocument] = []
        self.file_places: list[FilePlace] = []
        # The forms in which the client may have written each file.
        self.files_said: list[tuple[str, ...]] = []
        self._left = MAX_VALUES
        # Strings of the body that are texts here, or stand for something.
        self._seen_strings: set[str | None] = {chat.model, chat.user, chat.prompt_cache_key, *(chat.stop or ())}
        earlier = _count_earlier(chat)
        self._is_earlier = False
        for number, message in enumerate(chat.messages):
            self._is_earlier = number < earlier
            path = f"messages[{number}]"
            if message.name is not None:
                self._plain(message, "name", f"{path}.name", message.role)
            self._parts(message.parts, f"{path}.content", message.role)
            self._json(message.extra, path, message.role)
        self._is_earlier = False
        for number, tool in enumerate(chat.tools or ()):
            self._tool(tool, f"tools[{number}]")
        if (form := chat.response_format) is not None:
            self._fixed(form.name, "response_format.json_schema.name", "system")
            self._plain(form, "description", "response_format.json_schema.description", "system")
            self._json(form.schema, "response_format.json_schema.schema", "system")
        for name in ("prediction", "audio", "image_config"):
            self._json(getattr(chat, name), name, "system")
        self._json(chat.extra, "request", "system")
        for path, data_url in files:
            self._file(read_document(data_url).named("", path), path, "user", data_url)
        # The bytes that the chat was read from, each name in them once: a reader that takes the first of two, where
        # this gateway takes the last, would read something that was not scanned.
        self.source: Source | None = None
        if chat.source is not None:
            body = msgspec.json.decode(chat.source.body)
            self.source = Source(chat.source.dialect, msgspec.json.encode(body))
            self._rest(body)

    def _parts(self, parts: list[Part], path: str, role: str) -> None:
        for number, part in enumerate(parts):
            here = f"{path}[{number}]"
            self._part(part, here, role, partial(_replace_part, parts, number))
            self._json(part.extra, here, role)

    def _part(self, part: Part, here: str, role: str, put_text: Callable[[str], None]) -> None:
        """Take in a part; `put_text` replaces it by a text."""
        match part:
            case Text() | Refusal():
                self._text(part, "text", f"{here}.text", role)
            case Reasoning():
                self._reasoning(part, f"{here}.text", role)
            case ToolCall():
                self._seen_strings.add(part.id)
                self._fixed(part.name, f"{here}.name", role)
                self._text(part, "arguments", f"{here}.arguments", role)
            case ToolResult():
                self._seen_strings.add(part.call_id)
                self._fixed(part.name, f"{here}.name", role)
                self._parts(part.parts, f"{here}.content", TOOL_RESULT)
            case Image():
                self._image(part, here, role, put_text)
            case File():
                self._document(part, here, role, put_text)
            case Audio():
                self._seen_strings.add(part.data)
                document = read_document(part.data, f"audio/{part.format}").named("", here)
                self._file(document, here, role, part.data, put_text=put_text)
            case Opaque():
                # Cohere's clients have documents beside their messages, without the part around each.
                inner = part.data.get("document") if isinstance(part.data, dict) else None
                self._json(part.data, here, role, *(() if inner is None else (inner,)))

    def _tool(self, tool: Tool, here: str) -> None:
        if isinstance(tool, FunctionTool):
            self._fixed(tool.name, f"{here}.name", _TOOLS)
            self._plain(tool, "description", f"{here}.description", _TOOLS)
            self._json(tool.parameters, f"{here}.parameters", _TOOLS)
        elif isinstance(tool, OpaqueTool):
            self._json(tool.data, here, _TOOLS)
        else:
            self._json(tool.user_location, f"{here}.user_location", _TOOLS)
        self._json(tool.extra, here, _TOOLS)

    def _add(
        self,
        path: str,
        role: str,
        text: str,
        redact: RedactText | None,
        *said: Any,
        parts_of: Callable[[int, int], list[tuple[int, int]]] | None = None,
        is_signed: bool = False,
    ) -> None:
        if text and not text.isspace():
            self.texts.append(ChatText(path, role, text, redact, said, self._is_earlier, parts_of, is_signed))

    def _plain(self, owner: Any, name: str, path: str, role: str) -> None:
        """Take in a text that is an owner's attribute."""
        text = getattr(owner, name)
        if text is not None:
            self._seen_strings.add(text)

            def redact(redactions: Iterable[Redaction], write: WritePlaceholder = write_fixed) -> None:
                setattr(owner, name, apply_redactions(text, redactions, write))

            self._add(path, role, text, redact, text)

    def _text(self, owner: Any, name: str, path: str, role: str) -> None:
        """Take in a text that may be JSON, and stays JSON then."""
        said = getattr(owner, name)
        try:
            value = parse_json_text(said)
        except OutOfBounds as passed:
            raise UnreadableText(path, f"the JSON {passed}", (said,)) from None
        if value is None:
            self._plain(owner, name, path, role)
            return
        read = self._within(JsonText(value), path, said, value)
        self._seen_strings.update((said, *read.strings))

        def redact(redactions: Iterable[Redaction], write: WritePlaceholder = write_fixed) -> None:
            setattr(owner, name, encode_json(read.redact(redactions, write)))

        # Some formats have the value itself where others have it as a text.
        self._add(path, role, read.text, redact, said, value, parts_of=read.parts_of)
        self._enclosed(read.embedded_files, path, role)

    def _json(self, value: Any, path: str, role: str, *said: Any) -> None:
        """Take in a JSON value, which is changed itself; `said` is what else the client may have written for it."""
        if value:
            read = self._within(JsonText(value, excluded_names=_BESIDE), path, value)
            self._seen_strings.update(read.strings)
            self._add(path, role, read.text, read.redact, value, *said, parts_of=read.parts_of)
            self._enclosed(read.embedded_files, path, role)

    def _within(self, read: JsonText, path: str, *said: Any) -> JsonText:
        """Return the text of a JSON value. Raises UnreadableText where all values together are too many."""
        self._left -= read.leaf_count
        if self._left < 0:
            raise UnreadableText(
                path,
                "the JSON values of the request, those within texts and files included, are more than"
                f" {MAX_VALUES}, which is as many as guardrails look at",
                said,
            )
        return read

    def _fixed(self, name: str | None, path: str, role: str) -> None:
        """Take in a name that something else refers to."""
        if name is not None and name not in self._seen_strings:
            self._seen_strings.add(name)
            self._add(path, role, name, None, name)

    def _reasoning(self, part: Reasoning, path: str, role: str) -> None:
        """Take in thinking."""

        def redact(redactions: Iterable[Redaction], write: WritePlaceholder = write_fixed) -> None:
            part.text = apply_redactions(part.text, redactions, write)

        is_signed = part.signature is not None or part.data is not None
        self._seen_strings.update((part.text, part.signature, part.data, part.id, part.format))
        if part.data is not None:
            # Bedrock's clients send it in base64.
            self._seen_strings.add(b64encode(part.data.encode("utf-8", "replace")).decode())
        self._add(path, role, part.text, None if is_signed else redact, part.text, is_signed=is_signed)

    def _image(self, part: Image, here: str, role: str, put_text: Callable[[str], None]) -> None:
        self._seen_strings.update((part.url, part.url.partition(",")[2]))

        def change(written: str) -> None:
            part.url = written

        self._file(read_document(part.url).named("", here), here, role, part.url, change, put_text)

    def _document(self, part: File, here: str, role: str, put_text: Callable[[str], None]) -> None:
        if part.filename is not None:
            self._plain(part, "filename", f"{here}.filename", role)
        self._seen_strings.update(
            (part.url or "", part.file_id or "", part.data or "", (part.data or "").partition(",")[2])
        )

        def change(written: str) -> None:
            part.data = written

        written = part.url if part.data is None else part.data
        if written is not None:
            document = read_document(written, part.media_type or "").named(part.filename or "", here)
            self._file(document, here, role, written, change, put_text)

    def _file(
        self,
        document: AttachedDocument,
        path: str,
        role: str,
        written: str,
        change: Callable[[str], None] | None = None,
        put_text: Callable[[str], None] | None = None,
    ) -> None:
        """Take in a file as it was written, and its text where it is a text or a document.

        `change` writes another file into the chat, and `put_text` a text in its place.
        """
        # Some formats have the data of a data URL alone.
        said = (written, written.partition(",")[2]) if written.startswith("data:") else (written,)
        text, is_extracted = document.text(), False
        if (extracted := _find_document_text(document, text)) is not None:
            document = msgspec.structs.replace(document, unread=extracted.unread)
            if not extracted.unread:
                text, is_extracted = extracted.text, True
        self.files.append(document)
        self.files_said.append(said)
        self.file_places.append(FilePlace(role, self._is_earlier, put_text))
        if text is None:
            return
        if is_extracted:
            self._extracted(document, text, path, role, said, put_text)
            return
        self._seen_strings.add(text)
        try:
            value = parse_json_text(text)
        except OutOfBounds:
            # A file of very much data is read as the text it is: so will the model.
            value = None
        read = None if value is None else self._within(JsonText(value), path, *said)

        def redact(redactions: Iterable[Redaction], write: WritePlaceholder = write_fixed) -> None:
            if change is not None:
                masked = (
                    apply_redactions(text, redactions, write)
                    if read is None
                    else encode_json(read.redact(redactions, write))
                )
                change(document.written(masked))

        # The user need not have written the text of a file.
        said_by = DOCUMENT if role == "user" else role
        self._add(
            path,
            said_by,
            text if read is None else read.text,
            None if change is None else redact,
            *said,
            parts_of=None if read is None else read.parts_of,
        )

    def _extracted(
        self,
        document: AttachedDocument,
        text: str,
        path: str,
        role: str,
        said: tuple[str, ...],
        put_text: Callable[[str], None] | None,
    ) -> None:
        """Take in the text of a document. Where it is masked, the masked text takes the document's place."""

        def redact(redactions: Iterable[Redaction], write: WritePlaceholder = write_fixed) -> None:
            if put_text is not None:
                head = f"[Text of {document.name or 'a document'}; a guardrail masked parts of it]"
                put_text(f"{head}\n{apply_redactions(text, redactions, write)}")

        said_by = DOCUMENT if role == "user" else role
        self._add(path, said_by, text, None if put_text is None else redact, *said)

    def _enclosed(self, files: list[EmbeddedFile], path: str, role: str) -> None:
        for media_type, data in files:
            self._seen_strings.update((data, data.partition(",")[2]))
            self._file(read_document(data, media_type).named("", path), path, role, data)

    def _rest(self, body: Any) -> None:
        """Take in what else the client's bytes say. They are not sent on once anything was cut."""
        rest = [text for text in dict.fromkeys(iterate_strings(body, _BESIDE)) if text not in self._seen_strings]
        if words := [text for text in rest if not _WORD_OF_FORMAT.fullmatch(text)]:
            read = self._within(JsonText(words), "request")
            self._add("request", "system", read.text, read.redact, parts_of=read.parts_of)
            self._enclosed(read.embedded_files, "request", "system")


def has_documents(chat: Chat, body: bytes) -> bool:
    """Tell whether a chat may have documents, whose text takes long to read, however small they are."""
    parts = [part for message in chat.messages for part in message.parts]
    parts += [inner for part in parts if isinstance(part, ToolResult) for inner in part.parts]
    return any(isinstance(part, File) for part in parts) or any(start in body for start in _DOCUMENTS)


def _find_document_text(document: AttachedDocument, text: str | None) -> DocumentText | None:
    """Return the text of a document, or why there is none; None for texts, images, sound, and files at an address."""
    data = document.data
    if not data or document.media_type.startswith(_WITHOUT_TEXT):
        return None
    if is_document(document.media_type, data):
        return document_text(data)
    if text is not None or (kind := sniff_mime_type(data)).startswith(_WITHOUT_TEXT):
        return None
    return DocumentText(unread=f"files of type {kind} are not looked through")


def _count_earlier(chat: Chat) -> int:
    """Return how many messages come before the latest turn: all up to the last answer that something follows."""
    roles = [message.role for message in chat.messages]
    while roles and roles[-1] == "assistant":
        roles.pop()
    return next((number for number in range(len(roles), 0, -1) if roles[number - 1] == "assistant"), 0)


def _replace_part(parts: list[Part], number: int, text: str) -> None:
    parts[number] = Text(text=text, cache=parts[number].cache)
