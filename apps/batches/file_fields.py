"""Fields of `/v1/files` and `/v1/uploads`: forms, bodies and the query of a list, validated and bounded.

Bounds: OpenAI's API (purposes, 1 hour to 30 days of life, 10,000 files a page).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from django.conf import settings

from apps.batches.models import FilePurpose
from apps.batches.refusals import too_large_file
from apps.kernel.errors import InvalidRequest
from apps.responses.items import last_of, read_object
from apps.responses.public_ids import is_public_id

MIN_LIFETIME, MAX_LIFETIME = 3_600, 2_592_000
# Purposes of uploads; batches write files of the others.
PURPOSES: Final = ("assistants", "batch", "evals", "fine-tune", "user_data", "vision")
_MAX_PAGE, _MAX_DIGITS = 10_000, 8
# Rows on a page, even if a client asks for more: it asks for the next page.
LARGEST_PAGE: Final = 1_000
_MAX_NAME_LENGTH = 255
# Anthropic's field for a lifetime, and its maximum in seconds.
_LIFETIME, _MAX_ANTHROPIC_LIFETIME = "expires_in_seconds", 7_776_000
_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"


@dataclass(frozen=True, slots=True)
class FileFields:
    """The purpose of a new file, and its lifetime in seconds if given."""

    purpose: FilePurpose
    lifetime: int | None


@dataclass(frozen=True, slots=True)
class Listing:
    """Which rows of a list a client asks for; `after` is the id of the one before the first."""

    limit: int
    order: Literal["asc", "desc"]
    after: str | None
    purpose: str | None = None


def read_file_fields(fields: Mapping[str, str]) -> FileFields:
    """Return what the fields beside a file say. Raises InvalidRequest naming the field."""
    return FileFields(read_purpose(fields.get("purpose")), _read_lifetime(fields))


def read_anthropic_fields(fields: Mapping[str, str]) -> FileFields:
    """Return what the fields of Anthropic's form say, which has no purposes. Raises InvalidRequest naming the field."""
    lifetime = None
    if _LIFETIME in fields:
        lifetime = read_number(fields[_LIFETIME])
        if lifetime is None or not MIN_LIFETIME <= lifetime <= _MAX_ANTHROPIC_LIFETIME:
            words = f"{_LIFETIME} must be a whole number from {MIN_LIFETIME} to {_MAX_ANTHROPIC_LIFETIME}"
            raise InvalidRequest(words, param=_LIFETIME)
    return FileFields(FilePurpose.USER_DATA, lifetime)


def read_purpose(value: object) -> FilePurpose:
    """Return a purpose that a client may give a file. Raises InvalidRequest."""
    if value not in PURPOSES:
        raise InvalidRequest(f"purpose must be one of {', '.join(PURPOSES)}", param="purpose")
    return FilePurpose(value)


def read_name(name: object, param: str, what: str) -> str:
    """Return the name of a file. Raises InvalidRequest naming the field, in the words of `what`."""
    if not isinstance(name, str) or not 1 <= len(name) <= _MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidRequest(f"{what} must be 1 to {_MAX_NAME_LENGTH} printable characters", param=param)
    return name


def max_bytes(purpose: FilePurpose | None) -> int:
    """Return the most bytes that a file may have; without a purpose, the most for any.

    The lines of a batch are read a piece at a time; a file of another purpose goes into a request as a whole.
    """
    body, file = settings.BODY_LIMIT, settings.FILE_UPLOAD_LIMIT
    most: int = max(body, file) if purpose is None else file if purpose == FilePurpose.BATCH else body
    return most


def read_listing(query: Mapping[str, Sequence[str]], *, usual: int, most: int = _MAX_PAGE) -> Listing:
    """Return what a query asks for. Raises InvalidRequest naming the parameter."""
    order = query.get("order", ["desc"])[-1]
    if order not in ("asc", "desc"):
        raise InvalidRequest("order must be asc or desc", param="order")
    return Listing(
        limit=min(read_limit(query, usual=usual, most=most), LARGEST_PAGE),
        order="asc" if order == "asc" else "desc",
        after=last_of(query, "after"),
        purpose=last_of(query, "purpose"),
    )


