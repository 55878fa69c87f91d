"""Files: their size, their true type, what they say they are, and what else is in them."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import pytest

from apps.guardrails.files.mime_sniffing import matches_declared_type, sniff_mime_type
from apps.guardrails.findings.scan_types import RuleSettings, ScannedFile
from apps.guardrails.rules.file_types import find_in_file

IMAGES = RuleSettings(max_file_bytes=1_000_000)
OFFICE = "application/vnd.openxmlformats-officedocument."


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _zip(**members: str) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/"), content)
    return memory.getvalue()


def _document(folder: str) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        for name in ("[Content_Types].xml", "_rels/.rels", f"{folder}/document.xml"):
            archive.writestr(name, "<x/>")
    return memory.getvalue()


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    + _chunk(b"IEND", b"")
)
GIF = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00" + (
    b"!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"
)
JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xdb\x00\x43\x00"
    + bytes(range(64))
    + b"\xff\xd9"
)
WEBP = b"RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00/\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00"
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n"
SVG = b'<?xml version="1.0"?>\n<!-- drawn by hand -->\n<svg xmlns="http://www.w3.org/2000/svg"><path d="M0 0"/></svg>'
ODT = (
    b"PK\x03\x04\x14\x00\x00\x00\x00\x00"
    + bytes(8)
    + struct.pack("<IIHH", 39, 39, 8, 0)
    + b"mimetypeapplication/vnd.oasis.opendocument.text"
)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (GIF, "image/gif"),
        (JPEG, "image/jpeg"),
        (WEBP, "image/webp"),
        (PDF, "application/pdf"),
        (b"%PDF-1.4\n1 0 obj\n", "application/pdf"),
        (SVG, "image/svg+xml"),
        (b"  <svg onload='x()'></svg>", "image/svg+xml"),
        (b"<?xml version='1.0'?><feed/>", "application/xml"),
        (b"<!-- hi --><!DOCTYPE html><title>x</title>", "text/html"),
        (b"<script>alert(1)</script>", "text/html"),
        (b'{"a": [1, 2]}', "application/json"),
        (b"{not json}", "text/plain"),
        (b"GIF is a picture format", "text/plain"),
        (b"BMW builds cars", "text/plain"),
        (b"MZ is how programs begin", "text/plain"),
        ("Grüße, 你好".encode(), "text/plain"),
        ("\ufeffwith a mark".encode("utf-16"), "text/plain"),
        (b"GIF\x00\x01\x02", "application/octet-stream"),
        (bytes(range(256)), "application/octet-stream"),
        (_zip(a="1"), "application/zip"),
        (_document("word"), OFFICE + "wordprocessingml.document"),
        (_document("xl"), OFFICE + "spreadsheetml.sheet"),
        (_document("ppt"), OFFICE + "presentationml.presentation"),
        (ODT, "application/vnd.oasis.opendocument.text"),
        (b"\x7fELF\x02\x01\x01" + bytes(60), "application/x-executable"),
        (b"\x1f\x8b\x08" + bytes(20), "application/gzip"),
        (b"ID3\x03\x00\x00\x00\x00\x00\x21TIT2" + bytes(40), "audio/mpeg"),
        (b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(24), "audio/wav"),
    ],
)
def test_content_says_what_a_file_is(data: bytes, kind: str) -> None:
    assert sniff_mime_type(data) == kind


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (ScannedFile(declared_type="image/png", data=PNG), None),
        (ScannedFile(declared_type="image/jpg", data=JPEG), None),
        (ScannedFile(declared_type="IMAGE/GIF; q=1", data=GIF), None),
        (ScannedFile(data=WEBP), None),
        (ScannedFile(declared_type="application/octet-stream", data=PNG), None),
        (ScannedFile(data=b""), "the file is empty"),
        (ScannedFile(data=PNG + bytes(1_000_000)), f"the file has {1_000_000 + len(PNG)} bytes; 1000000 are allowed"),
        (ScannedFile(address="https://a.example/x", size=2_000_000), "the file has 2000000 bytes; 1000000 are allowed"),
        (ScannedFile(data=PDF), "files of type application/pdf are not allowed"),
        (ScannedFile(data=SVG), "files of type image/svg+xml are not allowed"),
        (ScannedFile(data=bytes(range(256))), "files of type application/octet-stream are not allowed"),
        (
            ScannedFile(declared_type="image/png", data=JPEG),
            "the file says it is image/png and its content is image/jpeg",
        ),
        (
            ScannedFile(declared_type="image/png", data=b"<html></html>"),
            "the file says it is image/png and its content is text/html",
        ),
        (
            ScannedFile(declared_type="image/gif", data=b"GIF89a<script>x()</script>"),
            "the file says it is image/gif and its content is text/plain",
        ),
        (
            ScannedFile(declared_type="image/png", data=bytes(range(256))),
            "the file says it is image/png and its content is of no known type",
        ),
        (
            ScannedFile(declared_type="image/svg+xml", data=b"<html></html>"),
            "the file says it is image/svg+xml and its content is text/html",
        ),
        (ScannedFile(data=PNG + _zip(a="1")), "the file is image/png and holds a ZIP archive as well"),
        (ScannedFile(data=JPEG + b"Rar!\x1a\x07\x01\x00x"), "the file is image/jpeg and holds a RAR archive as well"),
        (
            ScannedFile(data=GIF + b"<script>alert(1)</script>"),
            "the file is image/gif and holds a program or page as well",
        ),
        (ScannedFile(data=JPEG + b"<?php system(1); ?>"), "the file is image/jpeg and holds a program or page as well"),
        (ScannedFile(data=GIF[:-1] + PDF), "the file is image/gif and holds a PDF document as well"),
        (ScannedFile(name="a.png", address="https://a.example/a.png"), None),
        (ScannedFile(address="https://a.example/page"), None),
        (ScannedFile(address="https://a.example/report.pdf?x=1"), "files of type application/pdf are not allowed"),
        (
            ScannedFile(declared_type="application/zip", address="https://a.example/a.png"),
            "files of type application/zip are not allowed",
        ),
        (ScannedFile(name="photo.webp", address="https://a.example/1"), None),
    ],
)
def test_what_is_wrong_is_said_in_words(file: ScannedFile, reason: str | None) -> None:
    assert find_in_file(file, IMAGES) == reason


@pytest.mark.parametrize(
    ("allowed", "file", "reason"),
    [
        ({"text/markdown"}, ScannedFile(declared_type="text/markdown", data=b"# Title"), None),
        ({"text/plain"}, ScannedFile(declared_type="text/markdown", data=b"# Title"), None),
        (
            {"text/csv"},
            ScannedFile(declared_type="text/plain", data=b"a,b"),
            "files of type text/plain are not allowed",
        ),
        ({"application/json"}, ScannedFile(declared_type="application/json", data=b'{"a": 1}'), None),
        (
            {"text/plain", "text/html"},
            ScannedFile(declared_type="text/plain", data=b"<html>x</html>"),
            "the file says it is text/plain and its content is text/html",
        ),
        ({"image/svg+xml"}, ScannedFile(declared_type="image/svg+xml", data=SVG), None),
        ({"application/pdf"}, ScannedFile(declared_type="application/pdf", data=PDF), None),
        ({"image/*"}, ScannedFile(data=PNG), None),
        ({"image/jpg"}, ScannedFile(data=JPEG), None),
        (
            {OFFICE + "wordprocessingml.document"},
            ScannedFile(declared_type=OFFICE + "wordprocessingml.document", data=_document("word")),
            None,
        ),
        (
            {OFFICE + "wordprocessingml.document"},
            ScannedFile(declared_type=OFFICE + "wordprocessingml.document", data=_document("xl")),
            f"the file says it is {OFFICE}wordprocessingml.document and its content is {OFFICE}spreadsheetml.sheet",
        ),
        (set(), ScannedFile(data=PNG), "files of type image/png are not allowed"),
    ],
)
def test_the_settings_say_what_is_allowed(allowed: set[str], file: ScannedFile, reason: str | None) -> None:
    assert find_in_file(file, RuleSettings(allowed_file_types=frozenset(allowed))) == reason


@pytest.mark.parametrize(
    ("declared", "kind", "right"),
    [
        ("audio/mp4", "video/mp4", True),
        ("audio/webm", "video/webm", True),
        ("video/mp4", "video/webm", False),
        ("text/x-python", "text/plain", True),
        ("text/html", "text/plain", False),
        ("application/pdf", "text/plain", False),
    ],
)
def test_a_container_has_several_names(declared: str, kind: str, right: bool) -> None:
    assert matches_declared_type(declared, kind) is right


def test_pictures_whose_bytes_happen_to_look_like_an_archive_pass() -> None:
    assert find_in_file(ScannedFile(data=PNG + b"PK\x05\x06" + b"\xff" * 30), IMAGES) is None
