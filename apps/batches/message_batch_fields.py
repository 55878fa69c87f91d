"""Fields of `POST /v1/messages/batches`, validated by name, and its requests as the lines of an input. Pure.

Source: `anthropic.types.messages.batch_create_params`, and Anthropic's documentation for the form of custom ids.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from apps.batches.line_call import MESSAGES
from apps.batches.line_format import MAX_LINES, find_wrong_flag
from apps.gateway.dialects.reading.fields import read_json
from apps.kernel.errors import InvalidRequest

_CUSTOM_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_KNOWN: Final = frozenset({"requests", "user_profile_id"})
# Requests are read one by one: each has the bounds of a body of its own.
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRIES: Final = msgspec.json.Decoder(list[msgspec.Raw])
_NOTHING: Final = msgspec.Raw(b"null")


def read_requests(body: bytes) -> tuple[int, bytes]:
    """Return how many requests a body has, and all of them as the lines of an input.

    Raises InvalidRequest naming the field.
    """
    try:
        given = _MEMBERS.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise InvalidRequest("The request body must be a JSON object", code="invalid_json") from None
    for name in given.keys() - _KNOWN:
        raise InvalidRequest(f"{name[:64]}: is no field of a message batch", param=name[:64])
    try:
        entries = _ENTRIES.decode(given.get("requests", _NOTHING))
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise _wrong("requests", "must be a list of requests") from None
    if not 1 <= len(entries) <= MAX_LINES:
        raise _wrong("requests", f"must be 1 to {MAX_LINES} requests")
    seen: set[str] = set()
    return len(entries), b"\n".join(_read(entry, f"requests.{index}", seen) for index, entry in enumerate(entries))


def _read(entry: msgspec.Raw, place: str, seen: set[str]) -> bytes:
    """Return a request as a line. Raises InvalidRequest naming the field."""
    try:
        members = _MEMBERS.decode(entry)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise _wrong(place, "must be an object") from None
    custom_id: Any = msgspec.json.decode(members.get("custom_id", _NOTHING))
    if not isinstance(custom_id, str) or not _CUSTOM_ID.fullmatch(custom_id):
        raise _wrong(f"{place}.custom_id", f"must match {_CUSTOM_ID.pattern}")
    if custom_id in seen:
        raise _wrong(f"{place}.custom_id", "is that of an earlier request")
    seen.add(custom_id)
    # A line has one line: outside of texts a line's end is a blank, and inside there is none.
    params = bytes(members.get("params", _NOTHING)).replace(b"\n", b" ")
    try:
        wrong = find_wrong_flag(read_json(params))
    except InvalidRequest as error:
        said = error.message.removeprefix("The request body ")
        raise InvalidRequest(f"{place}.params: {said}", code=error.code, param=f"{place}.params") from None
    if wrong is not None:
        raise _wrong(f"{place}.params.{wrong}", "must be false in a batch")
    line = {"custom_id": custom_id, "method": "POST", "url": MESSAGES, "body": msgspec.Raw(params)}
    return msgspec.json.encode(line)


def _wrong(place: str, said: str) -> InvalidRequest:
    return InvalidRequest(f"{place}: {said}", param=place)
