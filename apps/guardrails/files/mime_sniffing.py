"""MIME sniffing: the media type of a file by its content, and content hidden in it (polyglot files).

It uses the signatures of the `filetype` package, tells text from bytes, and looks into formats based on zip.
"""

from __future__ import annotations

import json

import filetype

from apps.guardrails.regex.re2_patterns import compile_re2, lazy_pattern

UNKNOWN = "application/octet-stream"
PLAIN_TEXT = "text/plain"
_SAME = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "image/x-ms-bmp": "image/bmp",
    "image/vnd.microsoft.icon": "image/x-icon",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/mp3": "audio/mpeg",
    "audio/x-m4a": "audio/mp4",
    "audio/m4a": "audio/mp4",
    "audio/x-flac": "audio/flac",
    "application/x-zip-compressed": "application/zip",
    "application/x-gzip": "application/gzip",
    "application/x-pdf": "application/pdf",
    "text/xml": "application/xml",
    "text/json": "application/json",
    "application/x-rar-compressed": "application/vnd.rar",
    "application/x-rar": "application/vnd.rar",
    "application/x-msdownload": "application/x-executable",
    "application/x-msdos-program": "application/x-executable",
}
_SAYS_NOTHING = frozenset({"", UNKNOWN, "binary/octet-stream", "application/binary", "*/*"})
# Containers whose content may rightly be called by several names.
_FAMILIES = (
    frozenset({"audio/mp4", "video/mp4", "video/x-m4v", "video/quicktime", "audio/aac"}),
    frozenset({"audio/webm", "video/webm", "video/x-matroska", "audio/x-matroska"}),
    frozenset({"audio/ogg", "video/ogg", "application/ogg", "audio/opus"}),
    frozenset(
        {"application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint", "application/x-ole-storage"}
    ),
    frozenset({"image/heic", "image/heif", "image/heic-sequence", "image/heif-sequence"}),
    frozenset({"image/tiff", "image/x-canon-cr2", "image/x-adobe-dng", "image/x-nikon-nef"}),
)
# Types of text that nothing in the text itself tells from plain text.
_TEXTUAL = compile_re2(
    r"text/[a-z0-9.+-]+|application/(?:[a-z0-9.-]+\+)?(?:json|xml|yaml|toml)|application/(?:x-)?"
    r"(?:yaml|toml|javascript|ecmascript|typescript|sh|python|sql|ndjson|jsonl|jsonlines|tex|latex|httpd-php|"
    r"graphql|rtf|csv|subrip)"
)
_MARKUP = ("text/html", "image/svg+xml", "application/xml")
_ZIPPED = (
    (b"word/", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
    (b"xl/", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
    (b"ppt/", "application/vnd.openxmlformats-officedocument.presentationml.presentation"),
)
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\x1b")) + b"\x7f"
_TEXT_SIGNATURES = ((b"%PDF-", "application/pdf"), (b"{\\rtf", "application/rtf"), (b"%!PS", "application/postscript"))
_HTML = lazy_pattern(
    r"(?i)^\s*(?:<!--(?s:.{0,500}?)-->\s*)?(?:<!doctype html|<html[\s>]|<head[\s>]|<body[\s>]|<script[\s>]|"
    r"<iframe[\s>])"
)
_SVG = lazy_pattern(
    r"(?i)^\s*(?:<\?xml[^>]{0,300}>\s*)?(?:<!--(?s:.{0,900}?)-->\s*|<!DOCTYPE svg(?s:.{0,900}?)>\s*){0,1}<svg[\s>]"
)
_XML = compile_re2(r"^\s*<\?xml\s")
_MAX_JSON_BYTES, _HEAD = 1_000_000, 1024
_PROGRAM = compile_re2(r"(?i)<script[\s>]|<html[\s>]|<!doctype html|<\?php\s|<iframe[\s>]|javascript:[a-z]")
_ARCHIVES = ((b"Rar!\x1a\x07", "a RAR archive"), (b"7z\xbc\xaf\x27\x1c", "a 7z archive"))


def canonical_mime_type(media_type: str) -> str:
    """Return a media type without parameters, in lower case, by its usual name; empty if it says nothing."""
    name = media_type.partition(";")[0].strip().lower()
    name = _SAME.get(name, name)
    return "" if name in _SAYS_NOTHING else name


def sniff_mime_type(data: bytes) -> str:
    """Return the media type of some content, `application/octet-stream` if it has no known form."""
    text = _text_of(data)
    if text is not None:
        return _kind_of_text(text)
    if data[:4] == b"PK\x03\x04":
        return _kind_of_zip(data)
    guessed = filetype.guess_mime(data[:8192])
    if guessed is None or (guessed == "image/gif" and data[:6] not in (b"GIF87a", b"GIF89a")):
        return "application/pdf" if b"%PDF-" in data[:_HEAD] else UNKNOWN
    return canonical_mime_type(guessed) or UNKNOWN


def matches_declared_type(declared: str, kind: str) -> bool:
    """Tell whether content of a kind may be called what it was declared to be (both as by `canonical_mime_type`)."""
    if declared == kind or any(declared in family and kind in family for family in _FAMILIES):
        return True
    if declared == "application/zip" and is_zip_based(kind):
        return True
    if kind in (PLAIN_TEXT, "application/json"):
        return declared not in _MARKUP and bool(_TEXTUAL.fullmatch(declared))
    return kind in _MARKUP and declared != "text/html" and kind != "text/html" and bool(_TEXTUAL.fullmatch(declared))


def is_zip_based(kind: str) -> bool:
    """Tell whether files of a kind are zip archives themselves."""
    return kind == "application/zip" or kind.startswith(
        ("application/vnd.openxmlformats", "application/vnd.oasis", "application/epub", "application/java-archive")
    )


def find_hidden_content(data: bytes, kind: str) -> str | None:
    """Return what a picture, sound or document holds besides itself, in words: an archive, a document, a program."""
    if not kind.startswith(("image/", "audio/", "video/", "application/pdf")) or kind == "image/svg+xml":
        return None
    if _ends_with_zip(data):
        return "a ZIP archive"
    for signature, words in _ARCHIVES:
        if data.find(signature, 1) > 0:
            return words
    if not kind.startswith("image/"):
        return None
    if b"%PDF-" in data[:_HEAD]:
        return "a PDF document"
    return "a program or page" if _PROGRAM.search(data) else None


def _ends_with_zip(data: bytes) -> bool:
    """Tell whether there is an archive's last record whose list of files is where it says."""
    record = data.rfind(b"PK\x05\x06", max(0, len(data) - 66_000))
    if record < 0 or len(data) < record + 22:
        return False
    size = int.from_bytes(data[record + 12 : record + 16], "little")
    return size <= record and (size == 0 or data[record - size : record - size + 4] == b"PK\x01\x02")


def _text_of(data: bytes) -> str | None:
    """Return what the bytes say, None if they are no text."""
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") and data[2:4] != b"\x00\x00" else "utf-8-sig"
    if encoding == "utf-8-sig" and len(data.translate(None, _CONTROLS)) != len(data):
        return None
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def _kind_of_text(text: str) -> str:
    head = text[:4096]
    start = head.lstrip()[:8].encode("utf-8", "replace")
    for signature, kind in _TEXT_SIGNATURES:
        if start.startswith(signature):
            return kind
    for pattern, kind in ((_HTML, "text/html"), (_SVG, "image/svg+xml"), (_XML, "application/xml")):
        if pattern.search(head):
            return kind
    return "application/json" if start[:1] in (b"{", b"[") and _is_json(text) else PLAIN_TEXT


def _is_json(text: str) -> bool:
    if len(text) > _MAX_JSON_BYTES:
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _kind_of_zip(data: bytes) -> str:
    if data[30:38] == b"mimetype":
        length = int.from_bytes(data[22:26], "little")
        named = data[38 : 38 + min(length, 100)].decode("ascii", "replace")
        return canonical_mime_type(named) if named.startswith("application/") else "application/zip"
    if b"[Content_Types].xml" in data:
        return next((kind for folder, kind in _ZIPPED if folder in data), "application/zip")
    return "application/java-archive" if b"META-INF/MANIFEST.MF" in data[:4096] else "application/zip"
