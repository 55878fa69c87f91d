"""Cohere Chat v2, provider side: reads an answer into canonical events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from apps.gateway.canonical.events import (
    Annotated,
    Event,
    Finished,
    Logprobs,
    OpaqueDelta,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
    Waiting,
)
from apps.gateway.dialects import Failure
from apps.gateway.dialects.chat.cohere.wire import (
    FAILURE_WORDS,
    FINISH_REASONS,
    NAME,
    PLAN_FORMAT,
    encode,
    find_failure,
    new_id,
    read_usage,
)
from apps.gateway.dialects.chat.openai.wire import failed as openai_failed
from apps.gateway.dialects.reading.answers import (
    MAX_ERROR_LENGTH,
    drain_frames,
    failure_event,
    read_answer,
    truncated_answer,
    unreadable_answer,
)
from apps.gateway.dialects.reading.fields import Record

_ADDRESSES = ("url", "uri", "link", "source")


def read_citation(citation: Record) -> Iterator[Record]:
    """Yield a citation for each source that has an address; those of thinking and of plans are not of the text."""
    if citation.get("type", "TEXT_CONTENT") != "TEXT_CONTENT":
        return
    start, end = _place(citation.get("start")), _place(citation.get("end"))
    sources = citation.get("sources")
    for source in sources if isinstance(sources, list) else ():
        if isinstance(source, dict) and (found := _located(source)):
            yield {
                "type": "url_citation",
                "url_citation": {**found, "start_index": start, "end_index": max(start, end)},
            }


def _located(source: Record) -> Record | None:
    """Return address and title of a source, or None where it has no address."""
    for kind in ("document", "tool_output"):
        inner = source.get(kind)
        if not isinstance(inner, dict):
            continue
        for name in _ADDRESSES:
            url = inner.get(name)
            if isinstance(url, str) and url.startswith(("https://", "http://")):
                title = inner.get("title")
                return {"url": url, "title": title if isinstance(title, str) and title else url}
    return None


def _place(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


class MessageReader:
    """State of the message that was read so far."""

    def __init__(self) -> None:
        self._blocks: dict[object, int] = {}
        self._calls: dict[object, int] = {}
        self._citations: list[Record] = []
        self._foreign: list[Record] = []
        self._has_text = self._has_empty_text = False

    @property
    def has_calls(self) -> bool:
        """Whether the model called a tool."""
        return bool(self._calls)

    def read_whole(self, message: Record, events: list[Event]) -> None:
        """Add the events of a whole message."""
        content = message.get("content")
        for place, part in enumerate(content if isinstance(content, list) else [{"text": content}]):
            self.read_content(part, place, events)
        self.read_plan(message.get("tool_plan"), events)
        calls = message.get("tool_calls")
        for place, call in enumerate(calls if isinstance(calls, list) else ()):
            self.start_call(call, place, events)
        citations = message.get("citations")
        for citation in citations if isinstance(citations, list) else ():
            self.read_citation(citation, events)

    def read_content(self, part: Any, place: object, events: list[Event]) -> None:
        """Add a part of the content, or more of it: text, or thinking."""
        if not isinstance(part, dict):
            return
        text, thought = part.get("text"), part.get("thinking")
        if isinstance(text, str) and text:
            self._has_text = True
            events.append(TextDelta(text=text))
        elif isinstance(text, str):
            self._has_empty_text = True
        if isinstance(thought, str) and thought:
            block = self._blocks.setdefault(f"content {place!r}", len(self._blocks))
            events.append(ReasoningDelta(text=thought, block=block))
        if part.get("type") not in (None, "text", "thinking"):
            self._foreign.append(part)

    def read_plan(self, plan: Any, events: list[Event]) -> None:
        """Add what the model means to do with its tools, or more of it."""
        if isinstance(plan, str) and plan:
            block = self._blocks.setdefault("plan", len(self._blocks))
            events.append(ReasoningDelta(text=plan, format=PLAN_FORMAT, block=block))

    def start_call(self, call: Any, place: Any, events: list[Event]) -> None:
        """Add a call, with as much of its arguments as is there."""
        if not isinstance(call, dict):
            return
        inner = call.get("function")
        function: Record = inner if isinstance(inner, dict) else {}
        call_id, name = call.get("id"), function.get("name")
        index = self._calls[repr(place)] = len(self._calls)
        events.append(
            ToolCallStarted(
                index=index,
                id=call_id if isinstance(call_id, str) and call_id else new_id("call_"),
                name=name if isinstance(name, str) else "",
            )
        )
        self.read_call_delta(call, place, events)

    def read_call_delta(self, call: Any, place: Any, events: list[Event]) -> None:
        """Add more of a call's arguments; those of a call that never began belong to a call without a name."""
        inner = call.get("function") if isinstance(call, dict) else None
        arguments = inner.get("arguments") if isinstance(inner, dict) else None
        if arguments is None or arguments == "":
            return
        if repr(place) not in self._calls:
            self.start_call({}, place, events)
        text = arguments if isinstance(arguments, str) else encode(arguments).decode()
        events.append(ToolCallDelta(index=self._calls[repr(place)], arguments=text))

    def read_citation(self, citation: Any, events: list[Event]) -> None:
        """Add a citation; what OpenAI has no words for in it goes along at the end."""
        if isinstance(citation, dict) and citation:
            self._citations.append(citation)
            events.extend(Annotated(annotation=found) for found in read_citation(citation))

    def read_logprobs(self, items: list[Any], events: list[Event]) -> None:
        """Add log probabilities. Cohere tells them by pieces of text of one token or more: a piece has their sum."""
        content = [written for item in items if (written := _logprob(item))]
        if content:
            events.append(Logprobs(logprobs={"content": content}))

    def end(self, events: list[Event]) -> None:
        """Add the last events: that the text is empty, not absent; and fields that only Cohere has."""
        if self._has_empty_text and not self._has_text and not self.has_calls:
            events.append(TextDelta(text=""))
        if self._citations:
            events.append(OpaqueDelta(dialect=NAME, data={"citations": self._citations}))
        if self._foreign:
            events.append(OpaqueDelta(dialect=NAME, data={"content": self._foreign}))


