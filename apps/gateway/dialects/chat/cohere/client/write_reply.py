"""Cohere Chat v2, client side: writes a whole answer, or a stream of its events.

Shapes are those that Cohere's own clients accept. Fields of Cohere's that an answer brought are put back in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

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
    OpaqueDelta,
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
from apps.gateway.dialects.chat.cohere.wire import (
    DOCUMENT,
    NAME,
    PLAN_FORMAT,
    encode,
    finish_word,
    new_id,
    without_none,
    write_usage,
)
from apps.gateway.dialects.chat.openai.wire import write_error_object
from apps.gateway.dialects.reading.fields import Record

_PING: Final = b": ping\n\n"
_DONE: Final = b"data: [DONE]\n\n"
_TEXT: Final = "text"
_THINKING: Final = "thinking"


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return a whole answer: the first, of several."""
    choice = reply.choices[0] if reply.choices else Choice()
    extra = dict(reply.extra.get(NAME, {}))
    usage = write_usage(summary.usage, extra.pop("usage", None))
    return encode(
        {
            "id": _id_of(reply),
            "finish_reason": finish_word(choice.finish or "stop", choice.native_finish),
            "message": _message(choice, silent=_hides_thinking(chat)),
            **without_none(logprobs=_write_logprobs(choice.logprobs) or None),
            **extra,
            "usage": usage,
            "metadata": summary.metadata,
        }
    )


def _message(choice: Choice, *, silent: bool) -> Record:
    own = choice.extra.get(NAME, {})
    blocks = [] if silent else choice.reasoning
    content: list[Record] = [
        {"type": _THINKING, _THINKING: block.text} for block in blocks if block.text and not _is_plan(block)
    ]
    said = [text for text in (choice.text, choice.refusal) if text is not None]
    if choice.audio is not None and choice.audio.transcript:
        said.append(choice.audio.transcript)
    said += [_name_image(url) for url in choice.images if not _is_data(url)]
    if said or not (choice.tool_calls or choice.images):
        content.append({"type": _TEXT, _TEXT: "".join(said)})
    content += [_write_image(url) for url in choice.images if _is_data(url)]
    content += own.get("content", [])
    citations = own.get("citations") or [
        citation for note in choice.annotations if (citation := _write_citation(note, choice.text or ""))
    ]
    return {
        "role": "assistant",
        **without_none(
            content=content or None,
            tool_plan="".join(block.text for block in blocks if _is_plan(block)) or None,
            tool_calls=[_write_call(call.id, call.name, call.arguments or "{}") for call in choice.tool_calls] or None,
            citations=citations or None,
        ),
    }


def _is_plan(block: ReasoningDelta) -> bool:
    return block.format == PLAN_FORMAT


def _write_call(call_id: str, name: str, arguments: str) -> Record:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _is_data(url: str) -> bool:
    return url[:5].lower() == "data:"


def _name_image(url: str) -> str:
    """Return an image that lies elsewhere in words: clients show Markdown, and no part of the format has an address."""
    return f"![image]({url})"


def _write_image(url: str) -> Record:
    return {"type": "image_url", "image_url": {"url": url}}


def _write_citation(note: Record, text: str) -> Record | None:
    """Return a citation of a page, of the whole text where it has no place; None for another kind of note."""
    page = note.get("url_citation")
    if not isinstance(page, dict) or not isinstance(url := page.get("url"), str):
        return None
    start, end = page.get("start_index"), page.get("end_index")
    if not isinstance(start, int) or not isinstance(end, int):
        start, end = 0, len(text)
    title = page.get("title")
    source = {"id": url, "url": url, "title": title if isinstance(title, str) and title else url}
    return {
        "start": start,
        "end": end,
        "text": text[max(start, 0) : max(end, 0)],
        "sources": [{"type": DOCUMENT, "id": url, DOCUMENT: source}],
        "type": "TEXT_CONTENT",
    }


def _write_logprobs(logprobs: Record | None) -> list[Record]:
    """Return log probabilities of tokens. Providers of other formats tell no ids of tokens."""
    tokens = (logprobs or {}).get("content")
    return [
        {"text": token.get("token", ""), "token_ids": [], "logprobs": [token.get("logprob", 0)]}
        for token in (tokens if isinstance(tokens, list) else ())
        if isinstance(token, dict)
    ]


