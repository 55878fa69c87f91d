"""OpenAI Responses, client side: the kinds of output items, each with the events that tell of it."""

from __future__ import annotations

from typing import Final

import msgspec

from apps.gateway.canonical.events import ToolCallStarted
from apps.gateway.dialects.chat.openai.wire import PARKED
from apps.gateway.dialects.chat.responses.wire import new_id
from apps.gateway.dialects.reading.fields import Record


def citation_of(note: Record, start: int, length: int) -> Record:
    """Return a citation flat, as this format has it, placed within a part that begins behind `start` characters."""
    page = note.get("url_citation")
    if not isinstance(page, dict):
        return note
    places = [page.get(name) for name in ("start_index", "end_index")]
    begins, ends = (place - start if isinstance(place, int) and place >= start else None for place in places)
    title, url = page.get("title"), page.get("url")
    return {
        "type": "url_citation",
        **page,
        "start_index": 0 if begins is None else begins,
        "end_index": length if ends is None else ends,
        "title": title if isinstance(title, str) else "",
        "url": url if isinstance(url, str) else "",
    }


def logprob_of(entry: Record) -> Record:
    """Return a log probability with all fields that clients count on."""
    tops = entry.get("top_logprobs")
    likely = [_logprob(top) for top in tops if isinstance(top, dict)] if isinstance(tops, list) else []
    return {**_logprob(entry), "top_logprobs": likely}


def _logprob(entry: Record) -> Record:
    token = entry.get("token")
    stated = {name: value for name, value in entry.items() if value is not None}
    return {"bytes": list(token.encode("utf-8", "replace")) if isinstance(token, str) else [], **stated}


_IMAGE_EVENTS: Final = "data:image/"
_BASE64: Final = ";base64"
# The prefixes of items' ids.
_PREFIXES: Final = {
    "message": "msg_",
    "reasoning": "rs_",
    "function_call": "fc_",
    "custom_tool_call": "ctc_",
    "web_search_call": "ws_",
}


class Item:
    """An item of an answer: what a provider said around it (`_around`), whether it is over, and its place."""

    def __init__(self, kind: str, around: Record | None, item_id: str | None = None) -> None:
        self.kind = kind
        self.index = 0
        self.done = False
        # Whether a provider says when it is over.
        self.placed = False
        self._around: Record = dict(around or {})
        self.id = str(self._around.get("id") or item_id or new_id(_PREFIXES.get(kind, "item_")))

    def finish(self, done: Record) -> None:
        """Take in what a provider says around the item now that it is over."""
        self._around |= done

    def open(self, out: list[Record]) -> None:
        """Tell that the item begins."""
        out.append({"type": "response.output_item.added", "output_index": self.index, "item": self.begun()})

    def close(self, out: list[Record], *, incomplete: bool) -> None:
        """Tell that the item is over."""
        self.end(out)
        self.done = True
        if incomplete:
            self._around["status"] = "incomplete"
        out.append({"type": "response.output_item.done", "output_index": self.index, "item": self.wire()})

    def is_whole(self) -> bool:
        """Return whether the item is over as soon as another one begins."""
        return True

    def begun(self) -> Record:
        """Return the item as it is announced."""
        raise NotImplementedError

    def end(self, out: list[Record]) -> None:
        """Yield the remaining events of the item's content."""

    def wire(self) -> Record:
        """Return the item as it is now."""
        raise NotImplementedError

    def at(self, **place: int) -> Record:
        """Return where an event of the item belongs."""
        return {"item_id": self.id, "output_index": self.index, **place}

    def _status(self) -> str:
        return str(self._around.get("status") or "completed") if self.done else "in_progress"


class _TextPart:
    """A part of a message: words, or words of refusal. `start` is how much was said before it."""

    __slots__ = ("annotations", "kind", "logprobs", "start", "text")

    def __init__(self, kind: str, start: int) -> None:
        self.kind = kind
        self.start = start
        self.text: list[str] = []
        self.annotations: list[Record] = []
        self.logprobs: list[Record] = []

    def wire(self) -> Record:
        """Return the part as it is now, in lists of its own: more may be noted before it is written."""
        text = "".join(self.text)
        if self.kind == "refusal":
            return {"type": "refusal", "refusal": text}
        notes = {"annotations": [*self.annotations], "logprobs": [*self.logprobs]}
        return {"type": "output_text", **notes, "text": text}


