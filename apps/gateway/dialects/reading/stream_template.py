"""Stream template: what stands around the text in one stream message after another is parsed once, then only
compared.

From one piece of text to the next most providers repeat everything else byte for byte. A message that does equals the
one before it with another text, and is not parsed again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode
# A stream whose messages differ in more than their text (in ids, in padding) is not looked at for ever.
_MAX_TRIES: Final = 3
# Takes the text's place to see whether that is all that changes. Nothing that a model says, so that it is found once.
_STAND_IN: Final = "\x00text\x00"


class StreamTemplate:
    """The bytes before and behind the text of the last message that held nothing new but text."""

    __slots__ = ("_after", "_before", "_tries")

    def __init__(self) -> None:
        self._tries = 0
        self._before = self._after = b""

    def text_of(self, message: bytes) -> str | None:
        """Return the text of a message that matches the learnt template, else None."""
        before, after = self._before, self._after
        if not (before and message.startswith(before) and message.endswith(after)):
            return None
        try:
            return _decode_text(message[len(before) : -len(after)])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # Something else stands there: not one string, or more than it.
            return None

    def learn(self, message: bytes, value: Any, text: str, place: Callable[[Any, str], None]) -> bool:
        """Learn the template around the `text` of a message that was read as `value`, and return whether it was learnt:
        where it is ambiguous, the previous template stays.

        `place` puts another text into the value, where this one stands.
        """
        if self._tries >= _MAX_TRIES:
            return False
        before, _, after = message.partition(_encode(text))
        if not before or not after:
            # Written in another way, as with escapes.
            return False
        self._tries += 1
        # The same text may occur in several places: with another text here, the rest of the value must stay the same.
        place(value, _STAND_IN)
        try:
            same = bool(msgspec.json.decode(before + _encode(_STAND_IN) + after) == value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            same = False
        if same:
            self._before, self._after = before, after
        return same
