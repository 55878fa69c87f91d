"""OpenAI Responses, client side: output items and their events, built from canonical events in the order they come.

A provider of this very format says where its items begin and end (`OpaqueDelta` of the `stream`): ids, order, and items
that only this format has, stay as they are. Other providers' answers are divided into items by the kinds of their
events.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from apps.gateway.canonical.chat import Reasoning
from apps.gateway.canonical.events import (
    Annotated,
    Event,
    ImageMade,
    Logprobs,
    OpaqueDelta,
    ReasoningDelta,
    RefusalDelta,
    Searched,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from apps.gateway.dialects.chat.responses.client import ReasoningCipher, encrypt_blocks
from apps.gateway.dialects.chat.responses.client.output_items import (
    CallItem,
    ForeignItem,
    Item,
    MessageItem,
    image_item,
)
from apps.gateway.dialects.chat.responses.wire import (
    NAME,
    REASONING_ID,
    SIGNATURE_FORMAT,
    TRANSLATED_ITEMS,
    UNSIGNED_FORMAT,
    is_hosted_call,
)
from apps.gateway.dialects.reading.fields import Record

_OWNER: Final = "@"


class _Block:
    """One block of thinking so far, and the place of its text: its list and the index there."""

    __slots__ = ("blocks", "place", "text")

    def __init__(self, first: ReasoningDelta) -> None:
        self.text: list[str] = []
        self.blocks = Reasoning(summary=first.summary, id=first.id, format=first.format)
        self.place: tuple[str, int] | None = None

    def whole(self) -> Reasoning:
        """Return the block as its maker gave it."""
        self.blocks.text = "".join(self.text)
        return self.blocks


class ReasoningItem(Item):
    """A reasoning item."""

    def __init__(self, cipher: ReasoningCipher | None, around: Record | None, maker_id: str | None) -> None:
        usable = maker_id if maker_id is not None and maker_id.startswith(REASONING_ID) else None
        super().__init__("reasoning", around, usable)
        self._cipher = cipher
        self._maker_id = maker_id
        self._blocks: dict[int, _Block] = {}
        self._open: _Block | None = None
        self._parts_begun = {"summary": 0, "content": 0}
        self._sealed: tuple[str | None] | None = None

    def holds(self, event: ReasoningDelta) -> bool:
        """Return whether thinking belongs to this item: of this format's own, each id is an item."""
        return not is_own(event.format) or event.id == self._maker_id

    def think(self, event: ReasoningDelta, out: list[Record]) -> None:
        """Yield the events of more thinking; encrypted thinking is in the whole item alone."""
        block = self._blocks.get(event.block)
        if block is None:
            self._end_part(out)
            block = self._blocks[event.block] = _Block(event)
        kept = block.blocks
        for name in ("signature", "data", "id", "format"):
            if (value := getattr(event, name)) is not None:
                setattr(kept, name, value)
        if event.text:
            self._add_thinking(block, event.text, out)

    def begun(self) -> Record:
        """Return the item before anything was thought."""
        return {**self._around, "id": self.id, "type": self.kind, "summary": []}

    def wire(self) -> Record:
        """Return the item as it is now."""
        wire = self.begun()
        parts: dict[str, list[Record]] = {"summary": [], "content": []}
        for block in self._blocks.values():
            if block.place is not None:
                parts[block.place[0]].append(_part(block))
        wire["summary"] = parts["summary"]
        if parts["content"]:
            wire["content"] = parts["content"]
        if self.done:
            # Encrypted once: it would be another text each time.
            self._sealed = self._sealed or (self._encrypted(),)
            if self._sealed[0] is not None:
                wire["encrypted_content"] = self._sealed[0]
        return wire

    def end(self, out: list[Record]) -> None:
        """End the part that is open."""
        self._end_part(out)

    def _add_thinking(self, block: _Block, text: str, out: list[Record]) -> None:
        if block.place is None:
            self._end_part(out)
            kind = "content" if _bare(block.blocks.format) == UNSIGNED_FORMAT else "summary"
            block.place, self._open = (kind, self._parts_begun[kind]), block
            self._parts_begun[kind] += 1
            if kind == "summary":
                out.append({"type": "response.reasoning_summary_part.added", **self._at(block), "part": _part(block)})
            else:
                out.append({"type": "response.content_part.added", **self._at(block), "part": _part(block)})
        block.text.append(text)
        word = "reasoning_summary_text" if block.place[0] == "summary" else "reasoning_text"
        out.append({"type": f"response.{word}.delta", **self._at(block), "delta": text})

    def _end_part(self, out: list[Record]) -> None:
        block, self._open = self._open, None
        if block is None or block.place is None:
            return
        part, at = _part(block), self._at(block)
        summary = block.place[0] == "summary"
        word = "reasoning_summary_text" if summary else "reasoning_text"
        out.append({"type": f"response.{word}.done", **at, "text": part["text"]})
        around = "reasoning_summary_part" if summary else "content_part"
        out.append({"type": f"response.{around}.done", **at, "part": part})

    def _at(self, block: _Block) -> Record:
        kind, number = block.place or ("summary", 0)
        return self.at(**{f"{kind}_index": number})

    def _encrypted(self) -> str | None:
        """Return the item's encrypted content, None where its text is all of it.

        This format's own encrypted thinking stays as it is unless its owner has to be named.
        """
        blocks = [block.whole() for block in self._blocks.values()]
        own = [block for block in blocks if is_own(block.format)]
        if len(own) == len(blocks):
            blocks = [block for block in own if block.data is not None or block.signature is not None]
        if len(blocks) == 1 and (only := blocks[0]).format == SIGNATURE_FORMAT and only.id == self.id and not only.text:
            return only.data
        if not any(block.format or block.signature or block.data for block in blocks):
            return None
        return None if self._cipher is None else encrypt_blocks(blocks, self._cipher)


