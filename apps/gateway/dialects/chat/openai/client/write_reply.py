"""OpenAI Chat Completions, client side: writes a whole reply or a stream of chunks.

Answers have the shapes that OpenAI's own clients accept. Other fields of an OpenAI-alike are put back at their place,
as long as those clients can take them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

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
from apps.gateway.dialects.chat.openai.client.read_request import is_legacy
from apps.gateway.dialects.chat.openai.provider.write_messages import write_detail
from apps.gateway.dialects.chat.openai.wire import NAME, PARKED, encode, new_id, write_error_object, write_usage
from apps.gateway.dialects.reading.fields import Record


def write_choice(choice: Choice, *, legacy: bool, silent: bool) -> Record:
    """Return a choice without its index. `legacy` clients know functions, not tools; `silent` ones want no thinking."""
    reason = choice.finish or "stop"
    wire: Record = {
        "message": _message(choice, legacy=legacy, silent=silent),
        "finish_reason": "function_call" if legacy and reason == "tool_calls" else reason,
    }
    if choice.logprobs is not None:
        wire["logprobs"] = choice.logprobs
    return wire | choice.choice_extra.get(NAME, {})


def _message(choice: Choice, *, legacy: bool, silent: bool) -> Record:
    content = choice.text
    # The model's own words; else its provider's, whose filter ended the answer.
    refusal = choice.explanation if choice.refusal is None else choice.refusal
    if content is None and not (choice.tool_calls or refusal or choice.audio):
        # Clients count on a string where nothing else stands for it.
        content = ""
    wire: Record = {"role": "assistant", "content": content}
    if choice.reasoning and not silent:
        wire["reasoning"] = "".join(block.text for block in choice.reasoning)
        if any(has_details(block) for block in choice.reasoning):
            wire["reasoning_details"] = [write_detail(block, block.block) for block in choice.reasoning]
    if refusal is not None:
        wire["refusal"] = refusal
    if choice.tool_calls:
        calls = [write_call(call.id, call.name, call.arguments, call.extra) for call in choice.tool_calls]
        wire |= {"function_call": calls[0]["function"]} if legacy else {"tool_calls": calls}
    if choice.images:
        wire["images"] = [write_image(url) for url in choice.images]
    if choice.audio is not None:
        wire["audio"] = write_audio(choice.audio)
    if choice.annotations:
        wire |= write_annotations(choice.annotations, len(choice.text or ""))
    return wire | choice.extra.get(NAME, {})


def write_call(call_id: str, name: str, arguments: str, extra: Record | None) -> Record:
    """Return a tool call."""
    if extra and extra.get("type") == "custom":
        return {"id": call_id, "custom": {"name": name, "input": arguments}, **extra}
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **(extra or {})}


def has_details(block: ReasoningDelta) -> bool:
    """Return whether a block is more than text, so that clients need it as it is to send it back."""
    return block.format is not None or block.signature is not None or block.data is not None


def write_image(url: str) -> Record:
    """Return an image."""
    return {"type": "image_url", "image_url": {"url": url}}


def write_annotations(annotations: list[Record], length: int) -> Record:
    """Return citations; notes of other kinds, which strict clients refuse, are parked. A citation that has no place is
    one of all `length` characters that were said; a page without a title is called by its address."""
    citations = [_placed(note, length) for note in annotations if note.get("type") == "url_citation"]
    others = [note for note in annotations if note.get("type") != "url_citation"]
    wire: Record = {"annotations": citations} if citations else {}
    return wire | {PARKED: {"annotations": others}} if others else wire


def _placed(note: Record, length: int) -> Record:
    page = note.get("url_citation")
    if not isinstance(page, dict):
        return note
    placed = all(isinstance(page.get(name), int) for name in ("start_index", "end_index"))
    titled = isinstance(page.get("title"), str)
    if placed and titled:
        return note
    title: Record = {} if titled else {"title": page.get("url", "")}
    place: Record = {} if placed else {"start_index": 0, "end_index": length}
    return {**note, "url_citation": {**page, **title, **place}}


def write_audio(audio: AudioDelta) -> Record:
    """Return audio, or a piece of it."""
    stated = {"id": audio.id, "data": audio.data, "transcript": audio.transcript, "expires_at": audio.expires_at}
    return {name: value for name, value in stated.items() if value}


_SERVICE_TIERS = frozenset({"auto", "default", "flex", "scale", "priority", "fast"})
PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return a whole answer."""
    return encode(
        {
            "id": id_of(reply),
            "object": "chat.completion",
            "created": reply.created,
            "model": summary.metadata.get("used_model") or reply.model,
            # OpenRouter's clients insist on the fingerprint.
            **({"system_fingerprint": None} if reply.provider else {}),
            **_acceptable(reply.extra.get(NAME, {})),
            "choices": [
                {"index": index, **write_choice(choice, legacy=is_legacy(chat), silent=_hides_thinking(chat))}
                for index, choice in enumerate(reply.choices)
            ],
            **({"provider": reply.provider} if reply.provider else {}),
            "usage": write_usage(summary, live=bool(reply.provider), details=chat.usage_details),
            **_metadata(summary.metadata, as_text=chat.metadata_as_text),
        }
    )