def _logprob(item: Any) -> Record | None:
    """Return a piece of text with the probability of its tokens together, or None where that is not told."""
    if not isinstance(item, dict):
        return None
    text, values = item.get("text"), item.get("logprobs")
    if not isinstance(text, str) or not isinstance(values, list) or not values:
        return None
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return None
    data = list(text.encode("utf-8", "replace"))
    return {"token": text, "logprob": sum(values), "bytes": data, "top_logprobs": []}


_KNOWN = frozenset({"id", "finish_reason", "message", "logprobs"})
_END = b"[DONE]"


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer; one that cannot be read, or holds an error, ends with `Failed`."""
    answer = _Answer()
    yield from answer.read_whole(body)


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a streamed answer; an empty frame is silence and becomes `Waiting`.

    An answer that breaks off before `message-end`, holds an error or cannot be read ends with `Failed`.
    """
    answer = _Answer()
    frames = iter(frames)
    for frame in frames:
        if not frame:
            yield Waiting()
            continue
        if frame.strip() == _END:
            break
        yield from answer.read(frame)
        if answer.over:
            drain_frames(frames)
            return
    yield truncated_answer()


class _Answer:
    """State of the answer that was read so far."""

    def __init__(self) -> None:
        self.over = False
        self._started = False
        self._message = MessageReader()

    def read_whole(self, data: bytes) -> list[Event]:
        """Return the events of a plain answer."""
        try:
            answer = read_answer(data)
        except ValueError:
            return [unreadable_answer("The provider sent invalid JSON")]
        message = answer.get("message") if isinstance(answer, dict) else None
        if not isinstance(message, dict):
            failure = find_failure(answer)
            if failure:
                return [openai_failed(answer, failure)]
            return [unreadable_answer("The provider sent an answer without a message")]
        events: list[Event] = []
        self._start(answer, events)
        if isinstance(items := answer.get("logprobs"), list):
            self._message.read_logprobs(items, events)
        self._message.read_whole(message, events)
        rest = {name: value for name, value in answer.items() if name not in _KNOWN and value is not None}
        return self._end(answer, rest, events)

    def read(self, data: bytes) -> list[Event]:
        """Return the events of a piece of a stream."""
        try:
            piece = read_answer(data)
        except ValueError:
            return self._over([unreadable_answer("The provider sent invalid JSON")])
        if not isinstance(piece, dict):
            return self._over([unreadable_answer("The provider sent a stream without events")])
        kind = piece.get("type")
        if (not isinstance(kind, str) or kind == "error") and (failure := find_failure(piece)):
            return self._over([openai_failed(piece, failure)])
        events: list[Event] = []
        self._start(piece, events)
        delta = _inside(piece, "delta")
        if kind == "message-end":
            rest = _stated_usage(delta)
            return self._over(self._end(delta, rest, events))
        self._read_delta(str(kind), _inside(delta, "message"), piece, events)
        return events

    def _read_delta(self, kind: str, message: Record, piece: Record, events: list[Event]) -> None:
        """Add what an event in the middle of a stream says; one of a kind not known here says nothing."""
        place = piece.get("index")
        if kind in ("content-start", "content-delta"):
            if (item := piece.get("logprobs")) is not None:
                self._message.read_logprobs(item if isinstance(item, list) else [item], events)
            self._message.read_content(message.get("content"), place, events)
        elif kind == "tool-plan-delta":
            self._message.read_plan(message.get("tool_plan"), events)
        elif kind == "tool-call-start":
            self._message.start_call(message.get("tool_calls"), place, events)
        elif kind == "tool-call-delta":
            self._message.read_call_delta(message.get("tool_calls"), place, events)
        elif kind == "citation-start":
            self._message.read_citation(message.get("citations"), events)

    def _start(self, answer: Record, events: list[Event]) -> None:
        if not self._started:
            self._started = True
            name = answer.get("id")
            events.append(Started(id=name if isinstance(name, str) else ""))

    def _end(self, answer: Record, rest: Record, events: list[Event]) -> list[Event]:
        """Add the end of the answer: counts, and why it stopped."""
        word, words = answer.get("finish_reason"), answer.get("error")
        native = word if isinstance(word, str) and word else None
        if native in FAILURE_WORDS:
            message = words if isinstance(words, str) and words else f"The provider ended its answer with `{native}`"
            return [
                failure_event(Failure(message=message[:MAX_ERROR_LENGTH], code="upstream_error"), FAILURE_WORDS[native])
            ]
        self._message.end(events)
        if rest:
            events.append(OpaqueDelta(dialect=NAME, data=rest, of="reply"))
        if usage := read_usage(answer.get("usage")):
            events.append(UsageReported(usage=usage))
        reason = FINISH_REASONS.get(native or "", "stop")
        if reason == "stop" and self._message.has_calls:
            reason = "tool_calls"
        events.append(Finished(reason=reason, native=native))
        return events

    def _over(self, events: list[Event]) -> list[Event]:
        self.over = True
        return events


def _stated_usage(answer: Record) -> Record:
    """Return the counts as they are: there are more of them than the bill needs."""
    usage = answer.get("usage")
    return {} if usage is None else {"usage": usage}


def _inside(record: Record, name: str) -> Any:
    value = record.get(name)
    return value if isinstance(value, dict) else {}
