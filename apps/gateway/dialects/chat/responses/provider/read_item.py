"""OpenAI Responses, provider side: reads output items into canonical events: messages, reasoning, calls, images, and
others.

Every item is read twice: while it streams, and as a whole when it is done. Content of the whole that did not stream is
added then, so that a plain answer consists of items that did not stream.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from apps.gateway.dialects.chat.openai.wire import citations_of
from apps.gateway.dialects.chat.responses.wire import (
    NAME,
    SIGNATURE_FORMAT,
    TRANSLATED_ITEMS,
    UNSIGNED_FORMAT,
    around_of,
    encode,
    is_hosted_call,
    mark,
    new_id,
    text_of,
    unplaced,
)
from apps.gateway.dialects.reading.fields import Record

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
_REASONING_FORMATS = {"summary": SIGNATURE_FORMAT, "reasoning_text": UNSIGNED_FORMAT}


class _Piece:
    """A part of an item's text, as far as it has streamed."""

    __slots__ = ("annotations", "at", "block", "logprobs", "text")

    def __init__(self, at: int, block: int) -> None:
        self.at = at
        self.block = block
        self.text: list[str] = []
        # How many of them were reported.
        self.annotations = self.logprobs = 0


class _Item:
    """An item that has begun."""

    __slots__ = ("around", "call", "done", "hosted", "id", "index", "kind", "part", "pieces", "was_marked")

    def __init__(self, index: int, wire: Record) -> None:
        self.index = index
        self.around = around_of(wire)
        self.kind = text_of(wire.get("type")) or ""
        self.id = text_of(wire.get("id"))
        self.hosted = is_hosted_call(wire)
        self.call: int | None = None
        # Whether clients of this format got it as an item that only this format has.
        self.was_marked = self.done = False
        self.part: tuple[str, int] | None = None
        self.pieces: dict[tuple[str, int], _Piece] = {}

    @property
    def is_translated(self) -> bool:
        """Whether the canonical language has words for what it says."""
        return self.kind in TRANSLATED_ITEMS and not self.hosted