def read_limit(query: Mapping[str, Sequence[str]], *, usual: int, most: int) -> int:
    """Return how many rows a query asks for. Raises InvalidRequest naming `limit`."""
    if not (values := query.get("limit")):
        return usual
    limit = read_number(values[-1])
    if limit is None or not 1 <= limit <= most:
        raise InvalidRequest(f"limit must be a whole number from 1 to {most}", param="limit")
    return limit


def read_number(text: str) -> int | None:
    """Return the whole number that a text is, None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS else None


def _read_lifetime(fields: Mapping[str, str]) -> int | None:
    if _ANCHOR not in fields and _SECONDS not in fields:
        return None
    if fields.get(_ANCHOR) != "created_at":
        raise InvalidRequest(f"{_ANCHOR} must be created_at", param=_ANCHOR)
    seconds = read_number(fields.get(_SECONDS, ""))
    if seconds is None or not MIN_LIFETIME <= seconds <= MAX_LIFETIME:
        raise InvalidRequest(f"{_SECONDS} must be a whole number from {MIN_LIFETIME} to {MAX_LIFETIME}", param=_SECONDS)
    return seconds


# Parts of an upload.
MAX_PARTS: Final = 500
_NEW: Final = frozenset({"bytes", "filename", "mime_type", "purpose", "expires_after"})
_COMPLETION: Final = frozenset({"part_ids", "md5"})
_MD5: Final = re.compile(r"[0-9a-fA-F]{32}")


@dataclass(frozen=True, slots=True)
class NewUpload:
    """An upload as a client asks for it; `size` is in bytes, `lifetime` in seconds, None where nothing is said."""

    size: int
    name: str
    purpose: FilePurpose
    lifetime: int | None


@dataclass(frozen=True, slots=True)
class Completion:
    """The parts of an upload in order, and the MD5 sum of the file in lower-case hexadecimals, None where not given."""

    part_ids: list[str]
    md5: str | None


def read_new_upload(body: bytes) -> NewUpload:
    """Return what a body asks for. Raises InvalidRequest naming the field, BodyTooLarge for too large a file."""
    fields = _read(body, _NEW)
    name = read_name(fields.get("filename"), "filename", "filename")
    # It is what the file's name says: kept files have no other type.
    read_name(fields.get("mime_type"), "mime_type", "mime_type")
    purpose = read_purpose(fields.get("purpose"))
    size = fields.get("bytes")
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise InvalidRequest("bytes must be a whole number of at least 1", param="bytes")
    if size > max_bytes(purpose):
        raise too_large_file(max_bytes(purpose), "bytes")
    return NewUpload(size, name, purpose, _read_upload_lifetime(fields.get("expires_after")))


def read_completion(body: bytes) -> Completion:
    """Return what a body asks for. Raises InvalidRequest naming the field."""
    fields = _read(body, _COMPLETION)
    part_ids, md5 = fields.get("part_ids"), fields.get("md5")
    if not isinstance(part_ids, list) or not 1 <= len(part_ids) <= MAX_PARTS or not all(map(is_public_id, part_ids)):
        raise InvalidRequest(f"part_ids must be an array of 1 to {MAX_PARTS} ids of parts", param="part_ids")
    if len(set(part_ids)) < len(part_ids):
        raise InvalidRequest("part_ids names a part twice", param="part_ids")
    if md5 is not None and not (isinstance(md5, str) and _MD5.fullmatch(md5)):
        raise InvalidRequest("md5 must be 32 hexadecimal digits", param="md5")
    return Completion(part_ids, md5.lower() if md5 else None)


def _read(body: bytes, known: frozenset[str]) -> dict[str, Any]:
    fields = read_object(body)
    for name in fields:
        if name not in known:
            raise InvalidRequest(f"{name[:64]} is no field of an upload", param=name[:64])
    return fields


def _read_upload_lifetime(value: Any) -> int | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidRequest("expires_after must be an object", param="expires_after")
    if value.get("anchor") != "created_at":
        raise InvalidRequest("expires_after.anchor must be created_at", param="expires_after.anchor")
    seconds = value.get("seconds")
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not MIN_LIFETIME <= seconds <= MAX_LIFETIME:
        words = f"expires_after.seconds must be a whole number from {MIN_LIFETIME} to {MAX_LIFETIME}"
        raise InvalidRequest(words, param="expires_after.seconds")
    return seconds
