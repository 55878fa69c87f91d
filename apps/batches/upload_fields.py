"""Fields of `/v1/uploads`: what an upload is created and completed with, validated by name.

Source: `openai.types.UploadCreateParams` and `UploadCompleteParams`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from apps.batches.file_fields import MAX_LIFETIME, MIN_LIFETIME, max_bytes, read_name, read_purpose
from apps.batches.models import FilePurpose
from apps.batches.refusals import too_large_file
from apps.kernel.errors import InvalidRequest
from apps.responses.conversation_fields import read_object
from apps.responses.public_ids import is_public_id

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
    return NewUpload(size, name, purpose, _read_lifetime(fields.get("expires_after")))


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


def _read_lifetime(value: Any) -> int | None:
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
