"""Google generateContent, client side: writes the events of an answer as parts, each with the signature on it.

A call is written at once, with all of its arguments. A signature of Gemini's may come before its part or behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from apps.gateway.canonical.chat import Audio, Image
from apps.gateway.canonical.events import (
    AudioDelta,
    Event,
    ImageMade,
    OpaqueDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from apps.gateway.dialects.adapting.thinking import split_signature, stated_signature
from apps.gateway.dialects.chat.google.client.signature_carrier import write_carrier
from apps.gateway.dialects.chat.google.provider.write_contents import write_audio, write_image
from apps.gateway.dialects.chat.google.wire import IMAGE_SIGNATURE, NAME, SIGNATURE_FORMAT, TEXT_SIGNATURE
from apps.gateway.dialects.reading.fields import Record, argument_object, is_json
from apps.kernel.errors import InvalidRequest

# The audio format that Gemini writes, and the default for audio without a stated format.
_MAX_DIGITS = 6
_DEFAULT_AUDIO_FORMAT = "L16;codec=pcm;rate=24000"


class PartWriter:
    """State of an answer that is being written, with parts that wait for their place."""

    def __init__(self, *, shows_thinking: bool, audio_format: str | None = None) -> None:
        self._shows_thinking = shows_thinking
        self._audio_format = audio_format or _DEFAULT_AUDIO_FORMAT
        # Signatures of Gemini's that wait for their part.
        self._text_signature: str | None = None
        self._image_signatures: dict[int, str] = {}
        self._image_count = 0
        self._pending_image: Record | None = None
        # Other makers' thinking that no part has carried yet, block by block.
        self._blocks: dict[int, list[ReasoningDelta]] = {}
        self._calls: dict[int, tuple[ToolCallStarted, list[str]]] = {}

    def write(self, event: Event) -> list[Record]:
        """Return the parts that an event becomes, and those that waited for it."""
        write = _WRITERS.get(type(event))
        return [] if write is None else write(self, event)

    def close(self) -> list[Record]:
        """Return all that waits: the answer has come to its end."""
        parts = self._before(whole=False)
        if (carrier := self._carrier()) is not None:
            parts.append({"text": "", "thoughtSignature": carrier})
        if self._text_signature is not None:
            parts.append({"text": "", "thoughtSignature": self._text_signature})
        parts += [{"text": "", "thoughtSignature": signature} for signature in self._image_signatures.values()]
        self._text_signature = None
        self._image_signatures.clear()
        return parts

    def _before(self, *, whole: bool = True) -> list[Record]:
        """Return what has waited for an end: an image, and calls, only those that are `whole` if there may be more."""
        parts: list[Record] = []
        if self._pending_image is not None:
            parts.append(self._pending_image)
            self._pending_image = None
        for index, (call, pieces) in list(self._calls.items()):
            text = "".join(pieces)
            if whole and not is_json(text):
                break
            del self._calls[index]
            parts.append(self._call(call, text))
        return parts

    def _call(self, call: ToolCallStarted, text: str) -> Record:
        """Return a call; arguments that are no object are said as the only one."""
        call_id, carried = split_signature(call.id)
        # On one line: a line break within an event would end it.
        wire: Record = {"functionCall": {"id": call_id, "name": call.name, "args": argument_object(text)}}
        signature = stated_signature(call.extra) or carried or self._carrier()
        return wire if signature is None else {**wire, "thoughtSignature": signature}

    def _carrier(self) -> str | None:
        """Return what carries the thinking that led here, once."""
        blocks, self._blocks = self._blocks, {}
        return write_carrier([_joined(pieces) for pieces in blocks.values()]) if blocks else None

    def _text(self, event: TextDelta | RefusalDelta) -> list[Record]:
        part: Record = {"text": event.text}
        if self._text_signature is not None:
            part["thoughtSignature"], self._text_signature = self._text_signature, None
        return [*self._before(), part]

    def _think(self, event: ReasoningDelta) -> list[Record]:
        if event.format == SIGNATURE_FORMAT and event.signature is not None and not event.text and event.id is not None:
            return self._attach_signature(event.id, event.signature)
        if event.format not in (None, SIGNATURE_FORMAT):
            self._blocks.setdefault(event.block, []).append(event)
        shown: Record = {}
        if event.text and self._shows_thinking:
            shown = {"text": event.text, "thought": True}
        if event.format == SIGNATURE_FORMAT and event.signature is not None and self._shows_thinking:
            shown = {"text": event.text, "thought": True, "thoughtSignature": event.signature}
        return [*self._before(), shown] if shown else []

    def _attach_signature(self, name: str, signature: str) -> list[Record]:
        """Take in a signature of Gemini's on a text, which comes behind it, or on an image."""
        number = name.removeprefix(IMAGE_SIGNATURE)
        if name == TEXT_SIGNATURE or not number.isdecimal() or len(number) > _MAX_DIGITS:
            before = [*self._before()]
            if self._text_signature is not None:
                before.append({"text": "", "thoughtSignature": self._text_signature})
            self._text_signature = signature
            return before
        if self._pending_image is not None and int(number) == self._image_count - 1:
            self._pending_image["thoughtSignature"] = signature
            return self._before()
        self._image_signatures[int(number)] = signature
        return []

    def _call_started(self, event: ToolCallStarted) -> list[Record]:
        """Take in a call: all calls of a turn are said at once, which clients count on that run them by themselves."""
        parts = [] if self._calls else self._before()
        self._calls[event.index] = (event, [])
        return parts

    def _call_delta(self, event: ToolCallDelta) -> list[Record]:
        if event.index in self._calls:
            self._calls[event.index][1].append(event.arguments)
        return []

    def _image(self, event: ImageMade) -> list[Record]:
        parts = self._before()
        try:
            self._pending_image = write_image(Image(url=event.url))
        except InvalidRequest:
            self._pending_image = {"fileData": {"fileUri": event.url}}
        signature = self._image_signatures.pop(self._image_count, None)
        self._image_count += 1
        if signature is not None:
            self._pending_image["thoughtSignature"] = signature
        return parts

    def _audio(self, event: AudioDelta) -> list[Record]:
        parts = self._before()
        if event.data:
            parts.append(write_audio(Audio(data=event.data, format=self._audio_format)))
        return [*parts, {"text": event.transcript}] if event.transcript else parts

    def _opaque(self, event: OpaqueDelta) -> list[Record]:
        if event.dialect != NAME or event.of != "stream" or not isinstance(part := event.data.get("part"), dict):
            return []
        return [*self._before(), part]


def _joined(pieces: list[ReasoningDelta]) -> ReasoningDelta:
    """Return a block of thinking whole: its text, and of everything else the last that was said."""
    whole = ReasoningDelta(text="".join(piece.text for piece in pieces), summary=pieces[0].summary)
    for piece in pieces:
        whole.signature = piece.signature or whole.signature
        whole.data = piece.data or whole.data
        whole.id = piece.id or whole.id
        whole.format = piece.format or whole.format
    return whole


_WRITERS = cast(
    dict[type[Event], Callable[[PartWriter, Event], list[Record]]],
    {
        TextDelta: PartWriter._text,
        RefusalDelta: PartWriter._text,
        ReasoningDelta: PartWriter._think,
        ToolCallStarted: PartWriter._call_started,
        ToolCallDelta: PartWriter._call_delta,
        ImageMade: PartWriter._image,
        AudioDelta: PartWriter._audio,
        OpaqueDelta: PartWriter._opaque,
    },
)
