"""Attached documents: a file that came along with a request, as bytes, and as text where it is one.

Reads data URLs, base64 and the encodings of texts. Nothing is fetched: of a file at an address only the address is
known. Pure.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from binascii import a2b_base64
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from typing import Final
from urllib.parse import quote, unquote_to_bytes

import msgspec

_DATA_URL: Final = re.compile(r"data:([^,]*),", re.IGNORECASE)
# Characters that are decoded at a time, a multiple of four: other threads go on in between.
_STEP: Final = 1024 * 1024
_URL_SAFE: Final = str.maketrans("-_", "+/")
# Kinds that are texts whatever their name, and kinds that never are.
_TEXTS: Final = re.compile(r"text/|.*[/+.-](json|xml|yaml|toml|csv|html|javascript|ecmascript|typescript|sql|x-sh)\b")
_BYTES: Final = re.compile(r"(image|audio|video|font)/|application/(pdf|zip|gzip|vnd\.openxmlformats.*|msword)\b")


class AttachedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A file by its bytes or its address. `media_type` is the client's word for its kind, "" where it has none.

    `head` stands before the data as it was written: that of a data URL, or nothing.
    """

    name: str = ""
    path: str = ""
    media_type: str = ""
    head: str = ""
    data: bytes | None = None
    address: str | None = None
    # Why the text of a document cannot be looked through; empty where it can, and for images and sound.
    unread: str = ""

    def named(self, name: str, path: str) -> AttachedDocument:
        """Return the file under its name, at its place in the request."""
        return msgspec.structs.replace(self, name=name, path=path)

    def text(self) -> str | None:
        """Return what the file says; None for one that is no text."""
        if self.data is None or (_BYTES.match(self.media_type) and not _TEXTS.match(self.media_type)):
            return None
        try:
            text = self.data.decode(self._encoding)
        except UnicodeDecodeError:
            return self.data.decode("latin-1") if _TEXTS.match(self.media_type) else None
        return text if "\0" not in text or _TEXTS.match(self.media_type) else None

    def written(self, text: str) -> str:
        """Return the file as it is written in a request, with another text."""
        try:
            (self.data or b"").decode(self._encoding)
            data = text.encode(self._encoding, "replace")
        except UnicodeDecodeError:
            data = text.encode("latin-1", "replace")
        if self.head and not self.head.lower().endswith(";base64,"):
            return self.head + quote(data)
        return self.head + b64encode(data).decode()

    @property
    def _encoding(self) -> str:
        marks = (BOM_UTF16_LE, BOM_UTF16_BE)
        return "utf-16" if self.data is not None and self.data.startswith(marks) else "utf-8"


def read_document(written: str, media_type: str = "") -> AttachedDocument:
    """Return the file of a data URL, an address, or base64. Invalid base64 is skipped, as other readers do."""
    if head := _DATA_URL.match(written):
        kind, _, rest = head[1].partition(";")
        data = written[head.end() :]
        is_base64 = rest.lower().endswith("base64")
        content = _decoded(data) if is_base64 else unquote_to_bytes(data)
        return AttachedDocument(media_type=kind.strip().lower() or media_type.lower(), head=head[0], data=content)
    if "://" in written[:20]:
        return AttachedDocument(media_type=media_type.lower(), address=written)
    return AttachedDocument(media_type=media_type.lower(), data=_decoded(written))


def _decoded(base64: str) -> bytes:
    if len(base64) > _STEP and base64.find("=", 0, -2) < 0:
        try:
            return b"".join(
                [
                    a2b_base64(base64[start : start + _STEP].translate(_URL_SAFE), strict_mode=True)
                    for start in range(0, len(base64), _STEP)
                ]
            )
        except ValueError:
            # It has blanks, or is wrong otherwise: it is gone through as a whole.
            pass
    try:
        return b64decode(base64.translate(_URL_SAFE) + "==")
    except (NotBase64, ValueError):
        # One character too many, or characters of no alphabet.
        kept = re.sub(r"[^A-Za-z0-9+/]", "", base64.translate(_URL_SAFE))
        return b64decode(kept[: len(kept) - (len(kept) % 4 == 1)] + "==")