class ItemReader:
    """State of the items of an answer that were read so far."""

    def __init__(self) -> None:
        self.calls = self.searches = 0
        self._files_searched = self._x_searches = 0
        self._containers: set[str] = set()
        self._items: dict[int, _Item] = {}
        self._blocks = self._written = 0
        self._foreign: list[Record] = []
        # Pages that a search listed, by address; they become citations where the text has none.
        self._pages: dict[str, Record] = {}
        self._cited = False
        # The item that clients of this format got last.
        self._shown: _Item | None = None

    @property
    def tool_calls(self) -> dict[str, int] | None:
        """The billed uses of the provider's own tools: searches of files and of X, containers that code ran in."""
        counts = {
            "file_search": self._files_searched,
            "x_search": self._x_searches,
            "code_interpreter": len(self._containers),
        }
        return {name: count for name, count in counts.items() if count} or None

    @property
    def seen(self) -> bool:
        """Whether there was any item."""
        return bool(self._items)

    def begin(self, index: int, wire: Any, events: list[Event]) -> None:
        """Add the events of an item that begins."""
        if isinstance(wire, dict) and index not in self._items:
            item = self._items[index] = _Item(index, wire)
            if not item.is_translated:
                self._add_foreign(item, wire, events)
            elif item.kind != "function_call" or wire.get("status") != "completed":
                self._name_call(item, wire, events)
            # A call that is complete as it begins may be one that the provider runs: its end tells.

    def _add_foreign(self, item: _Item, wire: Record, events: list[Event]) -> None:
        """Tell clients of this format of an item that only it has, once: nothing else does while it lasts."""
        if not item.was_marked:
            item.was_marked = True
            self._shown = item
            events.append(mark(item.index, item=wire))

    def read_delta(self, index: int, kind: str, number: Any, wire: Record, events: list[Event]) -> None:
        """Add the events of a delta: more of the piece `number` of an item."""
        delta, logprobs = wire.get("delta"), wire.get("logprobs")
        likely = logprobs if kind == "output_text" and isinstance(logprobs, list) else []
        if isinstance(delta, str) and (delta or likely):
            item = self._items.get(index)
            if item is None:
                item = self._items[index] = _Item(index, {})
            if item.hosted:
                events.append(mark(index, event=unplaced(wire)))
                return
            self._add_piece(item, kind, number if isinstance(number, int) else 0, delta, events, likely)

    def note(self, index: int, wire: Record, events: list[Event]) -> None:
        """Add how an item comes along that only this format has, for clients of this format."""
        item = self._items.get(index)
        if item is not None and not item.is_translated:
            events.append(mark(index, event=unplaced(wire)))

    def annotate(self, index: int, number: Any, annotation: Any, events: list[Event]) -> None:
        """Add a citation of a piece of text."""
        item = self._items.get(index)
        if item is not None:
            self._annotate(item, number if isinstance(number, int) else 0, annotation, events)

    def end(self, index: int, wire: Any, events: list[Event]) -> None:
        """Add the content of a whole item that did not stream."""
        if not isinstance(wire, dict):
            return
        item = self._items.get(index)
        if item is None:
            self.begin(index, wire, events)
            item = self._items[index]
        if item.done:
            return
        item.done = True
        item.around |= around_of(wire)
        item.kind, item.id = text_of(wire.get("type")) or item.kind, item.id or text_of(wire.get("id"))
        item.hosted = item.hosted or is_hosted_call(wire)
        if not item.is_translated:
            self._add_foreign(item, wire, events)
            self._end_foreign(item, wire)
        else:
            self._end_translated(item, wire, events)
            self._show(item, events)
        events.append(mark(item.index, done=item.around if item.is_translated else wire))

    def end_waiting(self, output: list[Any], events: list[Event]) -> None:
        """Add the calls that were complete as they began and whose end did not stream, from the answer's output."""
        waiting = {
            item.id: item
            for item in self._items.values()
            if item.kind == "function_call" and item.call is None and not item.done
        }
        for wire in output if waiting else ():
            if isinstance(wire, dict) and (item := waiting.get(text_of(wire.get("id")))) is not None:
                self.end(item.index, wire, events)

    def _end_translated(self, item: _Item, wire: Record, events: list[Event]) -> None:
        """Add what a whole item says."""
        if item.kind == "message":
            self._end_message(item, wire, events)
        elif item.kind == "reasoning":
            self._end_reasoning(item, wire, events)
        elif item.kind in _CALLS:
            self._name_call(item, wire, events)
            arguments = wire.get(_CALLS[item.kind])
            whole = arguments if isinstance(arguments, str) or arguments is None else encode(arguments).decode()
            if item.kind == "function_call" and whole in (None, "null") and ("arguments", 0) not in item.pieces:
                # A function that is called with nothing: clients parse the text, and want an object.
                whole = "{}"
            self._complete(item, "arguments", 0, whole, events)
        elif item.kind == "image_generation_call" and (image := text_of(wire.get("result"))):
            media_type = text_of(wire.get("output_format")) or "png"
            self._show(item, events)
            events.append(ImageMade(url=f"data:image/{media_type};base64,{image}"))

    def _show(self, item: _Item, events: list[Event]) -> None:
        """Tell clients of this format that what follows is of this item."""
        if self._shown is not item:
            self._shown = item
            events.append(mark(item.index, item=item.around))

    def close(self, events: list[Event]) -> None:
        """Add the pages that were found where none was cited, and what no other format has words for."""
        if self._written and not self._cited:
            events += (Annotated(annotation=page) for page in self._pages.values())
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
        call_id = text_of(wire.get("call_id")) or item.id or new_id("call_")
        self._show(item, events)
        events.append(ToolCallStarted(index=item.call, id=call_id, name=name, extra=extra or None))
        if waiting := item.pieces.get(("arguments", 0)):
            events.append(ToolCallDelta(index=item.call, arguments="".join(waiting.text)))

    def _piece(self, item: _Item, kind: str, number: int) -> _Piece:
        piece = item.pieces.get((kind, number))
        if piece is None:
            piece = item.pieces[kind, number] = _Piece(self._written, self._blocks)
            self._blocks += kind in _REASONING_FORMATS
        return piece

    def _add_piece(
        self, item: _Item, kind: str, number: int, text: str, events: list[Event], logprobs: Sequence[Any] = ()
    ) -> None:
        """Add more of a piece, and the log probabilities of its tokens."""
        piece = self._piece(item, kind, number)
        piece.text.append(text)
        self._show_part(item, kind, number, events)
        if kind == "output_text":
            self._written += len(text)
            self._add_logprobs(piece, logprobs, events)
            if text:
                events.append(TextDelta(text=text))
        elif kind == "refusal":
            events.append(RefusalDelta(text=text))
        elif kind in _REASONING_FORMATS:
            thinking = ReasoningDelta(
                text=text, summary=kind == "summary", id=item.id, format=_REASONING_FORMATS[kind], block=piece.block
            )
            events.append(thinking)
        elif item.call is not None:
            events.append(ToolCallDelta(index=item.call, arguments=text))

    def _show_part(self, item: _Item, kind: str, number: int, events: list[Event]) -> None:
        """Tell clients of this format of the item, and of each part of its text behind another one."""
        if item.call is None and item.kind not in _CALLS:
            self._show(item, events)
            before, item.part = item.part, (kind, number)
            if kind == "output_text" and before is not None and before[0] == kind and before != item.part:
                events.append(mark(item.index, part=number))

    def _complete(self, item: _Item, kind: str, number: int | None, whole: Any, events: list[Event]) -> None:
        """Add the missing rest of a piece that is now complete; `number` is None where nothing is missing."""
        if number is None or not isinstance(whole, str):
            return
        known = item.pieces.get((kind, number))
        known_text = "".join(known.text) if known else ""
        if len(whole) > len(known_text) and whole.startswith(known_text):
            self._add_piece(item, kind, number, whole[len(known_text) :], events)

    def _end_message(self, item: _Item, wire: Record, events: list[Event]) -> None:
        parts = _numbered(wire.get("content"))
        texts = [(number, part.get("text")) for number, part in parts if part.get("type") == "output_text"]
        refusals = [(number, part.get("refusal")) for number, part in parts if part.get("type") == "refusal"]
        known_text = {
            "output_text": _places_of(item, "output_text", texts),
            "refusal": _places_of(item, "refusal", refusals),
        }
        for number, part in parts:
            if part.get("type") == "refusal":
                self._complete(item, "refusal", known_text["refusal"].get(number), part.get("refusal"), events)
                continue
            if part.get("type") != "output_text":
                self._foreign.append(part)
                continue
            place = known_text["output_text"].get(number)
            self._complete(item, "output_text", place, part.get("text"), events)
            number = number if place is None else place
            piece = self._piece(item, "output_text", number)
            if isinstance(logprobs := part.get("logprobs"), list):
                self._add_logprobs(piece, logprobs[piece.logprobs :], events)
            annotations = part.get("annotations")
            for annotation in (annotations if isinstance(annotations, list) else [])[piece.annotations :]:
                self._annotate(item, number, annotation, events)

    def _add_logprobs(self, piece: _Piece, logprobs: Sequence[Any], events: list[Event]) -> None:
        if logprobs:
            piece.logprobs += len(logprobs)
            events.append(Logprobs(logprobs={"content": list(logprobs)}))

    def _annotate(self, item: _Item, number: int, annotation: Any, events: list[Event]) -> None:
        """Add a citation: of a page as OpenAI's chat format has it, of anything else as it is."""
        piece = self._piece(item, "output_text", number)
        piece.annotations += 1
        self._show_part(item, "output_text", number, events)
        if not isinstance(annotation, dict):
            return
        if annotation.get("type") != "url_citation":
            self._foreign.append(annotation)
            events.append(mark(item.index, annotation=annotation))
            return
        page = {name: value for name, value in annotation.items() if name != "type"}
        for name in ("start_index", "end_index"):
            if isinstance(page.get(name), int):
                page[name] += piece.at
        self._cited = True
        events.append(Annotated(annotation={"type": "url_citation", "url_citation": page}))

    def _end_reasoning(self, item: _Item, wire: Record, events: list[Event]) -> None:
        for kind, field in (("summary", "summary"), ("reasoning_text", "content")):
            parts = [(number, part.get("text")) for number, part in _numbered(wire.get(field))]
            places = _places_of(item, kind, parts)
            for number, text in parts:
                self._complete(item, kind, places.get(number), text, events)
        if signed := text_of(wire.get("encrypted_content")):
            # One who made it without an id gets it back under one.
            name = item.id or f"rs_{self._blocks}"
            self._show(item, events)
            events.append(ReasoningDelta(data=signed, id=name, format=SIGNATURE_FORMAT, block=self._blocks))
            self._blocks += 1

    def _end_foreign(self, item: _Item, wire: Record) -> None:
        """Keep an item that only this format has. A search of the web counts, opening one of its finds does not."""
        self._foreign.append(wire)
        if item.kind == "web_search_call":
            action = wire.get("action")
            kind = action.get("type") if isinstance(action, dict) else None
            self.searches += kind in (None, "search")
        elif item.kind == "file_search_call":
            self._files_searched += 1
        elif item.kind == "search_results":
            self.searches += 1
            for source in citations_of(wire.get("results")):
                self._pages.setdefault(source["url_citation"]["url"], source)
        elif item.hosted or item.kind == "x_search_call":
            self._x_searches += 1
        elif item.kind == "code_interpreter_call":
            self._containers.add(text_of(wire.get("container_id")) or "")


def _places_of(item: _Item, kind: str, wholes: list[tuple[int, Any]]) -> dict[int, int | None]:
    """Return the number under which each of an item's parts was said while it streamed; None where nothing is missing.

    Some count the parts of a stream in another way than those of the whole item.
    """
    spoken = {number: "".join(piece.text) for (name, number), piece in item.pieces.items() if name == kind}
    texts = [text for _, text in wholes if isinstance(text, str)]
    if len(wholes) != len(spoken) and "".join(spoken.values()) == "".join(texts) != "":
        return dict.fromkeys((number for number, _ in wholes), None)
    places: dict[int, int | None] = {number: number for number, _ in wholes}
    strays = [number for number in spoken if number not in places]
    for number, text in wholes:
        if number in spoken or not isinstance(text, str):
            continue
        stray = next((other for other in strays if spoken[other] and text.startswith(spoken[other])), None)
        if stray is not None:
            strays.remove(stray)
            places[number] = stray
    return places


def _numbered(parts: Any) -> list[tuple[int, Record]]:
    """Return the parts of a list that are objects, each with its number."""
    return [
        (number, part) for number, part in enumerate(parts if isinstance(parts, list) else []) if isinstance(part, dict)
    ]
