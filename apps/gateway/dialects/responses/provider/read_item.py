"""The items of an answer in the Responses format to canonical events: messages, thinking, calls, pictures, and what
only this format has.

Every item is read twice: while it streams, and as the whole that it is when it is done. What the whole has beyond what
streamed is added then, so that a plain answer is nothing but items that did not stream. Must never know what stands
around items.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.events import (
    Annotated,
    Event,
    ImageMade,
    Logprobs,
    OpaqueDelta,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from apps.gateway.dialects.responses.shared.wire import NAME, OPEN_SEAL, SEAL, Record, encode, mint, text_of

# Which piece of an item a delta belongs to: its kind there, and the field that numbers it.
DELTAS = {
    "response.output_text.delta": ("output_text", "content_index"),
    "response.refusal.delta": ("refusal", "content_index"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index"),
    "response.reasoning_text.delta": ("reasoning_text", "content_index"),
    "response.function_call_arguments.delta": ("arguments", ""),
    "response.custom_tool_call_input.delta": ("arguments", ""),
}
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_SEALS = {"summary": SEAL, "reasoning_text": OPEN_SEAL}


class _Piece:
    """A part of an item's text: what was said of it so far."""

    __slots__ = ("annotations", "at", "block", "text")

    def __init__(self, at: int, block: int) -> None:
        self.at = at
        self.block = block
        self.text: list[str] = []
        self.annotations = 0


class _Item:
    """An item that has begun."""

    __slots__ = ("call", "done", "id", "kind", "pieces")

    def __init__(self, wire: Record) -> None:
        self.kind = text_of(wire.get("type")) or ""
        self.id = text_of(wire.get("id"))
        self.call: int | None = None
        self.done = False
        self.pieces: dict[tuple[str, int], _Piece] = {}


