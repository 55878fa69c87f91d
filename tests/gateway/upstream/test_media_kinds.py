"""The kind of a file, recognized by its first bytes."""

from __future__ import annotations

import pytest

from apps.gateway.upstream.remote_media import sniff_media_type

PNG = b"\x89PNG\r\n\x1a\n..."
JPEG = b"\xff\xd8\xff\xe0..."
PDF = b"%PDF-1.7 ..."


@pytest.mark.parametrize(
    ("data", "stated", "media_type"),
    [
        (PNG, "image/jpeg", "image/png"),
        (JPEG, "", "image/jpeg"),
        (b"GIF89a...", "", "image/gif"),
        (b"RIFF\x01\x02\x03\x04WEBPVP8 ", "", "image/webp"),
        (b"RIFF\x01\x02\x03\x04WAVE", "audio/wav", None),
        (PDF, "text/html", "application/pdf"),
        (b"PK\x03\x04...", "application/zip", None),
        (
            b"PK\x03\x04...",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        ),
        ("Grüße".encode(), "application/octet-stream", "text/plain"),
        (b"# Title", "text/markdown", "text/markdown"),
        (b"", "text/plain", None),
        (b"a\0b", "text/plain", None),
        (b"\xff\xfe", "text/plain", None),
        (b"<svg/>", "image/svg+xml", None),
    ],
)
def test_what_a_file_is_its_first_bytes_tell(data: bytes, stated: str, media_type: str | None) -> None:
    assert sniff_media_type(data, stated) == media_type
