"""Ollama's API, client side: writes answers, whole or as lines of JSON.

`/api/chat` has an answer's text and all else in a `message`; `/api/generate` has the same beside the other fields, and
its text as `response`. A call of a tool is written whole, with its arguments as an object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import (
    Annotated,
    AudioDelta,
    Choice,
    Event,
    Failed,
    Finished,
    ImageMade,
    Logprobs,
    ReasoningDelta,
    RefusalDelta,
    Reply,
    Started,
    Summary,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Waiting,
)
from apps.gateway.dialects.chat.ollama.wire import encode, write_counts, write_error, write_time
from apps.gateway.dialects.reading.fields import Record, argument_object

# Returns what holds a message, or a piece of one, in an answer.
Shape = Callable[[Record], Record]
# The format's words for why an answer ended; a filter has none there.
_ENDS: Final = {"tool_calls": "stop"}


def as_message(message: Record) -> Record:
    """Return a message as `/api/chat` has it."""
    return {"message": {"role": "assistant", "content": "", **message}}


def as_response(message: Record) -> Record:
    """Return a message as `/api/generate` has it."""
    return {"response": message.pop("content", ""), **message}


def write_reply_as(shape: Shape, reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return a whole answer."""
    choice = reply.choices[0] if reply.choices else Choice()
    end = Finished(reason=choice.finish or "stop")
    likely = [] if choice.logprobs is None else _tokens(choice.logprobs)
    message = _message(choice, hides_thinking=_hides_thinking(chat))
    return encode(_last(shape(message), reply.model, reply.created, likely, end, summary))


def write_events_as(shape: Shape, events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
    """Yield a streamed answer, a line for each piece of it; a failure ends it with an error."""
    stream = _Stream(shape, chat)
    for event in events:
        if not stream.over and (piece := stream.write(event)):
            yield piece


write_reply = partial(write_reply_as, as_message)
write_events = partial(write_events_as, as_message)


def _last(written: Record, model: str, created: int, likely: list[Any], end: Finished, summary: Summary) -> Record:
    """Return a whole answer, or the last line of a stream."""
    return {
        "model": summary.metadata.get("used_model") or model,
        "created_at": write_time(created),
        **written,
        **({"logprobs": likely} if likely else {}),
        "done": True,
        "done_reason": _ENDS.get(end.reason, end.reason),
        **write_counts(summary),
    }


def _message(choice: Choice, *, hides_thinking: bool) -> Record:
    declined = choice.explanation if choice.refusal is None else choice.refusal
    transcript = choice.audio.transcript if choice.audio is not None else ""
    shown = [*map(_image, choice.images)]
    links = "".join(one for one in shown if isinstance(one, str))
    message: Record = {"content": "".join((choice.text or "", declined or "", transcript, links))}
    thinking = "" if hides_thinking else "".join(block.text for block in choice.reasoning)
    if thinking:
        message["thinking"] = thinking
    if images := [image for one in shown if not isinstance(one, str) for image in one]:
        message["images"] = images
    if choice.tool_calls:
        calls = ((call.id, call.name, call.arguments) for call in choice.tool_calls)
        message["tool_calls"] = [_call(index, *call) for index, call in enumerate(calls)]
    if choice.annotations:
        message["annotations"] = choice.annotations
    return message


def _call(index: int, call_id: str, name: str, arguments: str) -> Record:
    return {"id": call_id, "function": {"index": index, "name": name, "arguments": argument_object(arguments)}}


def _image(url: str) -> str | list[str]:
    """Return the base64 of an image, or the words that show one by its address."""
    if not url.startswith("data:"):
        return f"![image]({url})"
    return [url.partition(",")[2]]


def _tokens(logprobs: Record) -> list[Any]:
    """Return the tokens of OpenAI's log probabilities, which are the same here."""
    tokens = logprobs.get("content")
    return [token for token in tokens if isinstance(token, dict)] if isinstance(tokens, list) else []


def _hides_thinking(chat: Chat) -> bool:
    return chat.reasoning is not None and chat.reasoning.exclude is True


class _Stream:
    """State of a stream that is being written, with calls and the end that wait for their place."""

    def __init__(self, shape: Shape, chat: Chat) -> None:
        self.over = False
        self._shape = shape
        self._hides_thinking = _hides_thinking(chat)
        self._started = Started()
        self._head: Record = {}
        self._calls: dict[int, tuple[ToolCallStarted, list[str]]] = {}
        self._notes: list[Record] = []
        self._likely: list[Any] = []
        self._has_declined = False
        self._end = Finished(reason="stop")
        self._start(self._started)

    def write(self, event: Event) -> bytes:
        """Return the line that an event becomes; none for what waits or has no place here."""
        match event:
            case TextDelta():
                return self._line({"content": event.text})
            case ReasoningDelta():
                return self._line({"thinking": event.text}) if event.text and not self._hides_thinking else b""
            case ToolCallStarted():
                self._calls[event.index] = (event, [])
            case ToolCallDelta():
                if event.index in self._calls:
                    self._calls[event.index][1].append(event.arguments)
            case Started():
                self._start(event)
            case Finished():
                return self._finish(event)
            case Summary():
                return self._sum_up(event)
            case Waiting():
                # Readers of lines take no empty ones.
                return self._line({})
            case Failed():
                self.over = True
                return write_error(event.error) + b"\n"
            case _:
                return self._write_rare(event)
        return b""

    def _write_rare(self, event: Event) -> bytes:
        match event:
            case RefusalDelta():
                self._has_declined = True
                return self._line({"content": event.text})
            case AudioDelta():
                return self._line({"content": event.transcript}) if event.transcript else b""
            case ImageMade():
                shown = _image(event.url)
                return self._line({"content": shown} if isinstance(shown, str) else {"images": shown})
            case Annotated():
                self._notes.append(event.annotation)
            case Logprobs():
                self._likely += _tokens(event.logprobs)
        return b""

    def _start(self, event: Started) -> None:
        self._started = event
        self._head = {"model": event.model, "created_at": write_time(event.created)}

    def _line(self, message: Record) -> bytes:
        beside: Record = {}
        if self._likely:
            beside, self._likely = {"logprobs": self._likely}, []
        return encode({**self._head, **self._shape(message), **beside, "done": False}) + b"\n"

    def _finish(self, event: Finished) -> bytes:
        """Return the calls, all of them in one line, and why a filter ended the answer."""
        self._end = event
        message: Record = {}
        if event.explanation is not None and not self._has_declined:
            message["content"] = event.explanation
        if self._calls:
            calls = enumerate(self._calls.values())
            message["tool_calls"] = [_call(at, call.id, call.name, "".join(said)) for at, (call, said) in calls]
            self._calls = {}
        if self._notes:
            message["annotations"], self._notes = self._notes, []
        return self._line(message) if message else b""

    def _sum_up(self, summary: Summary) -> bytes:
        self.over = True
        rest = self._finish(self._end) if self._calls or self._notes else b""
        started = self._started
        last = _last(self._shape({}), started.model, started.created, self._likely, self._end, summary)
        return rest + encode(last) + b"\n"
