"""OpenAI Responses, client side: writes plain answers, streamed events, and the object of a finished response.

A plain answer is the sum of the events of a streamed one.
"""

from __future__ import annotations

import time
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
from apps.gateway.dialects.chat.openai.wire import encode, write_error_object
from apps.gateway.dialects.chat.responses.client import asked_of
from apps.gateway.dialects.chat.responses.client.write_items import OutputItems
from apps.gateway.dialects.chat.responses.wire import NAME, new_id
from apps.gateway.dialects.reading.answers import exact_number
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.errors import ApiError

# The defaults of a response's fields that its request did not set, in OpenAI's own order.
_USUAL: Final[Record] = {
    "background": False,
    "conversation": None,
    "error": None,
    "frequency_penalty": 0.0,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "prompt_cache_retention": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": False,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
# Fields that a response repeats as its request had them.
_REPEATED: Final = frozenset(_USUAL) - {"background", "conversation", "error", "incomplete_details", "store"}
_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}
# Error codes that OpenAI's clients know; any other failure is reported by its status.
_CODES: Final = frozenset(
    {"server_error", "rate_limit_exceeded", "invalid_prompt", "context_length_exceeded", "insufficient_quota"}
)


class ResponseFrame:
    """The response object around the items of one answer."""

    def __init__(self, chat: Chat) -> None:
        self._asked = asked_of(chat)
        self._fields: Record = {**_USUAL, **_repeated(self._asked.fields), **self._asked.echo}
        self._id = self._asked.response_id
        self._created = 0
        self._model = chat.model
        self._more: Record = {}

    def start(self, event: Started) -> None:
        """Read the event that begins the answer."""
        self._id = self._id or event.id
        self._created = event.created
        self._model = event.model or self._model
        self.begin(event.extra.get(NAME, {}))

    def begin(self, news: Record) -> None:
        """Take in what a provider of this format says of its whole answer."""
        self._more |= news

    def wire(self, status: str, output: list[Record], **news: Any) -> Record:
        """Return the response object as it is now."""
        self._id = self._id or new_id("resp_")
        self._created = self._created or int(time.time())
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "completed_at": None,
            **self._fields,
            "model": self._model,
            "output": output,
            "usage": None,
            **self._more,
            **news,
        }

    def finished(self, end: Finished, output: list[Record], summary: Summary) -> Record:
        """Return the response object of an answer that came to its end, whole or cut off."""
        self._model = str(summary.metadata.get("used_model") or self._model)
        reason = _INCOMPLETE.get(end.reason)
        news: Record = {"usage": write_usage(summary), "gateway": summary.metadata}
        if reason is not None:
            return self.wire("incomplete", output, incomplete_details={"reason": reason}, **news)
        return self.wire("completed", output, completed_at=max(int(time.time()), self._created), **news)

    def failed(self, error: ApiError, output: list[Record]) -> Record:
        """Return the response object of an answer that broke off."""
        return self.wire("failed", output, error={"code": code_of(error), "message": error.message})


def _repeated(fields: Record) -> Record:
    """Return what a response repeats of its request, in full where the request was brief."""
    repeated = {name: value for name, value in fields.items() if name in _REPEATED and value is not None}
    for name in ("reasoning", "text"):
        if isinstance(value := repeated.get(name), dict):
            repeated[name] = {**_USUAL[name], **value}
    if isinstance(tools := repeated.get("tools"), list):
        repeated["tools"] = [_tool(tool) for tool in tools]
    return repeated


def _tool(tool: Any) -> Any:
    """Return a tool as OpenAI repeats it: a function with all of its fields."""
    if isinstance(tool, dict) and tool.get("type") == "function":
        return {"description": None, "parameters": None, "strict": None, **tool}
    return tool


def code_of(error: ApiError) -> str:
    """Return OpenAI's word for a failure."""
    if error.code in _CODES:
        return error.code
    return "rate_limit_exceeded" if error.status == 429 else "server_error"


def write_usage(summary: Summary) -> Record:
    """Return `usage` with what it cost, in USD."""
    usage = summary.usage
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write + usage.cache_write_1h,
        },
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": prompt + completion,
        **{f"cost_usd_{part}": exact_number(amount) for part, amount in summary.cost.items()},
    }


# Receives each event of a stream before it is sent.
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
                self._frame.begin(event.data if event.dialect == NAME else {})
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