class ItemReader:
    """What has been read of an answer's items so far."""

    def __init__(self) -> None:
        self.calls = self.searches = 0
        self._items: dict[int, _Item] = {}
        self._blocks = self._written = 0
        self._foreign: list[Record] = []

    @property
    def seen(self) -> bool:
        """Whether there was any item."""
        return bool(self._items)

    def begin(self, index: int, wire: Any, events: list[Event]) -> None:
        """Add the events of an item that begins."""
        if isinstance(wire, dict) and index not in self._items:
            item = self._items[index] = _Item(wire)
            self._name_call(item, wire, events)

    def go_on(self, index: int, kind: str, number: Any, delta: Any, events: list[Event]) -> None:
        """Add the events of a delta: more of the piece `number` of an item."""
        if isinstance(delta, str) and delta:
            item = self._items.get(index)
            if item is None:
                item = self._items[index] = _Item({})
            self._say(item, kind, number if isinstance(number, int) else 0, delta, events)

    def annotate(self, index: int, number: Any, annotation: Any, events: list[Event]) -> None:
        """Add a citation of a piece of text."""
        item = self._items.get(index)
        if item is not None:
            self._annotate(
                self._piece(item, "output_text", number if isinstance(number, int) else 0), annotation, events
            )

    def end(self, index: int, wire: Any, events: list[Event]) -> None:
        """Add what a whole item has beyond what was said of it."""
        if not isinstance(wire, dict):
            return
        item = self._items.get(index)
        if item is None:
            item = self._items[index] = _Item(wire)
        if item.done:
            return
        item.done = True
        item.kind, item.id = text_of(wire.get("type")) or item.kind, item.id or text_of(wire.get("id"))
        if item.kind == "message":
            self._end_message(item, wire, events)
        elif item.kind == "reasoning":
            self._end_reasoning(item, wire, events)
        elif item.kind in _CALLS:
            self._name_call(item, wire, events)
            arguments = wire.get(_CALLS[item.kind])
            whole = arguments if isinstance(arguments, str) or arguments is None else encode(arguments).decode()
            self._complete(item, "arguments", 0, whole, events)
        elif item.kind == "image_generation_call" and (picture := text_of(wire.get("result"))):
            media_type = text_of(wire.get("output_format")) or "png"
            events.append(ImageMade(url=f"data:image/{media_type};base64,{picture}"))
        else:
            self._end_foreign(item, wire)

    def close(self, events: list[Event]) -> None:
        """Add what no other format has words for."""
        if self._foreign:
            events.append(OpaqueDelta(dialect=NAME, data={"output": self._foreign}))

    def _name_call(self, item: _Item, wire: Record, events: list[Event]) -> None:
        """Announce a call as soon as its name is known."""
        name = text_of(wire.get("name"))
        if item.kind not in _CALLS or item.call is not None or name is None:
            return
        item.call = self.calls
        self.calls += 1
        extra: Record = {"type": "custom"} if item.kind == "custom_tool_call" else {}
        if namespace := text_of(wire.get("namespace")):
            extra["namespace"] = namespace
        call_id = text_of(wire.get("call_id")) or item.id or mint("call_")
        events.append(ToolCallStarted(index=item.call, id=call_id, name=name, extra=extra or None))
        if waiting := item.pieces.get(("arguments", 0)):
            events.append(ToolCallDelta(index=item.call, arguments="".join(waiting.text)))

    def _piece(self, item: _Item, kind: str, number: int) -> _Piece:
        piece = item.pieces.get((kind, number))
        if piece is None:
            piece = item.pieces[kind, number] = _Piece(self._written, self._blocks)
            self._blocks += kind in _SEALS
        return piece

    def _say(self, item: _Item, kind: str, number: int, text: str, events: list[Event]) -> None:
        """Add more of a piece."""
        piece = self._piece(item, kind, number)
        piece.text.append(text)
        if kind == "output_text":
            self._written += len(text)
            events.append(TextDelta(text=text))
        elif kind == "refusal":
            events.append(RefusalDelta(text=text))
        elif kind in _SEALS:
            told = ReasoningDelta(
                text=text, summary=kind == "summary", id=item.id, format=_SEALS[kind], block=piece.block
            )
            events.append(told)
        elif item.call is not None:
            events.append(ToolCallDelta(index=item.call, arguments=text))

    def _complete(self, item: _Item, kind: str, number: int, whole: Any, events: list[Event]) -> None:
        """Add what is missing of a piece now that it is known as a whole."""
        if not isinstance(whole, str):
            return
        known = item.pieces.get((kind, number))
        said = "".join(known.text) if known else ""
        if len(whole) > len(said) and whole.startswith(said):
            self._say(item, kind, number, whole[len(said) :], events)

    def _end_message(self, item: _Item, wire: Record, events: list[Event]) -> None:
        for number, part in _numbered(wire.get("content")):
            if part.get("type") == "refusal":
                self._complete(item, "refusal", number, part.get("refusal"), events)
                continue
            if part.get("type") != "output_text":
                self._foreign.append(part)
                continue
            piece = self._piece(item, "output_text", number)
            self._complete(item, "output_text", number, part.get("text"), events)
            if isinstance(logprobs := part.get("logprobs"), list) and logprobs:
                events.append(Logprobs(logprobs={"content": logprobs}))
            annotations = part.get("annotations")
            for annotation in (annotations if isinstance(annotations, list) else [])[piece.annotations :]:
                self._annotate(piece, annotation, events)

    def _annotate(self, piece: _Piece, annotation: Any, events: list[Event]) -> None:
        """Add a citation: of a page as OpenAI's chat format has it, of anything else as it is."""
        piece.annotations += 1
        if not isinstance(annotation, dict):
            return
        if annotation.get("type") != "url_citation":
            self._foreign.append(annotation)
            return
        page = {name: value for name, value in annotation.items() if name != "type"}
        for name in ("start_index", "end_index"):
            if isinstance(page.get(name), int):
                page[name] += piece.at
        events.append(Annotated(annotation={"type": "url_citation", "url_citation": page}))

    def _end_reasoning(self, item: _Item, wire: Record, events: list[Event]) -> None:
        for number, part in _numbered(wire.get("summary")):
            self._complete(item, "summary", number, part.get("text"), events)
        for number, part in _numbered(wire.get("content")):
            self._complete(item, "reasoning_text", number, part.get("text"), events)
        if sealed := text_of(wire.get("encrypted_content")):
            # One who made it without an id gets it back under one.
            name = item.id or f"rs_{self._blocks}"
            events.append(ReasoningDelta(data=sealed, id=name, format=SEAL, block=self._blocks))
            self._blocks += 1

    def _end_foreign(self, item: _Item, wire: Record) -> None:
        """Keep an item that only this format has. A search of the web counts, opening one of its finds does not."""
        self._foreign.append(wire)
        if item.kind == "web_search_call":
            action = wire.get("action")
            kind = action.get("type") if isinstance(action, dict) else None
            self.searches += kind in (None, "search")


def _numbered(parts: Any) -> list[tuple[int, Record]]:
    """Return the parts of a list that are objects, each with its number."""
    return [
        (number, part) for number, part in enumerate(parts if isinstance(parts, list) else []) if isinstance(part, dict)
    ]
