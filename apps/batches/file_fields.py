"""Fields of `/v1/files`: the form of an upload and the query of a list, validated and bounded. Pure.

Bounds: OpenAI's API (purposes, 1 hour to 30 days of life, 10,000 files a page).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from apps.batches.models import FilePurpose
from apps.gateway.dialects.images.client.image_inputs import FormField
from apps.kernel.errors import InvalidRequest
from apps.responses.paging import last_of

LEAST_LIFETIME, MOST_LIFETIME = 3_600, 2_592_000
# What may be uploaded; the rest is what batches write.
PURPOSES: Final = ("assistants", "batch", "evals", "fine-tune", "user_data", "vision")
_MOST_PAGE, _MOST_DIGITS = 10_000, 8
# More than these a page does not hold, whatever is asked for: the client asks for the next.
LARGEST_PAGE: Final = 1_000
_LONGEST_NAME = 255
# Anthropic's word for a life in seconds, and the longest that it takes: nothing is kept longer than the log.
_LIFETIME, _MOST_LIFETIME = "expires_in_seconds", 7_776_000
_ANCHOR, _SECONDS = "expires_after[anchor]", "expires_after[seconds]"


@dataclass(frozen=True, slots=True)
class Upload:
    """A file as a client sends it; `lifetime` is in seconds, None where nothing is said."""

    name: str
    purpose: FilePurpose
    content: bytes
    lifetime: int | None


@dataclass(frozen=True, slots=True)
class Listing:
    """Which rows of a list a client asks for; `after` is the id of the one before the first."""

    limit: int
    order: Literal["asc", "desc"]
    after: str | None
    purpose: str | None = None


def read_upload(form: Sequence[FormField]) -> Upload:
    """Return the file of a form. Raises InvalidRequest naming the field."""
    fields = _fields_of(form)
    name, content = _file_of(fields)
    purpose = _text(fields, "purpose")
    if purpose not in PURPOSES:
        raise InvalidRequest(f"purpose must be one of {', '.join(PURPOSES)}", param="purpose")
    return Upload(name, FilePurpose(purpose), content, _read_lifetime(fields))


def read_anthropic_upload(form: Sequence[FormField]) -> Upload:
    """Return the file of a form of Anthropic's, which has no purposes. Raises InvalidRequest naming the field."""
    fields = _fields_of(form)
    name, content = _file_of(fields)
    lifetime = None
    if _LIFETIME in fields:
        lifetime = read_number(_text(fields, _LIFETIME) or "")
        if lifetime is None or not LEAST_LIFETIME <= lifetime <= _MOST_LIFETIME:
            words = f"{_LIFETIME} must be a whole number from {LEAST_LIFETIME} to {_MOST_LIFETIME}"
            raise InvalidRequest(words, param=_LIFETIME)
    return Upload(name, FilePurpose.USER_DATA, content, lifetime)


def _fields_of(form: Sequence[FormField]) -> dict[str, FormField]:
    fields: dict[str, FormField] = {}
    for field in form:
        if field.name in fields:
            raise InvalidRequest(f"{field.name} is given twice", param=field.name)
        fields[field.name] = field
    return fields


def _file_of(fields: Mapping[str, FormField]) -> tuple[str, bytes]:
    """Return the name and the content of the file that every upload brings."""
    file = fields.get("file")
    if file is None or file.filename is None:
        raise InvalidRequest("file is required, as a file with a name", param="file")
    name = file.filename
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise InvalidRequest(f"The name of file must be 1 to {_LONGEST_NAME} printable characters", param="file")
    if not file.data:
        raise InvalidRequest("file is empty", param="file")
    return name, file.data


def read_listing(query: Mapping[str, Sequence[str]], *, usual: int, most: int = _MOST_PAGE) -> Listing:
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
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS else None


def _read_lifetime(fields: Mapping[str, FormField]) -> int | None:
    if _ANCHOR not in fields and _SECONDS not in fields:
        return None
    if _text(fields, _ANCHOR) != "created_at":
        raise InvalidRequest(f"{_ANCHOR} must be created_at", param=_ANCHOR)
    seconds = read_number(_text(fields, _SECONDS) or "")
    if seconds is None or not LEAST_LIFETIME <= seconds <= MOST_LIFETIME:
        raise InvalidRequest(
            f"{_SECONDS} must be a whole number from {LEAST_LIFETIME} to {MOST_LIFETIME}", param=_SECONDS
        )
    return seconds


def _text(fields: Mapping[str, FormField], name: str) -> str | None:
    field = fields.get(name)
    if field is None or field.filename is not None:
        return None
    return field.data[:_LONGEST_NAME].decode("utf-8", "replace")
