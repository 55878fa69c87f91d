"""Anthropic Messages, client side: writes the content blocks of a stream. Exactly one block is open at a time; deltas
of a later block wait.

Other formats write several calls at once. A call is over when its arguments are a whole JSON value and another block
waits, or when the answer ends. Must never know what stands around blocks.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from apps.gateway.canonical.events import ReasoningDelta
from apps.gateway.dialects.adapting.document_citations import LOCATIONS
from apps.gateway.dialects.chat.anthropic.provider.write_messages import split_data_url
from apps.gateway.dialects.chat.anthropic.shared.wire import CALLER, SIGNATURE_FORMAT, encode

Record = dict[str, Any]


def sse(event: Record) -> bytes:
    """Return an event, framed under its own type."""
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), encode(event))


def write_thinking(block: ReasoningDelta) -> Record:
    """Return a block of thinking. One signed by another maker says whose signature it is, for when it comes back."""
    if block.data is not None:
        wire: Record = {"type": "redacted_thinking", "data": block.data}
    else:
        wire = {"type": "thinking", "thinking": block.text, "signature": block.signature or ""}
    if block.format not in (None, SIGNATURE_FORMAT):
        wire["format"] = block.format
    if block.id is not None:
        wire["id"] = block.id
    return wire


def write_call(call_id: str, name: str) -> Record:
    """Return a call without its arguments."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}}


def write_image(url: str) -> Record:
    """Return an image that the model made, in the form in which this format is shown images."""
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    media_type, data = split_data_url(url)
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def write_citation(note: Record, text: str) -> Record:
    """Return a citation: of a document as it is, of a page of the web for a place in `text`, which is all that was said
    before it.

    The index of a page is empty: only Anthropic has one, and takes the citation back with it.
    """
    if note.get("type") in LOCATIONS:
        return note
    cited = note.get("url_citation")
    page: Record = cited if isinstance(cited, dict) else {}
    start, end = page.get("start_index"), page.get("end_index")
    return {
        "type": "web_search_result_location",
        "url": page.get("url", ""),
        "title": page.get("title"),
        "cited_text": text[start:end] if isinstance(start, int) and isinstance(end, int) else "",
        "encrypted_index": "",
    }


class Blocks:
    """The blocks that are not over yet: the first of them is open."""

    def __init__(self) -> None:
        self._waiting: deque[_Block] = deque()
        self._calls: dict[int, _Block] = {}
        self._index = 0

    def say(self, text: str) -> bytes:
        """Return what more text becomes."""
        if not text:
            return b""
        return self._on_text({"type": "text_delta", "text": text})

    def think(self, event: ReasoningDelta) -> bytes:
        """Return what more thinking becomes."""
        if event.data is not None:
            return self._add(_Block("", write_thinking(event)))
        last = self._last("thinking")
        piece = b""
        if last is None or last.number != event.block:
            empty = ReasoningDelta(format=event.format, id=event.id)
            last = _Block("thinking", write_thinking(empty), number=event.block)
            piece = self._add(last)
        if event.text:
            piece += self._go_on(last, {"type": "thinking_delta", "thinking": event.text})
        if event.signature:
            piece += self._go_on(last, {"type": "signature_delta", "signature": event.signature})
        return piece

    def call(self, number: int, call_id: str, name: str, extra: Record | None = None) -> bytes:
        """Return what the beginning of a call becomes."""
        caller = {CALLER: extra[CALLER]} if extra and CALLER in extra else {}
        block = self._calls[number] = _Block("tool_use", {**write_call(call_id, name), **caller})
        return self._add(block)

    def argue(self, number: int, arguments: str) -> bytes:
        """Return what more of a call's arguments becomes. What follows whole arguments says nothing any more."""
        block = self._calls.get(number)
        if block is None or block.over or not arguments:
            return b""
        block.arguments.append(arguments)
        return self._go_on(block, {"type": "input_json_delta", "partial_json": arguments}) + self._advance()

    def cite(self, citation: Record) -> bytes:
        """Return what a citation becomes: one of the text that was just written."""
        return self._on_text({"type": "citations_delta", "citation": citation})

    def show(self, block: Record) -> bytes:
        """Return what the beginning of a block of any other kind becomes, or the whole of it."""
        return self._add(_Block("text" if block.get("type") == "text" else "", block))

    def go_on(self, delta: Record) -> bytes:
        """Return what a delta of this very format becomes: one of the last block."""
        return self._go_on(self._waiting[-1], delta) if self._waiting else b""

    def close(self) -> bytes:
        """Return the rest of all blocks."""
        pieces: list[bytes] = []
        while self._waiting:
            pieces.append(self._stop())
        return b"".join(pieces)

    def _on_text(self, delta: Record) -> bytes:
        """Return a delta of the last block if that is text, else of one that begins with it."""
        block, piece = self._last("text"), b""
        if block is None:
            block = _Block("text", {"type": "text", "text": ""})
            piece = self._add(block)
        return piece + self._go_on(block, delta)

    def _last(self, kind: str) -> _Block | None:
        """Return the last block if it is of that kind."""
        return self._waiting[-1] if self._waiting and self._waiting[-1].kind == kind else None

    def _add(self, block: _Block) -> bytes:
        self._waiting.append(block)
        return self._start(block) if len(self._waiting) == 1 else self._advance()

    def _go_on(self, block: _Block, delta: Record) -> bytes:
        """Return a delta of the open block; one of another block waits with it."""
        if block is not self._waiting[0]:
            block.deltas.append(delta)
            return b""
        return sse({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _start(self, block: _Block) -> bytes:
        """Return the beginning of a block and what has waited for it."""
        pieces = [sse({"type": "content_block_start", "index": self._index, "content_block": block.start})]
        pieces += [self._go_on(block, delta) for delta in block.deltas]
        return b"".join(pieces)

    def _advance(self) -> bytes:
        """Return the ends of blocks that are over, and the beginnings of those that waited for them."""
        pieces: list[bytes] = []
        while len(self._waiting) > 1 and self._waiting[0].is_whole():
            pieces.append(self._stop())
        return b"".join(pieces)

    def _stop(self) -> bytes:
        """Return the end of the open block, and the beginning of the next one."""
        self._waiting.popleft().over = True
        piece = sse({"type": "content_block_stop", "index": self._index})
        self._index += 1
        return piece + self._start(self._waiting[0]) if self._waiting else piece


class _Block:
    """A block that is not over: what it begins with, and the deltas that wait until it is open."""

    __slots__ = ("arguments", "deltas", "kind", "number", "over", "start")

    def __init__(self, kind: str, start: Record, *, number: int = 0) -> None:
        self.kind = kind
        self.start = start
        self.number = number
        self.over = False
        self.arguments: list[str] = []
        self.deltas: list[Record] = []

    def is_whole(self) -> bool:
        """Return whether nothing more can come: any block but a call's is over as soon as another begins."""
        if self.kind != "tool_use":
            return True
        try:
            msgspec.json.decode("".join(self.arguments))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return False
        return True
