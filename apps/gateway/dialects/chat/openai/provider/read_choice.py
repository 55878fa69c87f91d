"""OpenAI Chat Completions, provider side: reads one choice into canonical events: deltas of a stream, or a plain
answer's message.

Knows what a message may hold, and how servers deviate. Must never know what stands around choices.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.events import (
    Annotated,
    AudioDelta,
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
from apps.gateway.dialects.adapting.signed_call_ids import join_signature, stated_signature
from apps.gateway.dialects.chat.openai.shared.wire import NAME, PART_FORMAT, encode, new_id

Record = dict[str, Any]

_FIELDS = frozenset(
    {
        "role",
        "content",
        "refusal",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "tool_calls",
        "function_call",
        "images",
        "annotations",
        "audio",
    }
)
_CALL_FIELDS = frozenset({"index", "id", "type", "function", "custom"})
# What a block of thinking without a stated format is marked with, so that clients get it back as a block.
UNKNOWN_FORMAT = "unknown"


class _Call:
    """A tool call that has begun: our number of it, and what waits until its name is known."""

    __slots__ = ("arguments", "extra", "id", "index", "named")

    def __init__(self, index: int, call_id: str, extra: Record | None) -> None:
        self.index = index
        self.id = call_id
        self.extra = extra
        self.named = False
        self.arguments = ""


class ChoiceReader:
    """What has been read of a choice so far."""

    def __init__(self, index: int, *, whole: bool) -> None:
        self.finish_word: str | None = None
        self._index = index
        self._whole = whole
        self._calls: dict[int, _Call] = {}
        self._count = 0
        self._blocks: dict[str, int] = {}
        self._said = self._said_nothing = self._searched = False
        # Characters of the text so far.
        self.said = 0
        # A search that was told in the middle of the text.
        self._late: list[Event] = []

    @property
    def has_calls(self) -> bool:
        """Whether the model called a tool."""
        return self._count > 0

    @property
    def has_begun(self) -> bool:
        """Whether the choice has said or called anything."""
        return self._said or self._count > 0

    def catch_up(self, message: Record, events: list[Event]) -> None:
        """Add what the text of a whole message has beyond what was said so far."""
        content = message.get("content")
        if isinstance(content, str) and len(content) > self.said:
            self._say(content[self.said :], events)

    def read_around(self, extra: Record, logprobs: Any, events: list[Event]) -> None:
        """Add what stands beside the message."""
        if extra:
            events.append(OpaqueDelta(choice=self._index, dialect=NAME, data=extra, of="choice"))
        if isinstance(logprobs, dict):
            events.append(Logprobs(choice=self._index, logprobs=logprobs))

    def read(self, delta: Record, events: list[Event]) -> None:
        """Add the events of a delta or a whole message."""
        if not delta.keys() <= _FIELDS:
            extra = {name: value for name, value in delta.items() if name not in _FIELDS and value is not None}
            if extra:
                events.append(OpaqueDelta(choice=self._index, dialect=NAME, data=extra))
        if len(delta) > 1 or "content" not in delta:
            self._read_reasoning(delta, events)
            self._read_search(delta.get("annotations"), events)
        content = delta.get("content")
        if isinstance(content, str):
            self._say(content, events)
        elif isinstance(content, list):
            for part in content:
                self._read_part(part, events)
        if len(delta) > 1 or content is None:
            self._read_rest(delta, events)

    def end(self, events: list[Event]) -> None:
        """Add what could only be said now: that the text is empty, not absent; that a call has no name."""
        events += self._late
        if self._said_nothing and not self._said:
            events.append(TextDelta(choice=self._index, text=""))
        for call in self._calls.values():
            if not call.named:
                self._go_on_with(call, "", "", events)

    def _say(self, text: str, events: list[Event]) -> None:
        if text:
            self._said = True
            self.said += len(text)
            events.append(TextDelta(choice=self._index, text=text))
        else:
            self._said_nothing = True

    def _read_search(self, annotations: Any, events: list[Event]) -> None:
        """Add the search that cited pages of the web were found by, not in the middle of the text; what it was for is
        not told."""
        if self._searched or not isinstance(annotations, list):
            return
        if any(isinstance(note, dict) and note.get("type") == "url_citation" for note in annotations):
            self._searched = True
            (self._late if self._said else events).append(Searched(choice=self._index))

    def _think(self, thought: Any, events: list[Event]) -> None:
        if isinstance(thought, str) and thought:
            block = self._blocks.setdefault("", len(self._blocks))
            events.append(ReasoningDelta(choice=self._index, text=thought, block=block))

    def _read_reasoning(self, delta: Record, events: list[Event]) -> None:
        """Read thinking block by block where there are blocks; the plain text beside them says the same."""
        details = delta.get("reasoning_details")
        if not isinstance(details, list) or not details:
            self._think(delta.get("reasoning") or delta.get("reasoning_content"), events)
            return
        found = [self._detail(detail) for detail in details if isinstance(detail, dict)]
        if not any(block.text for block in found):
            self._think(delta.get("reasoning") or delta.get("reasoning_content"), events)
        events.extend(found)

    def _detail(self, detail: Record) -> ReasoningDelta:
        # Some number encrypted thinking like the summary of it: the kind belongs to the number.
        block = self._blocks.setdefault(f"{detail.get('index')} {detail.get('type')}", len(self._blocks))
        summary = detail.get("summary")
        text = summary if isinstance(summary, str) else detail.get("text")
        return ReasoningDelta(
            choice=self._index,
            text=text if isinstance(text, str) else "",
            summary=isinstance(summary, str),
            signature=_text(detail.get("signature")),
            data=_text(detail.get("data")),
            id=_text(detail.get("id")),
            format=_text(detail.get("format")) or UNKNOWN_FORMAT,
            block=block,
        )

    def _read_part(self, part: Any, events: list[Event]) -> None:
        """Read a part of content that came as a list."""
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            self._say(part["text"], events)
        elif kind == "thinking":
            thoughts = part.get("thinking")
            for thought in thoughts if isinstance(thoughts, list) else [thoughts]:
                self._think(thought.get("text") if isinstance(thought, dict) else thought, events)
            if signature := _text(part.get("signature")):
                block = self._blocks.setdefault("", len(self._blocks))
                events.append(ReasoningDelta(choice=self._index, signature=signature, format=PART_FORMAT, block=block))
        elif kind == "image_url":
            self._read_images([part], events)
        elif part:
            events.append(OpaqueDelta(choice=self._index, dialect=NAME, data={"content_parts": [part]}))

    def _read_call(self, wire: Any, position: int, events: list[Event]) -> None:
        """Read a call or more of one. A delta that names a function begins a call, unless it repeats its own id."""
        if not isinstance(wire, dict):
            return
        kind = "custom" if isinstance(wire.get("custom"), dict) else "function"
        inner = wire.get(kind)
        function: Record = inner if isinstance(inner, dict) else {}
        index, call_id, name = wire.get("index"), _text(wire.get("id")), _text(function.get("name"))
        stated = isinstance(index, int) and not self._whole
        at = index if stated and isinstance(index, int) else position
        call = self._calls.get(at)
        if call is None or (call.named and name is not None and (call_id != call.id if call_id else not stated)):
            extra = {key: value for key, value in wire.items() if key not in _CALL_FIELDS and value is not None}
            if kind == "custom":
                extra["type"] = kind
            call = self._calls[at] = _Call(self._count, call_id or new_id("call_"), extra or None)
            self._count += 1
        arguments = function.get("input" if kind == "custom" else "arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = encode(arguments).decode()
        if self._whole and kind == "function" and arguments in (None, "null"):
            # A function that is called with nothing: clients parse the text, and want an object.
            arguments = "{}"
        self._go_on_with(call, name, arguments or "", events)

    def _go_on_with(self, call: _Call, name: str | None, arguments: str, events: list[Event]) -> None:
        """Add what is new of a call; its arguments wait for its name."""
        if not call.named:
            arguments = call.arguments + arguments
            if name is None:
                call.arguments = arguments
                return
            call.named = True
            signature = stated_signature(call.extra)
            call_id = call.id if signature is None else join_signature(call.id, signature)
            events.append(
                ToolCallStarted(choice=self._index, index=call.index, id=call_id, name=name, extra=call.extra)
            )
        if arguments:
            events.append(ToolCallDelta(choice=self._index, index=call.index, arguments=arguments))

    def _read_rest(self, delta: Record, events: list[Event]) -> None:
        """Read what a message may hold besides text and thinking."""
        if (refusal := delta.get("refusal")) and isinstance(refusal, str):
            events.append(RefusalDelta(choice=self._index, text=refusal))
        if (calls := delta.get("tool_calls")) and isinstance(calls, list):
            for position, call in enumerate(calls):
                self._read_call(call, position, events)
        elif call := delta.get("function_call"):
            self._read_call({"index": 0, "function": call}, 0, events)
        self._read_images(delta.get("images"), events)
        if isinstance(annotations := delta.get("annotations"), list):
            events.extend(
                Annotated(choice=self._index, annotation=entry) for entry in annotations if isinstance(entry, dict)
            )
        if isinstance(audio := delta.get("audio"), dict):
            expires_at = audio.get("expires_at")
            events.append(
                AudioDelta(
                    choice=self._index,
                    id=_text(audio.get("id")),
                    data=_text(audio.get("data")) or "",
                    transcript=_text(audio.get("transcript")) or "",
                    expires_at=expires_at if isinstance(expires_at, int) else None,
                )
            )

    def _read_images(self, images: Any, events: list[Event]) -> None:
        for image in images if isinstance(images, list) else ():
            inner = image.get("image_url") if isinstance(image, dict) else None
            url = inner.get("url") if isinstance(inner, dict) else inner
            if isinstance(url, str):
                events.append(ImageMade(choice=self._index, url=url))


def _text(value: Any) -> str | None:
    """Return a string that says something, else None."""
    return value if isinstance(value, str) and value else None
