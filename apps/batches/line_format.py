"""Lines of a batch's input: one JSON object a line, validated by field with the number of its line. Pure.

Source: OpenAI's Batch API (`custom_id`, `method`, `url`, `body`; codes of errors as its clients report them). The
endpoint validates the body when it answers the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from apps.gateway.dialects.reading.fields import read_json
from apps.kernel.errors import InvalidRequest

# Lines of a batch, characters of a custom id, and reported errors of a file.
MAX_LINES: Final = 50_000
MAX_CUSTOM_ID: Final = 512
MAX_ERRORS: Final = 100


class LineRequest(msgspec.Struct, frozen=True):
    """The request of a line; its endpoint gets `body`."""

    custom_id: str
    body: msgspec.Raw


class LineError(msgspec.Struct, frozen=True):
    """An error in an input file; `line` counts from 1, None for the whole file."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


class WrongLine(ValueError):
    """A line that cannot be asked; `error` says why."""

    def __init__(self, error: LineError) -> None:
        super().__init__(error.message)
        self.error = error


class _Members(msgspec.Struct):
    custom_id: Any = None
    method: Any = None
    url: Any = None
    body: msgspec.Raw = msgspec.Raw(b"null")


_DECODER: Final = msgspec.json.Decoder(_Members)


class LineReader:
    """Reads lines of one input, each of which is for the same endpoint, given as its path."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._custom_ids: set[str] = set()

    def read(self, text: bytes, number: int) -> LineRequest:
        """Return what a line asks. Raises WrongLine."""
        try:
            # Bounded as a body of its own would be: it becomes one.
            given = read_json(text)
        except InvalidRequest as error:
            said = error.message.replace("The request body", "This line")
            raise WrongLine(LineError("invalid_json_line", said, line=number)) from None
        members = _DECODER.decode(text)
        custom_id = self._read_custom_id(members.custom_id, number)
        if members.method != "POST":
            raise _wrong(members.method, "method", "must be POST", "invalid_method", number)
        if members.url != self._endpoint:
            said = f"must be the batch's endpoint, {self._endpoint}"
            raise _wrong(members.url, "url", said, "url_mismatch", number)
        body = given.get("body")
        if not isinstance(body, dict) or not body:
            raise _wrong(body, "body", "must be an object", "invalid_body", number)
        if (flag := find_wrong_flag(body)) is not None:
            raise _wrong(True, f"body.{flag}", "must be false in a batch", "invalid_body", number)
        return LineRequest(custom_id, members.body)

    def _read_custom_id(self, value: Any, number: int) -> str:
        if not isinstance(value, str) or not 1 <= len(value) <= MAX_CUSTOM_ID:
            said = f"must be a string of 1 to {MAX_CUSTOM_ID} characters"
            raise _wrong(value, "custom_id", said, "invalid_custom_id", number)
        if value in self._custom_ids:
            raise WrongLine(self.error_of_known_id(number))
        self._custom_ids.add(value)
        return value

    @staticmethod
    def error_of_known_id(number: int) -> LineError:
        """Return the error of a line whose custom id an earlier line has."""
        return LineError("duplicate_custom_id", "custom_id is that of an earlier line", "custom_id", number)


def find_wrong_flag(body: dict[str, Any]) -> str | None:
    """Return the name of a field that no batch can honor: no client follows the answer."""
    return next((name for name in ("stream", "background") if body.get(name)), None)


def lines_of(chunks: Iterable[bytes], most: int | None = None) -> Iterator[bytes]:
    """Yield the lines of a content that comes in chunks, without their ends; the last may have none.

    One that is longer than `most` bytes is cut a chunk or so behind that, and nothing follows it.
    """
    rest: list[bytes] = []
    size = 0
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        rest.append(first)
        size += len(first)
        if most is not None and size > most:
            yield b"".join(rest)
            return
        if others:
            size = len(others[-1])
        for line in others:
            yield b"".join(rest)
            rest = [line]
    if last := b"".join(rest):
        yield last


def _wrong(value: Any, param: str, said: str, code: str, number: int) -> WrongLine:
    if value is None:
        return WrongLine(LineError("missing_required_parameter", f"{param} is required", param, number))
    return WrongLine(LineError(code, f"{param} {said}", param, number))