def is_own(form: str | None) -> bool:
    """Return whether thinking is in this format, for any account."""
    return _bare(form) in (SIGNATURE_FORMAT, UNSIGNED_FORMAT)


def _bare(form: str | None) -> str | None:
    return None if form is None else form.partition(_OWNER)[0]


def _part(block: _Block) -> Record:
    kind = "reasoning_text" if block.place is not None and block.place[0] == "content" else "summary_text"
    return {"type": kind, "text": "".join(block.text)}


_KIND: Final = "web_search_call"
# The events of a search in progress, which is already over.
_STAGES: Final = ("in_progress", "searching", "completed")


class SearchItem(Item):
    """A search of the web; other formats tell of it at once, and some not what it was for."""

    def __init__(self, query: str) -> None:
        super().__init__(_KIND, None)
        self._action: Record = {"type": "search", **({"query": query, "queries": [query]} if query else {})}

    def begun(self) -> Record:
        """Return the search as it begins."""
        return {"id": self.id, "type": self.kind, "status": "in_progress", "action": self._action}

    def wire(self) -> Record:
        """Return the search as it is now."""
        return {**self.begun(), "status": self._status()}

    def end(self, out: list[Record]) -> None:
        """Tell how it went."""
        out += ({"type": f"response.{self.kind}.{stage}", **self.at()} for stage in _STAGES)


_MESSAGE: Final = "message"
_REASONING: Final = "reasoning"
_CALLS: Final = frozenset({"function_call", "custom_tool_call"})
_IMAGE_ITEM: Final = "image_generation_call"