class MessageItem(Item):
    """A message of the model."""

    def __init__(self, around: Record | None) -> None:
        super().__init__("message", around)
        self._parts: list[_TextPart] = []
        self._open: _TextPart | None = None

    def begun(self) -> Record:
        """Return the message without content."""
        return {**self._frame("in_progress"), "content": []}

    def wire(self) -> Record:
        """Return the message as it is now."""
        return {**self._frame(self._status()), "content": [part.wire() for part in self._parts]}

    @property
    def has_text(self) -> bool:
        """Return whether it says anything but words of refusal."""
        return any(part.kind == "output_text" for part in self._parts)

    def add_text(self, text: str, out: list[Record], start: int, likely: list[Record]) -> None:
        """Tell more text, which begins behind `start` characters of the answer where it is a new part, with the log
        probabilities of its tokens."""
        self._add_delta(self._part("output_text", out, start), text, out, likely)

    def decline(self, text: str, out: list[Record], start: int) -> None:
        """Tell more words of refusal."""
        self._part("refusal", out, start).text.append(text)
        out.append({"type": "response.refusal.delta", **self.at(content_index=len(self._parts) - 1), "delta": text})

    def annotate(self, note: Record, out: list[Record], start: int) -> None:
        """Yield the event of a citation; a late citation is only in the whole item."""
        part = self._last_text(out, start)
        part.annotations.append(citation_of(note, part.start, sum(map(len, part.text))))
        if not self.done and part is self._open:
            place = self.at(content_index=len(self._parts) - 1, annotation_index=len(part.annotations) - 1)
            out.append({"type": "response.output_text.annotation.added", **place, "annotation": part.annotations[-1]})

    def park(self, note: Record) -> None:
        """Keep a note of a kind that strict clients refuse beside the text."""
        self._around.setdefault(PARKED, {"annotations": []})["annotations"].append(note)

    def add_logprobs(self, likely: list[Record], out: list[Record], start: int) -> None:
        """Add log probabilities of text; where that part is over, they are in the whole item alone."""
        part = self._last_text(out, start)
        if part is self._open:
            self._add_delta(part, "", out, likely)
        else:
            part.logprobs += map(logprob_of, likely)

    def end_part(self, out: list[Record]) -> None:
        """Tell that the part that is open is over."""
        part, self._open = self._open, None
        if part is None:
            return
        wire, place = part.wire(), self.at(content_index=len(self._parts) - 1)
        if part.kind == "refusal":
            out.append({"type": "response.refusal.done", **place, "refusal": wire["refusal"]})
        else:
            text = {"text": wire["text"], "logprobs": part.logprobs}
            out.append({"type": "response.output_text.done", **place, **text})
        out.append({"type": "response.content_part.done", **place, "part": wire})

    def end(self, out: list[Record]) -> None:
        """End the last part."""
        self.end_part(out)

    def _add_delta(self, part: _TextPart, text: str, out: list[Record], likely: list[Record]) -> None:
        part.text.append(text)
        logprobs = [logprob_of(entry) for entry in likely]
        part.logprobs += logprobs
        place = self.at(content_index=len(self._parts) - 1)
        out.append({"type": "response.output_text.delta", **place, "delta": text, "logprobs": logprobs})

    def _last_text(self, out: list[Record], start: int) -> _TextPart:
        texts = [part for part in self._parts if part.kind == "output_text"]
        return texts[-1] if texts else self._part("output_text", out, start)

    def _part(self, kind: str, out: list[Record], start: int) -> _TextPart:
        part = self._open
        if part is None or part.kind != kind:
            self.end_part(out)
            part = self._open = _TextPart(kind, start)
            self._parts.append(part)
            place = self.at(content_index=len(self._parts) - 1)
            out.append({"type": "response.content_part.added", **place, "part": part.wire()})
        return part

    def _frame(self, status: str) -> Record:
        return {"role": "assistant", **self._around, "id": self.id, "type": self.kind, "status": status}


class CallItem(Item):
    """A call of a client's tool: of a function, or of a custom tool, whose input is free text."""

    def __init__(self, started: ToolCallStarted, around: Record | None) -> None:
        extra = started.extra or {}
        self._custom = extra.get("type") == "custom"
        super().__init__("custom_tool_call" if self._custom else "function_call", around)
        self._call: Record = {"call_id": started.id, "name": started.name}
        if isinstance(namespace := extra.get("namespace"), str):
            self._call["namespace"] = namespace
        self._pieces: list[str] = []

    @property
    def _field(self) -> str:
        return "input" if self._custom else "arguments"

    @property
    def _event(self) -> str:
        return "response.custom_tool_call_input" if self._custom else "response.function_call_arguments"

    def begun(self) -> Record:
        """Return the call without arguments."""
        return {**self._frame("in_progress"), self._field: ""}

    def wire(self) -> Record:
        """Return the call as it is now."""
        return {**self._frame(self._status()), self._field: "".join(self._pieces)}

    def argue(self, arguments: str, out: list[Record]) -> None:
        """Tell more of the arguments."""
        self._pieces.append(arguments)
        out.append({"type": f"{self._event}.delta", **self.at(), "delta": arguments})

    def is_whole(self) -> bool:
        """Return whether the arguments are: other providers write several calls at once."""
        if self._custom:
            return True
        try:
            msgspec.json.decode("".join(self._pieces))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return False
        return True

    def end(self, out: list[Record]) -> None:
        """Tell the whole of the arguments."""
        out.append({"type": f"{self._event}.done", **self.at(), self._field: "".join(self._pieces)})

    def _frame(self, status: str) -> Record:
        return {**self._around, "id": self.id, "type": self.kind, "status": status, **self._call}


class ForeignItem(Item):
    """An item that only this format has, or an image: told as its provider does."""

    def __init__(self, wire: Record) -> None:
        super().__init__(str(wire.get("type") or ""), wire)

    def begun(self) -> Record:
        """Return the item as its provider announced it."""
        return dict(self._around)

    def wire(self) -> Record:
        """Return the item as its provider told it last."""
        return dict(self._around)

    def finish(self, done: Record) -> None:
        """Replace the streamed content with the whole item."""
        self._around = dict(done)

    def pass_on(self, event: Record, out: list[Record]) -> None:
        """Tell a provider's own event of the item; one without a type is none."""
        if isinstance(event.get("type"), str):
            out.append({**event, "output_index": self.index})


def image_item(url: str, around: Record | None) -> ForeignItem | None:
    """Return the item of an image; None for one by address, of which this format has no word."""
    head, _, data = url.partition(",")
    if not head.startswith(_IMAGE_EVENTS) or not head.endswith(_BASE64):
        return None
    wire = {"id": new_id("ig_"), "status": "completed", **(around or {}), "type": "image_generation_call"}
    wire["output_format"] = head.removeprefix(_IMAGE_EVENTS).removesuffix(_BASE64)
    return ForeignItem({**wire, "result": data})