def write_events(events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
    """Yield a streamed answer: chunks, usage where the client wants it, and `[DONE]`; a failure ends it without.

    The ends of the choices wait for the summary, because usage travels with the last of them.
    """
    stream = _Stream(chat)
    for event in events:
        write = _WRITERS.get(type(event))
        if write is not None and not stream.over and (piece := write(stream, event)):
            yield piece


def id_of(answer: Reply | Started) -> str:
    """Return an answer's id: that of its log entry, so that it can be asked about; else the provider's."""
    return f"gen-{answer.log_id}" if answer.log_id else answer.id or new_id("chatcmpl-")


def _metadata(metadata: Record, *, as_text: bool) -> Record:
    """Return the report on the request. For a client that takes strings only, lists and objects become JSON there, and
    `gateway` beside it has all of it as it is."""
    if not as_text:
        return {"metadata": metadata}
    texts = {
        name: value if value is None or isinstance(value, str) else encode(value).decode()
        for name, value in metadata.items()
    }
    return {"metadata": texts, "gateway": metadata}


def _hides_thinking(chat: Chat) -> bool:
    return chat.reasoning is not None and chat.reasoning.exclude is True


def _acceptable(extra: Record) -> Record:
    """Return a reply's other fields, those parked that strict clients would refuse or that ours would hide."""
    if not extra:
        return extra
    parked = {name: value for name, value in extra.items() if _must_be_parked(name, value)}
    if not parked:
        return extra
    return {**{name: value for name, value in extra.items() if name not in parked}, PARKED: parked}


def _must_be_parked(name: str, value: Any) -> bool:
    return name == "metadata" or (name == "service_tier" and str(value) not in _SERVICE_TIERS)


class _Stream:
    """State of a stream that is being written, with fields that wait for the next chunk."""

    def __init__(self, chat: Chat) -> None:
        self.over = False
        self._include_usage = chat.include_usage
        self._usage_details = chat.usage_details
        self._legacy = is_legacy(chat)
        self._silent = _hides_thinking(chat)
        # The first fields of every chunk, and their bytes.
        self._common: Record = {}
        self._head = b""
        self._begun: set[int] = set()
        self._declined: set[int] = set()
        # Characters of each choice's text so far.
        self._lengths: dict[int, int] = {}
        self._custom: set[tuple[int, int]] = set()
        self._ends: dict[int, Finished] = {}
        # Members for the next chunk, of a choice's delta, of a choice, of the chunk itself.
        self._inside: dict[int, Record] = {}
        self._beside: dict[int, Record] = {}
        self._around: Record = {}
        self._started(Started())

    def _chunk(self, choice: int, delta: bytes, end: bytes = b"null", bill: bytes = b"") -> bytes:
        """Return a chunk of one choice; `delta` and `bill` are members, of the delta and of the chunk."""
        if choice not in self._begun:
            self._begun.add(choice)
            delta = b'"role":"assistant",' + delta if delta else b'"role":"assistant"'
        if self._inside:
            delta = b",".join(filter(None, (delta, _members(self._inside.pop(choice, {})))))
        beside = b""
        if self._beside and (record := self._beside.pop(choice, None)):
            beside = b"," + _members(record)
        return b'%b{"index":%d,"delta":{%b},"finish_reason":%b%b}]%b%b}\n\n' % (
            self._head,
            choice,
            delta,
            end,
            beside,
            self._rest() if self._around else b"",
            bill,
        )

    def _rest(self) -> bytes:
        """Return the fields that describe the whole reply, which come once after the choices."""
        around = _acceptable(self._around)
        self._around = {}
        return b"," + _members(around)

    def _started(self, event: Started) -> bytes:
        self._common = {
            "id": id_of(event),
            "object": "chat.completion.chunk",
            "created": event.created,
            "model": event.model,
        }
        self._live = bool(event.provider)
        named = {"provider": event.provider} if event.provider else {}
        self._add_reply_fields({**event.extra.get(NAME, {}), **named})
        return b""

    def _add_reply_fields(self, news: Record) -> None:
        """Say plain values about the reply on every chunk from now on, as OpenAI does, and anything larger once."""
        for name, value in news.items():
            once = isinstance(value, dict | list) or _must_be_parked(name, value)
            (self._common if once else self._around).pop(name, None)
            (self._around if once else self._common)[name] = value
        self._head = b'data: {%b,"choices":[' % _members(self._common)

    def _text(self, event: TextDelta) -> bytes:
        self._lengths[event.choice] = self._lengths.get(event.choice, 0) + len(event.text)
        return self._chunk(event.choice, b'"content":' + encode(event.text))

    def _refusal(self, event: RefusalDelta) -> bytes:
        self._declined.add(event.choice)
        return self._chunk(event.choice, b'"refusal":' + encode(event.text))

    def _reasoning(self, event: ReasoningDelta) -> bytes:
        if self._silent:
            return b""
        delta: Record = {"reasoning": event.text} if event.text else {}
        if has_details(event):
            delta["reasoning_details"] = [write_detail(event, event.block)]
        return self._chunk(event.choice, _members(delta)) if delta else b""

    def _call_started(self, event: ToolCallStarted) -> bytes:
        call = write_call(event.id, event.name, "", event.extra)
        if self._legacy:
            return self._legacy_call(event, call["function"])
        if call["type"] == "custom":
            self._custom.add((event.choice, event.index))
        return self._chunk(event.choice, _members({"tool_calls": [{"index": event.index, **call}]}))

    def _call_delta(self, event: ToolCallDelta) -> bytes:
        if self._legacy:
            return self._legacy_call(event, {"arguments": event.arguments})
        if (event.choice, event.index) in self._custom:
            delta = b'"tool_calls":[{"index":%d,"custom":{"input":%b}}]'
        else:
            delta = b'"tool_calls":[{"index":%d,"function":{"arguments":%b}}]'
        return self._chunk(event.choice, delta % (event.index, encode(event.arguments)))

    def _legacy_call(self, event: ToolCallStarted | ToolCallDelta, function: Record) -> bytes:
        """Return the one call that there could be before there were tools."""
        return self._chunk(event.choice, _members({"function_call": function})) if event.index == 0 else b""

    def _image(self, event: ImageMade) -> bytes:
        return self._chunk(event.choice, _members({"images": [write_image(event.url)]}))

    def _annotated(self, event: Annotated) -> bytes:
        written = self._lengths.get(event.choice, 0)
        return self._chunk(event.choice, _members(write_annotations([event.annotation], written)))

    def _audio(self, event: AudioDelta) -> bytes:
        return self._chunk(event.choice, _members({"audio": write_audio(event)}))

    def _logprobs(self, event: Logprobs) -> bytes:
        return self._keep(self._beside, event.choice, {"logprobs": event.logprobs})

    def _opaque(self, event: OpaqueDelta) -> bytes:
        if event.dialect != NAME:
            return b""
        if event.of == "reply":
            self._add_reply_fields(event.data)
            return b""
        return self._keep(self._inside if event.of == "message" else self._beside, event.choice, event.data)

    def _keep(self, waiting: dict[int, Record], choice: int, news: Record) -> bytes:
        """Keep members for the choice's next chunk; what they would overwrite goes out first."""
        kept = waiting.get(choice)
        piece = b"" if kept is None or kept.keys().isdisjoint(news) else self._chunk(choice, b"")
        waiting[choice] = {**waiting.get(choice, {}), **news}
        return piece

    def _finished(self, event: Finished) -> bytes:
        self._ends[event.choice] = event
        return b""

    def _summary(self, event: Summary) -> bytes:
        """Return the ends of the choices, usage and metadata where the client wants them, and the end of the stream."""
        ends = [self._ends[choice] for choice in sorted(self._ends)] or [Finished(reason="stop")]
        usage = write_usage(event, live=self._live, details=self._usage_details)
        bill = b"," + _members({"usage": usage, "metadata": event.metadata})
        pieces: list[bytes] = []
        for end in ends:
            word = "function_call" if self._legacy and end.reason == "tool_calls" else end.reason
            with_bill = self._include_usage is None and end is ends[-1]
            # Why its provider's filter ended the answer, unless the model itself has declined.
            is_refused = end.choice not in self._declined and end.explanation is not None
            delta = b'"refusal":' + encode(end.explanation) if is_refused else b""
            pieces.append(self._chunk(end.choice, delta, encode(word), bill if with_bill else b""))
        self.over = True
        if self._include_usage:
            pieces.append(b"%b]%b}\n\n" % (self._head, bill))
        return b"".join((*pieces, DONE))

    def _waiting(self, event: Waiting) -> bytes:
        return PING

    def _failed(self, event: Failed) -> bytes:
        self.over = True
        return b"data: %b\n\n" % encode({"error": write_error_object(event.error)})


def _members(record: Record) -> bytes:
    """Return the members of an object, without its braces."""
    return encode(record)[1:-1]


_WRITERS = cast(
    dict[type[Event], Callable[[_Stream, Event], bytes]],
    {
        Started: _Stream._started,
        TextDelta: _Stream._text,
        ReasoningDelta: _Stream._reasoning,
        RefusalDelta: _Stream._refusal,
        ToolCallStarted: _Stream._call_started,
        ToolCallDelta: _Stream._call_delta,
        ImageMade: _Stream._image,
        Annotated: _Stream._annotated,
        AudioDelta: _Stream._audio,
        Logprobs: _Stream._logprobs,
        OpaqueDelta: _Stream._opaque,
        Finished: _Stream._finished,
        Summary: _Stream._summary,
        Waiting: _Stream._waiting,
        Failed: _Stream._failed,
    },
)