class OutputItems:
    """The items of an answer so far. Every method adds to `out` the events that follow, without their numbers."""

    def __init__(self, cipher: ReasoningCipher | None) -> None:
        self.out: list[Record] = []
        self._cipher = cipher
        self._items: list[Item] = []
        self._current: Item | None = None
        self._calls: dict[int, CallItem] = {}
        # Items by the place that a provider of this format gave them: it says when each of them is over.
        self._placed: dict[int, Item] = {}
        # The item that it has announced and has said nothing of yet, and its place.
        self._announced: Record | None = None
        self._place = 0
        self._marked = False
        self._written = 0
        # Log probabilities of tokens whose text has not come.
        self._likely: list[Record] = []
        # Seals on the text of a message that goes on.
        self._seals: ReasoningItem | None = None
        # Whether more text is another message, though citations of the one that is open may follow.
        self._parted = False

    def write(self, event: Event) -> None:
        """Take one event in; what belongs around items says nothing here."""
        write = _WRITERS.get(type(event))
        if write is not None and event.choice == 0:
            write(self, event)

    def output(self) -> list[Record]:
        """Return the items as they are now."""
        return [item.wire() for item in self._items]

    def decline(self, explanation: str) -> None:
        """Add why a provider's filter ended the answer, as words of refusal."""
        self._refusal(RefusalDelta(text=explanation))

    def close(self, *, incomplete: bool) -> None:
        """End every item that is open; the last one is `incomplete` where the answer was cut off."""
        if self._likely:
            self._place_logprobs(self._message(late=True))
        last = next((item for item in (self._current, *self._items[::-1]) if item is not None and not item.done), None)
        for item in self._items:
            if not item.done:
                item.close(self.out, incomplete=incomplete and item is last)

    # --- content

    def _text(self, event: TextDelta) -> None:
        if event.text:
            likely, self._likely = self._likely, []
            self._message().add_text(event.text, self.out, self._written, likely)
            self._written += len(event.text)

    def _refusal(self, event: RefusalDelta) -> None:
        if event.text:
            self._message().decline(event.text, self.out, self._written)

    def _annotated(self, event: Annotated) -> None:
        message = self._message(late=True)
        if event.annotation.get("type") == "url_citation":
            message.annotate(event.annotation, self.out, self._written)
        else:
            message.park(event.annotation)

    def _logprobs(self, event: Logprobs) -> None:
        if isinstance(entries := event.logprobs.get("content"), list):
            self._likely += (entry for entry in entries if isinstance(entry, dict))

    def _place_logprobs(self, message: MessageItem) -> None:
        """Put log probabilities that no text has followed to the text before them."""
        likely, self._likely = self._likely, []
        message.add_logprobs(likely, self.out, self._written)

    def _searched(self, event: Searched) -> None:
        item, message = SearchItem(event.query), self._current
        if isinstance(message, MessageItem) and not message.done:
            # Citations of it may follow.
            self._parted = True
            self._add(item)
        else:
            self._begin(item)
        item.close(self.out, incomplete=False)

    def _reasoning(self, event: ReasoningDelta) -> None:
        announced = self._take_announced(_REASONING)
        item = self._current
        if announced is None and not event.text and isinstance(item, MessageItem) and not item.done:
            if self._seals is None or not self._seals.holds(event):
                self._seals = ReasoningItem(self._cipher, None, event.id)
                self._add(self._seals)
            self._seals.think(event, self.out)
            return
        if announced is not None or not isinstance(item, ReasoningItem) or item.done or not item.holds(event):
            item = ReasoningItem(self._cipher, announced, event.id)
            self._begin(item, placed=announced is not None)
        item.think(event, self.out)

    def _call_started(self, event: ToolCallStarted) -> None:
        announced = next(filter(None, map(self._take_announced, _CALLS)), None)
        item = self._calls[event.index] = CallItem(event, announced)
        self._begin(item, placed=announced is not None)

    def _call_delta(self, event: ToolCallDelta) -> None:
        item = self._calls.get(event.index)
        if item is not None and not item.done and event.arguments:
            item.argue(event.arguments, self.out)

    def _image(self, event: ImageMade) -> None:
        item = image_item(event.url, self._take_announced(_IMAGE_ITEM))
        if item is None:
            self._text(TextDelta(text=f"![image]({event.url})"))
            return
        # A message goes on around it: citations may follow.
        self._add(item)
        item.close(self.out, incomplete=False)

    # --- what a provider of this format says of its items

    def _opaque(self, event: OpaqueDelta) -> None:
        if event.dialect != NAME:
            return
        if event.of == "stream":
            self._marked = True
            self._mark(event.data)
        elif event.of == "message" and not self._marked:
            # An answer that was put together already consists of the items alone.
            for wire in event.data.get("output") or ():
                if isinstance(wire, dict):
                    item = ForeignItem(wire)
                    self._begin(item)
                    item.close(self.out, incomplete=False)

    def _mark(self, data: Record) -> None:
        at = cast(int, data.get("at"))
        wire, placed = data.get("item"), self._placed.get(at)
        if self._likely and isinstance(placed, MessageItem) and placed.has_text:
            self._place_logprobs(placed)
        if isinstance(wire, dict):
            self._announce(wire, at)
        elif isinstance(event := data.get("event"), dict) and isinstance(placed, ForeignItem):
            placed.pass_on(event, self.out)
        elif isinstance(data.get("part"), int) and isinstance(placed, MessageItem):
            placed.end_part(self.out)
        elif isinstance(note := data.get("annotation"), dict):
            self._message(late=True).annotate(note, self.out, self._written)
        elif isinstance(done := data.get("done"), dict):
            self._end(done, at)

    def _announce(self, wire: Record, at: int) -> None:
        """Take note of an item that begins, or of which more is said."""
        self._announced, placed = None, self._placed.get(at)
        if placed is not None:
            self._current = placed
        elif wire.get("type") in TRANSLATED_ITEMS and not is_hosted_call(wire):
            self._announced, self._place = wire, at
        else:
            self._place = at
            self._begin(ForeignItem(wire), placed=True)

    def _end(self, done: Record, at: int) -> None:
        announced, self._announced = self._announced, None
        if announced is not None and announced.get("type") in (_REASONING, _MESSAGE):
            # Nothing of it was said.
            message = announced["type"] == _MESSAGE
            item = MessageItem(announced) if message else ReasoningItem(self._cipher, announced, None)
            self._begin(item, placed=True)
        placed = self._placed.get(at)
        if placed is not None and not placed.done:
            placed.finish(done)
            placed.close(self.out, incomplete=False)

    def _take_announced(self, kind: str) -> Record | None:
        """Return the announced item if it is of that kind."""
        announced = self._announced
        if announced is None or announced.get("type") != kind:
            return None
        self._announced = None
        return announced

    # --- items

    def _message(self, *, late: bool = False) -> MessageItem:
        """Return the message that is open, else a new one; what comes `late` may belong to one that is over."""
        announced = self._take_announced(_MESSAGE)
        if announced is None:
            if isinstance(self._current, MessageItem) and not self._current.done and (late or not self._parted):
                return self._current
            if late:
                messages = [item for item in self._items if isinstance(item, MessageItem) and item.has_text]
                if messages:
                    return messages[-1]
        item = MessageItem(announced)
        self._begin(item, placed=announced is not None)
        return item

    def _begin(self, item: Item, *, placed: bool = False) -> None:
        """Open an item; one that was open before it is over, unless it is a call whose arguments are not whole, or a
        provider says when it is over."""
        before, self._parted = self._current, False
        if self._likely and isinstance(before, MessageItem) and before.has_text:
            self._place_logprobs(before)
        if before is not None and not before.done and before.is_whole() and not before.placed:
            before.close(self.out, incomplete=False)
        seals, self._seals = self._seals, None
        if seals is not None:
            seals.close(self.out, incomplete=False)
        if placed:
            item.placed = True
            self._placed[self._place] = item
        self._current = item
        self._add(item)

    def _add(self, item: Item) -> None:
        item.index = len(self._items)
        self._items.append(item)
        item.open(self.out)


_WRITERS = cast(
    dict[type[Event], Callable[[OutputItems, Event], None]],
    {
        TextDelta: OutputItems._text,
        RefusalDelta: OutputItems._refusal,
        ReasoningDelta: OutputItems._reasoning,
        ToolCallStarted: OutputItems._call_started,
        ToolCallDelta: OutputItems._call_delta,
        ImageMade: OutputItems._image,
        Annotated: OutputItems._annotated,
        Searched: OutputItems._searched,
        Logprobs: OutputItems._logprobs,
        OpaqueDelta: OutputItems._opaque,
    },
)
