"""Text of PDF and office documents, for rules to look through: bounded in bytes, pages, characters and time.

PDF is read by pypdf; OOXML (docx, xlsx, pptx) and OpenDocument (odt, ods, odp) are zip archives of XML, of which only
the parts with text are unpacked. Images within documents are not looked at. Pure, but takes seconds: it belongs on a
thread. Texts read lately are kept, because an agent sends the same file with each turn of a conversation; they are
found by the digest of a file's bytes, which only a client that has the file can name.
"""

from __future__ import annotations

import hashlib
import io
import re
import time
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import Any, Final, NamedTuple

from apps.guardrails.files.mime_sniffing import sniff_mime_type

PDF: Final = "application/pdf"
_OOXML: Final = "application/vnd.openxmlformats-officedocument."
_OPEN_DOCUMENT: Final = "application/vnd.oasis.opendocument."
# Bytes of all parts unpacked, pages or parts, characters of the text, seconds.
MAX_UNPACKED: Final = 64 * 1024 * 1024
MAX_PAGES: Final = 1_000
MAX_CHARACTERS: Final = 2_000_000
MAX_SECONDS: Final = 10.0
_PIECE: Final = 256 * 1024
# Bytes of one stream of a PDF unpacked.
_MAX_STREAM: Final = 16 * 1024 * 1024
# The parts with text of each format, in the order in which they are read.
_PARTS: Final = (
    re.compile(r"word/(document|header\d*|footer\d*|footnotes|endnotes|comments)\.xml"),
    re.compile(r"xl/(sharedStrings|worksheets/sheet\d+|comments\d*)\.xml"),
    re.compile(r"ppt/(slides/slide|notesSlides/notesSlide|comments/comment)\d+\.xml"),
    re.compile(r"docProps/(core|custom)\.xml"),
    re.compile(r"content\.xml|styles\.xml|meta\.xml"),
)
# Elements that end a line, and elements that end a word, by their names without namespaces.
_LINES: Final = frozenset({"p", "h", "br", "row", "si", "table-row", "line-break", "title", "subject", "creator"})
_WORDS: Final = frozenset({"tab", "c", "s", "table-cell", "v", "lpwstr", "description", "keywords"})


class DocumentText(NamedTuple):
    """The text of a document; or, where it cannot be looked through, why (`unread`)."""

    text: str = ""
    unread: str = ""


class _OutOfBounds(Exception):
    """A document is larger than its bounds; the message says which."""


def is_document(media_type: str, data: bytes) -> bool:
    """Tell whether content is of a kind that `read_document_text` reads, by its own type or the one it is called."""
    named = media_type == PDF or media_type.startswith((_OOXML, _OPEN_DOCUMENT))
    return named or data[:4] == b"PK\x03\x04" or b"%PDF-" in data[:1024]


def read_document_text(data: bytes) -> DocumentText:
    """Return the text of a document. Takes at most about `MAX_SECONDS`."""
    kind = sniff_mime_type(data)
    ends = time.monotonic() + MAX_SECONDS
    try:
        if kind == PDF:
            return DocumentText(_read_pdf(data, ends))
        if kind.startswith((_OOXML, _OPEN_DOCUMENT)):
            return DocumentText(_joined(_office_parts(data, ends)))
    except _OutOfBounds as passed:
        return DocumentText(unread=str(passed))
    except Exception as error:  # noqa: BLE001 - a broken file may break its parser anywhere
        return DocumentText(unread=f"it cannot be read ({type(error).__name__})")
    return DocumentText(unread=f"files of type {kind} are not looked through")


def _joined(pieces: Iterator[str]) -> str:
    """Return pieces as one text. Raises _OutOfBounds."""
    kept, characters = [], 0
    for piece in pieces:
        characters += len(piece)
        if characters > MAX_CHARACTERS:
            raise _OutOfBounds(f"its text has more than {MAX_CHARACTERS} characters")
        kept.append(piece)
    return "\n".join(kept)


def _read_pdf(data: bytes, ends: float) -> str:
    # Imported on first use, because it takes 200 ms.
    from pypdf import Configuration, apply_configuration
    from pypdf.errors import FileNotDecryptedError, LimitReachedError

    limits = Configuration(
        array_based_stream_maximum_output_length=_MAX_STREAM,
        lzw_maximum_output_length=_MAX_STREAM,
        run_length_maximum_output_length=_MAX_STREAM,
        zlib_maximum_output_length=_MAX_STREAM,
        stream_decoding_work_maximum_length=MAX_UNPACKED,
    )
    try:
        with apply_configuration(limits):
            return _joined(_pdf_pages(data, ends))
    except FileNotDecryptedError as error:
        raise _OutOfBounds("it is encrypted") from error
    except LimitReachedError as error:
        raise _OutOfBounds(f"a part of it has more than {_MAX_STREAM} bytes, or it nests too deeply") from error


