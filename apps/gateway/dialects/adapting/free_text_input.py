"""Free text input: the text of a custom tool's call, read out of the JSON arguments of the function that emulates it.

Reads arguments as they stream: text goes on as soon as it cannot change any more. Pure. Must never know a format.
"""

from __future__ import annotations

import json
import re
from typing import Final

# The function's only argument.
FIELD: Final = "input"
_BEGINNING: Final = re.compile(r'\s*\{\s*"input"\s*:\s*"')
# Whole characters and whole escapes of a JSON string. One half of a surrogate pair waits for the other.
_WHOLE: Final = re.compile(
    r"""(?:[^"\\]+|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*"""
)
_HALF: Final = re.compile(r"\\u[0-9a-fA-F]{4}")


class FreeTextInput:
    """One call's arguments on their way."""

    __slots__ = ("_begun", "_over", "_waiting")

    def __init__(self) -> None:
        self._waiting = ""
        self._begun = self._over = False

    def feed(self, arguments: str) -> str:
        """Return the text that further arguments bring."""
        if self._over:
            return ""
        self._waiting += arguments
        if not self._begun:
            if (beginning := _BEGINNING.match(self._waiting)) is None:
                return ""
            self._begun = True
            self._waiting = self._waiting[beginning.end() :]
        return self._read()

    def end(self) -> str:
        """Return what is left to say once no arguments follow; arguments of another shape are taken as they are."""
        waiting, self._waiting = self._waiting, ""
        over, self._over = self._over, True
        if over:
            return ""
        if self._begun:
            # Cut off in the middle of an escape.
            return ""
        try:
            value = json.loads(waiting, strict=False)
        except ValueError:
            return waiting
        if isinstance(value, dict):
            texts = [text for text in (value.get(FIELD), *value.values()) if isinstance(text, str)]
            return _sound(texts[0]) if texts else ("" if not value else waiting)
        return _sound(value) if isinstance(value, str) else waiting

    def _read(self) -> str:
        pieces: list[str] = []
        while True:
            whole = _WHOLE.match(self._waiting)
            end = whole.end() if whole is not None else 0
            pieces.append(self._waiting[:end])
            self._waiting = self._waiting[end:]
            half = _HALF.match(self._waiting)
            if half is None or len(self._waiting) < half.end() + 2 or self._waiting.startswith("\\u", half.end()):
                break
            # Half of a pair that no other half follows.
            pieces.append("\\ufffd")
            self._waiting = self._waiting[half.end() :]
        if self._waiting.startswith('"'):
            self._over, self._waiting = True, ""
        return _sound(json.loads(f'"{"".join(pieces)}"', strict=False))


def _sound(text: str) -> str:
    """Return the text without halves of surrogate pairs, which no encoding has."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
