"""OpenAI Responses, client side: writes plain answers, streamed events, and the object of a finished response.

A plain answer is what the events of a streamed one add up to. Must never know where an answer came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import (
    Annotated,
    Choice,
    Event,
    Failed,
    Finished,
    ImageMade,
    Logprobs,
    OpaqueDelta,
    RefusalDelta,
    Reply,
    Searched,
    Started,
    Summary,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Waiting,
)
from apps.gateway.dialects.chat.openai.shared.failures import write_error_object
from apps.gateway.dialects.chat.openai.shared.wire import encode
from apps.gateway.dialects.chat.responses.client.asked import asked_of
from apps.gateway.dialects.chat.responses.client.write_items import OutputItems
from apps.gateway.dialects.chat.responses.client.write_response import ResponseFrame
from apps.gateway.dialects.chat.responses.shared.wire import NAME

Record = dict[str, Any]
# Is told each event of a stream before it goes out.
Listener = Callable[[Record], None]

_PING: Final = b": ping\n\n"
_CUT: Final = frozenset({"length", "content_filter"})


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return a whole answer: the first, where there are several."""
    return encode(response_of([*_events_of(reply), summary], chat))


def response_of(events: Iterable[Event], chat: Chat) -> Record:
    """Return the response object that an answer amounts to. Raises the error of one that broke off."""
    writer = ResponseWriter(chat)
    for event in events:
        if isinstance(event, Failed):
            raise event.error
        writer.write(event)
    return writer.response or {}


def write_events(events: Iterable[Event], chat: Chat, listen: Listener | None = None) -> Iterator[bytes]:
    """Yield a streamed answer. Its end waits for the summary, because usage travels with it; a failure ends it with an
    `error` event and `response.failed`, as OpenAI does."""
    writer = ResponseWriter(chat)
    for event in events:
        if isinstance(event, Waiting):
            if writer.response is None:
                yield _PING
            continue
        if out := writer.write(event):
            yield b"".join(_frame(one, listen) for one in out)


def _frame(event: Record, listen: Listener | None) -> bytes:
    if listen is not None:
        listen(event)
    return b"event: %b\ndata: %b\n\n" % (event["type"].encode(), encode(event))


class ResponseWriter:
    """One response on its way: its events, numbered, and in the end its object (`response`)."""

    def __init__(self, chat: Chat) -> None:
        self.response: Record | None = None
        self._frame = ResponseFrame(chat)
        self._items = OutputItems(asked_of(chat).cipher)
        self._begun = False
        self._number = 0
        self._end = Finished(reason="stop")

    def write(self, event: Event) -> list[Record]:
        """Return the events that a canonical one becomes; none once the response is over."""
        if self.response is not None:
            return []
        match event:
            case Started():
                self._frame.start(event)
                return []
            case OpaqueDelta(of="reply"):
                self._frame.learn(event.data if event.dialect == NAME else {})
                return []
            case Finished():
                self._end = event if event.choice == 0 else self._end
                return []
            case Summary():
                return self._finish(event)
            case Failed():
                return self._fail(event)
        self._items.write(event)
        return self._numbered(self._taken()) if self._items.out else []

    def _finish(self, summary: Summary) -> list[Record]:
        if self._end.explanation is not None:
            self._items.decline(self._end.explanation)
        self._items.close(incomplete=self._end.reason in _CUT)
        out = self._taken()
        self.response = self._frame.finished(self._end, self._items.output(), summary)
        last = {"type": f"response.{self.response['status']}", "response": self.response}
        return self._numbered([*out, last])

    def _fail(self, event: Failed) -> list[Record]:
        error = write_error_object(event.error)
        self.response = self._frame.failed(event.error, self._items.output())
        flat = {name: error[name] for name in ("code", "message", "param")}
        return self._numbered(
            [{"type": "error", **flat, "error": error}, {"type": "response.failed", "response": self.response}]
        )

    def _taken(self) -> list[Record]:
        out, self._items.out = self._items.out, []
        return out

    def _numbered(self, out: list[Record]) -> list[Record]:
        """Return events with their numbers, behind those with which every response begins."""
        if not self._begun:
            self._begun = True
            begun = self._frame.wire("in_progress", [])
            opening = ({"type": f"response.{word}", "response": begun} for word in ("created", "in_progress"))
            out = [*opening, *out]
        numbered = [
            {"type": event["type"], "sequence_number": number, **event}
            for number, event in enumerate(out, self._number)
        ]
        self._number += len(out)
        return numbered


def _events_of(reply: Reply) -> Iterator[Event]:
    """Yield the events of a reply that is whole, in the order in which its items stand."""
    yield Started(id=reply.id, model=reply.model, created=reply.created, extra=reply.extra)
    choice = reply.choices[0] if reply.choices else Choice()
    yield from (replace(block, choice=0) for block in choice.reasoning)
    for dialect, data in choice.extra.items():
        yield OpaqueDelta(dialect=dialect, data=data)
    yield from (Searched(query=query) for query in choice.searches)
    if choice.logprobs is not None:
        yield Logprobs(logprobs=choice.logprobs)
    if choice.text is not None:
        yield TextDelta(text=choice.text)
    if choice.refusal is not None:
        yield RefusalDelta(text=choice.refusal)
    yield from (Annotated(annotation=annotation) for annotation in choice.annotations)
    yield from (ImageMade(url=url) for url in choice.images)
    for index, call in enumerate(choice.tool_calls):
        yield ToolCallStarted(index=index, id=call.id, name=call.name, extra=call.extra)
        yield ToolCallDelta(index=index, arguments=call.arguments)
    yield Finished(reason=choice.finish or "stop", native=choice.native_finish, explanation=choice.explanation)
