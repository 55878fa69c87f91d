"""Request field readers of client sides: small validators that tables combine, with errors that name the field.

A reader takes a parsed JSON value and returns what it means, or raises Malformed. Where the value lies is added on the
way up, so that a good request pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

import msgspec

from apps.kernel.errors import InvalidRequest
from apps.kernel.json_bounds import Bounds, OutOfBounds, check, decode_text_within

T = TypeVar("T")
Record = dict[str, Any]
Reader = Callable[[Any], T]

MAX_DEPTH = 128
# Bytes up to which a body passes no bound but that on depth, so that it is parsed right away.
SMALL = 64 * 1024
# Bounds of one body: the longest recorded conversations of agents have a tenth of these values.
# Text: models of two million tokens read 8 MB of English or 15 MB of Chinese in escapes; the estimate of tokens
# (four bytes each) may be wrong by half.
BOUNDS = Bounds(values=200_000, depth=MAX_DEPTH, name=SMALL, digits=SMALL, text=20 * 1024 * 1024)
# Values in all fields of a body together that are no part of the conversation, unknown ones first of all.
MAX_VALUES_BESIDE = 10_000
# Characters of a client's own name that a refusal repeats.
MAX_QUOTED_NAME = 100
# Characters of the name of a model or a provider.
MAX_NAME: Final = 512
_DECODER = msgspec.json.Decoder()


class Malformed(Exception):
    """A value that cannot be taken. `at` is the path to it as far as it is known."""

    def __init__(self, problem: str, at: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.at = at

    def under(self, name: str) -> Malformed:
        """Return the same refusal, seen from the object that holds the value as `name`."""
        joint = "" if not self.at or self.at.startswith("[") else "."
        return Malformed(self.problem, f"{name}{joint}{self.at}")

    def as_error(self) -> InvalidRequest:
        """Return the answer to the client."""
        return InvalidRequest(f"{self.at}: {self.problem}", code="invalid_parameters", param=self.at)


def read_json(body: bytes) -> Record:
    """Return the object that a body holds. Raises InvalidRequest (`invalid_json`)."""
    small = len(body) <= SMALL
    try:
        if not small:
            check(body, BOUNDS)
        value = _DECODER.decode(body)
    except OutOfBounds as passed:
        too_long = passed.bound == "text"
        raise InvalidRequest(
            f"The request body {passed}{', which is more than any model reads' if too_long else ''}",
            code="context_length_exceeded" if too_long else "invalid_json",
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        if not body.strip():
            raise _not_json("The request body is not valid JSON: it is empty, send an object") from None
        raise _not_json(f"The request body is not valid JSON: {error}") from None
    except RecursionError:
        raise _not_json("The request body is nested too deeply") from None
    if not isinstance(value, dict):
        raise _not_json("The request body must be a JSON object")
    # A body with fewer opening brackets cannot be nested so deeply.
    if small and body.count(b"{") + body.count(b"[") > MAX_DEPTH and not _shallow(value.values(), MAX_DEPTH - 1):
        raise _not_json("The request body is nested too deeply")
    return value


def _shallow(values: Iterable[Any], depth: int) -> bool:
    """Return whether values nest less deeply than that."""
    for value in values:
        kind = type(value)
        if kind is dict:
            if depth == 0 or not _shallow(value.values(), depth - 1):
                return False
        elif kind is list and (depth == 0 or not _shallow(value, depth - 1)):
            return False
    return True


def check_beside(wire: Record, body: bytes, conversation: frozenset[str]) -> None:
    """Raise Malformed, which names the field, where a body's fields hold too many values together, those of the
    conversation aside: they are checked less closely."""
    if len(body) <= 2 * MAX_VALUES_BESIDE:
        return
    left = MAX_VALUES_BESIDE
    for name in wire.keys() - conversation:
        pending = [wire[name]]
        while pending:
            left -= 1
            if left < 0:
                problem = f"holds too many values: at most {MAX_VALUES_BESIDE} may stand beside the conversation"
                raise Malformed(problem, name[:MAX_QUOTED_NAME])
            inner = pending.pop()
            if isinstance(inner, dict):
                pending.extend(inner.values())
            elif isinstance(inner, list):
                pending.extend(inner)


def read_body(body: bytes, conversation: frozenset[str], read: Reader[T]) -> T:
    """Read the object that a body holds. Raises InvalidRequest naming the field; `conversation` as `check_beside`."""
    wire = read_json(body)
    try:
        check_beside(wire, body, conversation)
        return read(wire)
    except Malformed as refusal:
        raise refusal.as_error() from None


def _not_json(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="invalid_json")


def within(name: str, read: Reader[T], value: Any) -> T:
    """Read the value that lies at `name`."""
    try:
        return read(value)
    except Malformed as refusal:
        raise refusal.under(name) from None


def required(record: Record, name: str, read: Reader[T]) -> T:
    """Read a field that must be there; null is absent."""
    value = record.get(name)
    if value is None:
        raise Malformed("Required", name)
    return within(name, read, value)


def optional(record: Record, name: str, read: Reader[T]) -> T | None:
    """Read a field that may be missing or null."""
    value = record.get(name)
    return None if value is None else within(name, read, value)


def read_known(wire: Record, readers: Mapping[str, Reader[Any]]) -> tuple[Record, Record]:
    """Return what the fields mean that have a reader, and the others as they are; null is absent."""
    known: Record = {}
    unknown: Record = {}
    name = ""
    try:
        for name, value in wire.items():
            if value is None:
                continue
            read = readers.get(name)
            if read is None:
                unknown[name] = value
            else:
                known[name] = read(value)
    except Malformed as refusal:
        raise refusal.under(name) from None
    return known, unknown


def rest_of(record: Record, known: frozenset[str]) -> Record | None:
    """Return the fields beyond the known ones that say something, None when there are none."""
    if record.keys() <= known:
        return None
    return {name: value for name, value in record.items() if name not in known and value is not None} or None


def string(value: Any) -> str:
    """Read a string."""
    if isinstance(value, str):
        return value
    raise Malformed("must be a string")


def filled_string(value: Any) -> str:
    """Read a string that is not empty."""
    if string(value):
        return cast(str, value)
    raise Malformed("must not be empty")


def bounded_name(value: Any) -> str:
    """Read the name of a model or a provider."""
    if len(filled_string(value)) > MAX_NAME:
        raise Malformed(f"must be at most {MAX_NAME} characters long")
    return str(value)


def boolean(value: Any) -> bool:
    """Read true or false."""
    if isinstance(value, bool):
        return value
    raise Malformed("must be true or false")


def record(value: Any) -> Record:
    """Read an object."""
    if isinstance(value, dict):
        return value
    raise Malformed("must be an object")


def number(low: float, high: float) -> Reader[float]:
    """Return the reader of a number from `low` to `high`."""

    def read(value: Any) -> float:
        if not _is_number(value):
            raise Malformed("must be a number")
        if not low <= value <= high:
            raise Malformed(f"must be between {low:g} and {high:g}")
        return cast(float, value)

    return read


def integer(low: int | None = None, high: int | None = None) -> Reader[int]:
    """Return the reader of a whole number within bounds; `5.0` is whole."""

    def read(value: Any) -> int:
        if not _is_number(value) or value != int(value):
            raise Malformed("must be an integer")
        if (low is None or value >= low) and (high is None or value <= high):
            return int(value)
        raise Malformed(f"must be at least {low}" if high is None else f"must be between {low} and {high}")

    return read


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def one_of(*words: str) -> Reader[Any]:
    """Return the reader of one of some words."""
    allowed = frozenset(words)

    def read(value: Any) -> Any:
        if isinstance(value, str) and value in allowed:
            return value
        raise Malformed(f"must be one of {', '.join(words)}")

    return read


def list_of(read: Reader[T], most: int) -> Reader[list[T]]:
    """Return the reader of an array of at most so many."""

    def read_all(value: Any) -> list[T]:
        if not isinstance(value, list):
            raise Malformed("must be an array")
        if len(value) > most:
            raise Malformed(f"must hold at most {most} entries")
        done: list[T] = []
        try:
            done.extend(map(read, value))
        except Malformed as refusal:
            # The items before the fault have been added: the next one is at fault.
            raise refusal.under(f"[{len(done)}]") from None
        return done

    return read_all


def pick(readers: Mapping[str, Reader[T]], by: str) -> Callable[[Record], T]:
    """Return the reader that hands an object over to the reader that its field `by` names."""
    names = ", ".join(readers)

    def read(value: Record) -> T:
        name = value.get(by)
        if name is None:
            raise Malformed("Required", by)
        reader = readers.get(name) if isinstance(name, str) else None
        if reader is None:
            raise Malformed(f"must be one of {names}", by)
        return reader(value)

    return read


def union(readers: Mapping[str, Reader[Any]]) -> Reader[Any]:
    """Return the reader of an object that has exactly one of these members, and is what this member means."""
    names = ", ".join(readers)

    def read(value: Any) -> Any:
        stated = [name for name, member in record(value).items() if member is not None]
        if len(stated) != 1 or stated[0] not in readers:
            raise Malformed(f"must have exactly one of {names}")
        return within(stated[0], readers[stated[0]], value[stated[0]])

    return read


# Values that models and providers write for a call without arguments, instead of an empty object.
_NOTHING: Final = frozenset({"", "null", '""'})


def is_empty_arguments(arguments: str) -> bool:
    """Return whether the text of a call's arguments stands for no arguments."""
    return arguments.strip() in _NOTHING


def argument_object(arguments: str) -> Any:
    """Return the text of a call's arguments as an object, on one line and with all of its digits. Arguments that are
    no object become the only one, `input`."""
    if is_json(arguments, dict):
        return msgspec.Raw(msgspec.json.format(arguments.encode("utf-8", "replace"), indent=-1))
    return {} if is_empty_arguments(arguments) else {"input": arguments}


def is_json(text: str, kind: type = object) -> bool:
    """Return whether a text is the whole of a JSON value of a kind."""
    try:
        return isinstance(decode_text_within(text, BOUNDS), kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False


# How many of an image's first bytes tell its type. PNG, JPEG, GIF and WebP are the formats that providers take; bytes
# without an image may be text, so these are exact (ADR 0104 says why no library does it).
IMAGE_HEAD: Final = 12
_MAGIC: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def image_type_of(data: bytes) -> str | None:
    """Return the media type of an image by its first bytes, None when they begin none of these formats."""
    if data[:4] == b"RIFF" and data[8:IMAGE_HEAD] == b"WEBP":
        return "image/webp"
    return next((media_type for magic, media_type in _MAGIC if data.startswith(magic)), None)