def _pdf_pages(data: bytes, ends: float) -> Iterator[str]:
    from pypdf import PdfReader

    def watch(*_: Any) -> None:
        _raise_if_late(ends)

    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        raise _OutOfBounds("it is encrypted")
    if len(reader.pages) > MAX_PAGES:
        raise _OutOfBounds(f"it has more than {MAX_PAGES} pages")
    if reader.metadata:
        yield "\n".join(str(value) for value in reader.metadata.values() if isinstance(value, str))
    for page in reader.pages:
        _raise_if_late(ends)
        yield page.extract_text(visitor_operand_before=watch)
        yield "\n".join(_annotations(page))
    yield "\n".join(str(field.get("/V") or "") for field in (reader.get_fields() or {}).values())


def _annotations(page: Any) -> Iterator[str]:
    """Yield the words of notes on a page."""
    for reference in page.get("/Annots") or ():
        words = reference.get_object().get("/Contents")
        if isinstance(words, str):
            yield words


def _office_parts(data: bytes, ends: float) -> Iterator[str]:
    left = MAX_UNPACKED
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = [one for one in archive.infolist() if any(part.fullmatch(one.filename) for part in _PARTS)]
        if len(parts) > MAX_PAGES:
            raise _OutOfBounds(f"it has more than {MAX_PAGES} parts")
        if any(one.flag_bits & 1 for one in parts):
            raise _OutOfBounds("it is encrypted")
        for part in sorted(parts, key=lambda one: _place_of(one.filename)):
            with archive.open(part) as unpacked:
                text, left = _part_text(unpacked, left, ends)
            yield text


def _part_text(unpacked: Any, left: int, ends: float) -> tuple[str, int]:
    """Return the text of a part, and how many bytes may still be unpacked. Raises _OutOfBounds."""
    from defusedxml.ElementTree import DefusedXMLParser

    parser = DefusedXMLParser(target=_TextTarget(), forbid_dtd=True)
    try:
        while piece := unpacked.read(_PIECE):
            left -= len(piece)
            if left < 0:
                raise _OutOfBounds(f"it has more than {MAX_UNPACKED} bytes unpacked")
            _raise_if_late(ends)
            parser.feed(piece)
    except zlib.error as error:
        raise zipfile.BadZipFile from error
    return parser.close(), left


class _TextTarget:
    """Collects the text of an XML part while it is parsed, without keeping its elements."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._characters = 0

    def start(self, name: str, attributes: Any) -> None:
        """Begin an element."""

    def data(self, text: str) -> None:
        """Take text."""
        self._characters += len(text)
        if self._characters > MAX_CHARACTERS:
            raise _OutOfBounds(f"its text has more than {MAX_CHARACTERS} characters")
        self._pieces.append(text)

    def end(self, name: str) -> None:
        """End an element: a line, a word, or nothing that is seen."""
        local = name.rpartition("}")[2]
        if local in _LINES:
            self._pieces.append("\n")
        elif local in _WORDS:
            self._pieces.append("\t")

    def close(self) -> str:
        """Return the text."""
        return "".join(self._pieces)


def _place_of(name: str) -> tuple[int, str, int]:
    """Return where a part belongs: by its format's order, and slides and sheets by their numbers."""
    order = next(index for index, part in enumerate(_PARTS) if part.fullmatch(name))
    number = re.search(r"(\d+)\.xml$", name)
    return order, re.sub(r"\d+\.xml$", "", name), int(number[1]) if number else 0


def _raise_if_late(ends: float) -> None:
    if time.monotonic() > ends:
        raise _OutOfBounds(f"it takes more than {MAX_SECONDS:g} s to read")


# Characters that a process keeps; the least recently used go first.
MAX_KEPT_CHARACTERS: Final = 2_000_000
_ENTRY: Final = 500
_lock = Lock()
_texts: OrderedDict[bytes, DocumentText] = OrderedDict()
_size = 0


def document_text(data: bytes) -> DocumentText:
    """Return the text of a document, read once while it is kept. Safe on several threads."""
    digest = hashlib.blake2b(data, digest_size=32).digest()
    with _lock:
        known = _texts.get(digest)
        if known is not None:
            _texts.move_to_end(digest)
            return known
    read = read_document_text(data)
    _keep(digest, read)
    return read


def _keep(digest: bytes, read: DocumentText) -> None:
    global _size
    with _lock:
        if digest not in _texts:
            _texts[digest] = read
            _size += len(read.text) + _ENTRY
        while _size > MAX_KEPT_CHARACTERS and _texts:
            _, oldest = _texts.popitem(last=False)
            _size -= len(oldest.text) + _ENTRY
