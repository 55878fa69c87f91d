"""OpenAI Responses, client side: an output item of reasoning: summaries, thinking in clear, and what travels encrypted.

Thinking in clear of this format stays what it is; anybody else's is told as a summary, which is what clients show. Must
never know which item follows.
"""

from __future__ import annotations

from typing import Final

from apps.gateway.canonical.chat import Reasoning
from apps.gateway.canonical.events import ReasoningDelta
from apps.gateway.dialects.chat.responses.client.encrypted_reasoning import ReasoningCipher, encrypt_blocks
from apps.gateway.dialects.chat.responses.client.output_items import Item, Record
from apps.gateway.dialects.chat.responses.shared.wire import REASONING_ID, SIGNATURE_FORMAT, UNSIGNED_FORMAT

_OWNER: Final = "@"


class _Block:
    """One block of thinking so far, and the place of its text: the list it stands in, and where there."""

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
    """What the model thought."""

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
        """Tell more thinking; what is encrypted stands in the whole item alone."""
        block = self._blocks.get(event.block)
        if block is None:
            self._end_part(out)
            block = self._blocks[event.block] = _Block(event)
        kept = block.blocks
        for name in ("signature", "data", "id", "format"):
            if (value := getattr(event, name)) is not None:
                setattr(kept, name, value)
        if event.text:
            self._say(block, event.text, out)

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

    def _say(self, block: _Block, text: str, out: list[Record]) -> None:
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
        """Return what the item has to come back with, None where its text is all there is to it.

        This format's own encrypted thinking stays as it is as long as nobody has to be told whose it is.
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
    """Return whether thinking is in this format, whoever it was made for."""
    return _bare(form) in (SIGNATURE_FORMAT, UNSIGNED_FORMAT)


def _bare(form: str | None) -> str | None:
    return None if form is None else form.partition(_OWNER)[0]


def _part(block: _Block) -> Record:
    kind = "reasoning_text" if block.place is not None and block.place[0] == "content" else "summary_text"
    return {"type": kind, "text": "".join(block.text)}