def _id_of(answer: Reply | Started) -> str:
    """Return an answer's id: that of its log entry, so that it can be asked about; else the provider's."""
    return f"gen-{answer.log_id}" if answer.log_id else answer.id or new_id("chat-")


def _hides_thinking(chat: Chat) -> bool:
    return chat.reasoning is not None and chat.reasoning.exclude is True


def write_events(events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
    """Yield a streamed answer, the first of several: its message in pieces, `message-end` with the usage, and `[DONE]`.

    A failure ends it with the finish reason `ERROR`, as Cohere's own do.
    """
    stream = _Stream(chat)
    for event in events:
        if not stream.over and event.choice == 0 and (piece := stream.write(event)):
            yield piece


def _sse(kind: str, **members: Any) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), encode({"type": kind, **members}))


class _Stream:
    """State of a stream that is being written: the part of the content, and the call, that are open."""

    def __init__(self, chat: Chat) -> None:
        self.over = False
        self._silent = _hides_thinking(chat)
        self._id = ""
        self._has_begun = False
        self._end: Finished | None = None
        # The open part of the content: its number and its kind (of thinking, with the number of its block).
        self._part: tuple[int, str] | None = None
        self._part_count = 0
        self._call: int | None = None
        self._call_count = 0
        self._is_call_empty = False
        self._texts: list[str] = []
        self._citation_count = 0
        self._annotations: list[Record] = []
        self._own: Record = {}
        self._usage: Any = None
        # Log probabilities that no piece of text has told yet.
        self._likely: list[Record] = []

    def write(self, event: Event) -> bytes:
        """Return the bytes that an event becomes; none for what waits or says nothing here."""
        write = _WRITERS.get(type(event))
        return write(self, event) if write is not None else b""

    def _started(self, event: Started) -> bytes:
        self._id = _id_of(event)
        self._usage = event.extra.get(NAME, {}).get("usage")
        return b""

    def _begun(self, pieces: bytes) -> bytes:
        """Return pieces of the message, with its start before the first of them."""
        if self._has_begun or not pieces:
            return pieces
        self._has_begun = True
        self._id = self._id or new_id("chat-")
        empty = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
        return _sse("message-start", id=self._id, delta={"message": empty}) + pieces

    def _open(self, kind: str, part: Record) -> bytes:
        """Return the start of a part of the content, after the end of the open one; none where it is open already."""
        if self._part is not None and self._part[1] == kind:
            return b""
        ended = self._close()
        self._part = (self._part_count, kind)
        self._part_count += 1
        return ended + _sse("content-start", index=self._part[0], delta={"message": {"content": part}})

    def _close(self) -> bytes:
        """Return the end of the part or the call that is open."""
        pieces = b""
        if self._part is not None:
            pieces += self._tell_likely() + _sse("content-end", index=self._part[0])
        if self._call is not None:
            pieces += self._argue(self._call, "{}") if self._is_call_empty else b""
            pieces += _sse("tool-call-end", index=self._call)
        self._part = self._call = None
        return pieces

    def _say(self, text: str) -> bytes:
        """Return more text of the answer, the first log probability with it, and the others after it."""
        self._texts.append(text)
        opened = self._open(_TEXT, {"type": _TEXT, _TEXT: ""})
        first = {"logprobs": self._likely.pop(0)} if self._likely else {}
        return opened + self._content({_TEXT: text}, **first) + self._tell_likely()

    def _content(self, content: Record, **beside: Any) -> bytes:
        number = 0 if self._part is None else self._part[0]
        return _sse("content-delta", index=number, delta={"message": {"content": content}}, **beside)

    def _tell_likely(self) -> bytes:
        if self._part is None or self._part[1] != _TEXT:
            return b""
        likely, self._likely = self._likely, []
        return b"".join(self._content({_TEXT: ""}, logprobs=item) for item in likely)

    def _text(self, event: TextDelta | RefusalDelta) -> bytes:
        return self._begun(self._say(event.text))

    def _audio(self, event: AudioDelta) -> bytes:
        return self._begun(self._say(event.transcript)) if event.transcript else b""

    def _reasoning(self, event: ReasoningDelta) -> bytes:
        if self._silent or not event.text:
            return b""
        if _is_plan(event):
            plan = _sse("tool-plan-delta", delta={"message": {"tool_plan": event.text}})
            return self._begun(self._close() + plan)
        opened = self._open(f"{_THINKING} {event.block}", {"type": _THINKING, _THINKING: ""})
        return self._begun(opened + self._content({_THINKING: event.text}))

    def _call_started(self, event: ToolCallStarted) -> bytes:
        ended = self._close()
        self._call, self._is_call_empty = event.index, True
        self._call_count += 1
        call = _write_call(event.id, event.name, "")
        return self._begun(ended + _sse("tool-call-start", index=event.index, delta={"message": {"tool_calls": call}}))

    def _call_delta(self, event: ToolCallDelta) -> bytes:
        if not event.arguments:
            return b""
        if event.index == self._call:
            self._is_call_empty = False
        return self._begun(self._argue(event.index, event.arguments))

    def _argue(self, index: int, arguments: str) -> bytes:
        delta = {"message": {"tool_calls": {"function": {"arguments": arguments}}}}
        return _sse("tool-call-delta", index=index, delta=delta)

    def _image(self, event: ImageMade) -> bytes:
        if not _is_data(event.url):
            return self._begun(self._say(_name_image(event.url)))
        return self._begun(self._show(_write_image(event.url)))

    def _show(self, part: Record) -> bytes:
        """Return a whole part of the content, of a kind of its own."""
        return self._close() + self._open("", part) + self._close()

    def _annotated(self, event: Annotated) -> bytes:
        self._annotations.append(event.annotation)
        return b""

    def _logprobs(self, event: Logprobs) -> bytes:
        self._likely += _write_logprobs(event.logprobs)
        return b""

    def _opaque(self, event: OpaqueDelta) -> bytes:
        if event.dialect != NAME:
            return b""
        if event.of == "reply":
            self._usage = event.data.get("usage", self._usage)
        elif event.of == "message":
            self._own |= event.data
        return b""

    def _finished(self, event: Finished) -> bytes:
        self._end = event
        return b""

    def _cite(self) -> bytes:
        """Return the citations: Cohere's own, or else those of pages that another format brought."""
        text = "".join(self._texts)
        citations = self._own.get("citations") or [
            citation for note in self._annotations if (citation := _write_citation(note, text))
        ]
        pieces = b""
        for number, citation in enumerate(citations):
            pieces += _sse("citation-start", index=number, delta={"message": {"citations": citation}})
            pieces += _sse("citation-end", index=number)
        return pieces

    def _summary(self, event: Summary) -> bytes:
        """Return the end of the open part, the citations, and the end of the message."""
        self.over = True
        pieces = b""
        if not (self._texts or self._call_count or self._part_count):
            pieces += self._say("")
        pieces += self._close()
        pieces += b"".join(map(self._show, self._own.get("content", [])))
        pieces += self._cite()
        end = self._end or Finished(reason="stop")
        delta = {"finish_reason": finish_word(end.reason, end.native), "usage": write_usage(event.usage, self._usage)}
        whole = self._begun(pieces) or self._begun(_PING)
        return whole + _sse("message-end", id=self._id, delta=delta, metadata=event.metadata) + _DONE

    def _waiting(self, event: Waiting) -> bytes:
        return _PING

    def _failed(self, event: Failed) -> bytes:
        self.over = True
        delta = {"error": event.error.message, "finish_reason": "ERROR"}
        return _sse("message-end", delta=delta, error=write_error_object(event.error))


_WRITERS = cast(
    dict[type[Event], Callable[[_Stream, Event], bytes]],
    {
        Started: _Stream._started,
        TextDelta: _Stream._text,
        RefusalDelta: _Stream._text,
        AudioDelta: _Stream._audio,
        ReasoningDelta: _Stream._reasoning,
        ToolCallStarted: _Stream._call_started,
        ToolCallDelta: _Stream._call_delta,
        ImageMade: _Stream._image,
        Annotated: _Stream._annotated,
        Logprobs: _Stream._logprobs,
        OpaqueDelta: _Stream._opaque,
        Finished: _Stream._finished,
        Summary: _Stream._summary,
        Waiting: _Stream._waiting,
        Failed: _Stream._failed,
    },
)
