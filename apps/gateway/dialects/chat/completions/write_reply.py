"""OpenAI's legacy completions: writes a whole reply or a stream of pieces, which have the same shape.

Answers have the shape that OpenAI's own clients read. Text is all that it has: calls, images and thinking are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from apps.gateway.canonical.chat import Chat, Text
from apps.gateway.canonical.events import (
    Choice,
    Event,
    Failed,
    Finished,
    Logprobs,
    RefusalDelta,
    Reply,
    Started,
    Summary,
    TextDelta,
    Waiting,
)
from apps.gateway.dialects.chat.openai.client.write_reply import DONE, PING, id_of
from apps.gateway.dialects.chat.openai.shared.failures import write_error_object
from apps.gateway.dialects.chat.openai.shared.usage import write_usage
from apps.gateway.dialects.chat.openai.shared.wire import encode
from apps.gateway.dialects.reading.fields import Record

_OBJECT: Final = "text_completion"
# Its clients know of no other end; one that called tools stopped all the same.
_ENDS: Final = frozenset({"stop", "length", "content_filter"})


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return a whole answer."""
    return encode(
        {
            "id": id_of(reply),
            "object": _OBJECT,
            "created": reply.created,
            "model": summary.metadata.get("used_model") or reply.model,
            "choices": [_whole(index, choice, chat) for index, choice in enumerate(reply.choices)],
            "usage": write_usage(summary, live=bool(reply.provider), details=chat.usage_details),
            "metadata": summary.metadata,
        }
    )


def write_events(events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
    """Yield a streamed answer: pieces, usage where the client wants it, and `[DONE]`; a failure ends it without."""
    stream = _Stream(chat)
    for event in events:
        if not stream.over and (piece := stream.write(event)):
            yield piece


def _whole(index: int, choice: Choice, chat: Chat) -> Record:
    text = (choice.text or "") + (choice.refusal or "")
    logprobs = None if choice.logprobs is None else write_logprobs(choice.logprobs, 0)
    return _choice(index, _echo_of(chat, index) + text, logprobs, _end(choice.finish or "stop"))


def _choice(index: int, text: str, logprobs: Record | None, end: str | None) -> Record:
    return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": end}


def _end(reason: str) -> str:
    return reason if reason in _ENDS else "stop"


def _echo_of(chat: Chat, index: int) -> str:
    """Return an answer's prompt, as the client may read it, where it wants it before the answer."""
    if not chat.echo:
        return ""
    prompt = chat.messages[min(index // (chat.n or 1), len(chat.messages) - 1)]
    return "".join(part.text for part in prompt.parts if isinstance(part, Text))


def write_logprobs(logprobs: Record, offset: int) -> Record:
    """Return the probabilities of a chat's tokens in this format's columns; `offset` is where the text begins, in
    characters."""
    tokens = [entry for entry in logprobs.get("content") or () if isinstance(entry, dict) and "token" in entry]
    offsets: list[int] = []
    for entry in tokens:
        offsets.append(offset)
        offset += len(entry["token"])
    tops = [
        {top["token"]: top.get("logprob") for top in entry.get("top_logprobs") or () if isinstance(top, dict)}
        for entry in tokens
    ]
    return {
        "tokens": [entry["token"] for entry in tokens],
        "token_logprobs": [entry.get("logprob") for entry in tokens],
        "top_logprobs": tops if any(tops) else None,
        "text_offset": offsets,
    }


class _Stream:
    """State of a stream that is being written, with text that waits for the next piece."""

    def __init__(self, chat: Chat) -> None:
        self.over = False
        self._chat = chat
        self._include_usage, self._usage_details = chat.include_usage, chat.usage_details
        self._head: Record = {}
        self._live = False
        # By choice: characters of the answer so far, and the probabilities of those that come next.
        self._written: dict[int, int] = {}
        self._logprobs: dict[int, Record] = {}
        self._ends: dict[int, Finished] = {}
        self._start(Started())

    def write(self, event: Event) -> bytes:
        """Return the bytes that an event becomes; none for what waits or has no place here."""
        match event:
            case TextDelta() | RefusalDelta():
                return self._text(event.choice, event.text)
            case Logprobs():
                return self._probabilities(event)
            case Started():
                self._start(event)
            case Finished():
                self._ends[event.choice] = event
            case Summary():
                return self._summary(event)
            case Waiting():
                return PING
            case Failed():
                self.over = True
                return b"data: %b\n\n" % encode({"error": write_error_object(event.error)})
        return b""

    def _start(self, event: Started) -> None:
        self._head = {"id": id_of(event), "object": _OBJECT, "created": event.created, "model": event.model}
        self._live = bool(event.provider)

    def _text(self, choice: int, text: str, end: str | None = None, bill: Record | None = None) -> bytes:
        written = self._written.get(choice)
        self._written[choice] = (written or 0) + len(text)
        echo = _echo_of(self._chat, choice) if written is None else ""
        piece = _choice(choice, echo + text, self._logprobs.pop(choice, None), end)
        return b"data: %b\n\n" % encode({**self._head, "choices": [piece], **(bill or {})})

    def _probabilities(self, event: Logprobs) -> bytes:
        """Keep the probabilities of the text that comes next; those of the same text as others go out first."""
        piece = self._text(event.choice, "") if event.choice in self._logprobs else b""
        self._logprobs[event.choice] = write_logprobs(event.logprobs, self._written.get(event.choice, 0))
        return piece

    def _summary(self, event: Summary) -> bytes:
        """Return the ends of the choices, usage and metadata where the client wants them, and the end of the stream."""
        ends = [self._ends[choice] for choice in sorted(self._ends)] or [Finished(reason="stop")]
        usage = write_usage(event, live=self._live, details=self._usage_details)
        bill: Record = {"usage": usage, "metadata": event.metadata}
        pieces: list[bytes] = []
        for end in ends:
            with_bill = self._include_usage is None and end is ends[-1]
            pieces.append(self._text(end.choice, "", _end(end.reason), bill if with_bill else None))
        self.over = True
        if self._include_usage:
            pieces.append(b"data: %b\n\n" % encode({**self._head, "choices": [], **bill}))
        return b"".join((*pieces, DONE))
