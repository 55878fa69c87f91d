"""OpenAI's legacy completions: the client side of the dialect, for clients that send a prompt in place of messages.

Each prompt is a chat of one message, so every chat provider can answer it; the log keeps the prompts as messages.
Answers have the shape that OpenAI's own clients read. Text is all that it has: calls, images and thinking are dropped.

Source: OpenAI's API reference for `/v1/completions` (November 2026).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

from apps.gateway.canonical.chat import Chat, DroppedField, Message, Text
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
from apps.gateway.dialects.chat import openai
from apps.gateway.dialects.chat.openai.client.read_request import FIELDS
from apps.gateway.dialects.chat.openai.client.write_reply import DONE, PING, id_of
from apps.gateway.dialects.chat.openai.wire import encode, write_error_object, write_usage
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Malformed, Reader, Record, boolean, filled_string, integer, string
from apps.gateway.dialects.reading.router_fields import take_router_fields
from apps.kernel.errors import InvalidRequest

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
    tokens = _tokens(logprobs.get("content"))
    offsets: list[int] = []
    for entry in tokens:
        offsets.append(offset)
        offset += len(entry["token"])
    tops = [{top["token"]: top.get("logprob") for top in _tokens(entry.get("top_logprobs"))} for entry in tokens]
    return {
        "tokens": [entry["token"] for entry in tokens],
        "token_logprobs": [entry.get("logprob") for entry in tokens],
        "top_logprobs": tops if any(tops) else None,
        "text_offset": offsets,
    }


def _tokens(entries: Any) -> list[Record]:
    """Return those of a provider's entries that name a token."""
    listed = entries if isinstance(entries, list) else []
    return [entry for entry in listed if isinstance(entry, dict) and isinstance(entry.get("token"), str)]


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


NAME: Final = "completions"
# OpenAI's own bounds.
_MAX_CANDIDATES: Final = 20
_MAX_LOGPROBS: Final = 5
# Ours: each prompt is a call of its own, and all of them are made at once.
_MAX_PROMPTS: Final = 16
_MAX_ANSWERS: Final = 32
_TEXTS: Final = frozenset({"prompt", "suffix", "logit_bias"})
# Fields with the same meaning as in a chat.
_OF_CHATS: Final = (
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "frequency_penalty",
    "presence_penalty",
    "stop",
    "seed",
    "n",
    "logit_bias",
    "user",
    "metadata",
    "service_tier",
    "prompt_cache_key",
)


def read_request(body: bytes) -> Chat:
    """Return the chat that a body asks for. Raises InvalidRequest naming the field."""
    return fields.read_body(body, _TEXTS, _read)


def _read(wire: Record) -> Chat:
    known, unknown = fields.read_known(wire, _READERS)
    take_router_fields(unknown, known)
    for name in ("model", "prompt"):
        if name not in known:
            raise Malformed("Required", name)
    n, prompts = known.get("n", 1), known.pop("prompt")
    if len(prompts) > 1 and len(prompts) * n > _MAX_ANSWERS:
        raise _refused("n", f"all prompts together are given {_MAX_ANSWERS} answers at most")
    if known.pop("best_of", n) != n:
        raise _refused("best_of", f"every answer that is made is given, so it may be {n} here, as n is")
    if known.pop("suffix", None):
        raise _refused("suffix", "a chat model cannot write what comes before a given text")
    likeliest = known.pop("logprobs", None)
    if likeliest is not None and known.get("echo"):
        raise _refused("echo", "no chat model reports the probabilities of the prompt's own tokens")
    # Not sent on: what a chat's format calls by that name may be something else.
    dropped = [DroppedField(name[: fields.MAX_QUOTED_NAME], "completions have no such option here") for name in unknown]
    dropped_fields = [*known.pop("dropped_fields", ()), *dropped]
    return Chat(
        messages=[Message(role="user", parts=[Text(text=prompt)]) for prompt in prompts],
        include_usage=known.pop("stream_options", None),
        logprobs=None if likeliest is None else True,
        top_logprobs=likeliest or None,
        dropped_fields=dropped_fields or None,
        dialect=NAME,
        task="completions",
        **known,
    )


def _prompts(value: Any) -> list[str]:
    """Read the prompts: a text, or a list of some. Raises InvalidRequest for tokens."""
    if isinstance(value, str):
        return [filled_string(value)]
    if not isinstance(value, list):
        raise Malformed("must be a string, or an array of strings")
    if not value:
        raise Malformed("must not be empty")
    if isinstance(value[0], int | list):
        raise _refused("prompt", "arrays of tokens cannot be sent to chat models; send the text")
    if len(value) > _MAX_PROMPTS:
        raise Malformed(f"must be {_MAX_PROMPTS} prompts at most")
    return [fields.within(f"[{number}]", filled_string, prompt) for number, prompt in enumerate(value)]


def _refused(param: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{param}: {why}", code="unsupported_feature", param=param)


_READERS: Final[dict[str, Reader[Any]]] = {
    **{name: FIELDS[name] for name in _OF_CHATS},
    "prompt": _prompts,
    "echo": boolean,
    "suffix": string,
    "best_of": integer(1, _MAX_CANDIDATES),
    "logprobs": integer(0, _MAX_LOGPROBS),
}


CLIENT: Final = replace(
    openai.CLIENT,
    read_request=read_request,
    write_reply=write_reply,
    write_events=write_events,
    field_names={"messages": "prompt", "top_logprobs": "logprobs"},
    custom_tool_dialects=None,
)
