"""Bedrock Converse, client side: writes a whole answer, or a stream of events in AWS's binary frames.

Answers have the shapes of Bedrock's API model, which AWS's clients parse. The blocks of a stream come one after the
other, as Anthropic's do. The gateway's report stands under `gateway`, which AWS's clients ignore.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import (
    Annotated,
    AudioDelta,
    Choice,
    Event,
    Failed,
    Finished,
    ImageMade,
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
from apps.gateway.dialects.chat.anthropic.client.write_reply import Blocks
from apps.gateway.dialects.chat.anthropic.provider.write_messages import split_data_url
from apps.gateway.dialects.chat.anthropic.wire import SIGNATURE_FORMAT, read_input
from apps.gateway.dialects.chat.bedrock.provider.read_answer import write_citation
from apps.gateway.dialects.chat.bedrock.provider.write_messages import IMAGES
from apps.gateway.dialects.chat.bedrock.wire import (
    FINISH_REASONS,
    NAME,
    STOP_REASONS,
    encode,
    error_body,
    stream_exception_of,
    write_usage,
)
from apps.gateway.dialects.chat.google.client import write_carrier
from apps.gateway.dialects.reading.answers import exact_number
from apps.gateway.dialects.reading.fields import Record
from apps.gateway.framing import write_frame

# The words of Anthropic's events in which blocks say that they begin, go on and end.
_START, _STOP = "content_block_start", "content_block_stop"
# A block that is written as Bedrock has it.
_OWN = "own"
# The citations of the provider's own words: they are written from the canonical ones.
_CITED = {"citations"}


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return a whole answer: the first, where there are several."""
    choice = reply.choices[0] if reply.choices else Choice()
    return encode(
        {
            **reply.extra.get(NAME, {}),
            "output": {"message": {"role": "assistant", "content": _content(choice, chat)}},
            "stopReason": _stop_reason(choice.finish, choice.native_finish, choice.stop_sequence),
            **_ending(summary),
        }
    )


def _ending(summary: Summary) -> Record:
    """Return the counts, the duration in milliseconds and the gateway's report, with the cost in USD."""
    cost = {part: exact_number(amount) for part, amount in summary.cost.items()}
    return {
        "usage": write_usage(summary.usage),
        "metrics": {"latencyMs": summary.duration},
        "gateway": {"cost_usd": cost, **summary.metadata},
    }


def _stop_reason(reason: str | None, native: str | None, sequence: str | None) -> str:
    """Return why the model stopped: the provider's own word where it is one of this format for the same."""
    if native is not None and FINISH_REASONS.get(native) == reason:
        return native
    if reason == "stop" and sequence is not None:
        return "stop_sequence"
    return STOP_REASONS[cast(Any, reason) or "stop"]


def _content(choice: Choice, chat: Chat) -> list[Record]:
    thoughts = [] if _hides_thinking(chat) else [_write_thinking(block) for block in choice.reasoning]
    content: list[Record] = [thought for thought in thoughts if thought is not None]
    citations, are_documents = _citations(choice.annotations, choice.text or "")
    if choice.text and are_documents:
        content.append({"citationsContent": {"content": [{"text": choice.text}], "citations": citations}})
    elif choice.text:
        content.append({"text": choice.text})
    transcript = "" if choice.audio is None else choice.audio.transcript
    content += [{"text": text} for text in (choice.refusal, transcript) if text]
    if citations and not (choice.text and are_documents):
        # Clients that asked for no citations read the text where they expect it.
        content.append({"citationsContent": {"content": [], "citations": citations}})
    content += [_write_image(url) for url in choice.images]
    content += [
        {"toolUse": {"toolUseId": call.id, "name": call.name, "input": read_input(call.arguments)}}
        for call in choice.tool_calls
    ]
    return content + _own_blocks(choice.extra.get(NAME, {}))


def _own_blocks(extra: Record) -> list[Record]:
    """Return the blocks of the provider's own that came with an answer in this very format."""
    blocks = extra.get("content")
    return [
        block
        for block in (blocks if isinstance(blocks, list) else ())
        if isinstance(block, dict) and block and block.keys() != _CITED
    ]


def _hides_thinking(chat: Chat) -> bool:
    return chat.reasoning is not None and chat.reasoning.exclude is True


def _sealed(block: ReasoningDelta) -> ReasoningDelta:
    """Return thinking with its signature, or what only its maker can read, as the format has it: Anthropic's is bare,
    or in base64; that of another maker is in a carrier, which says whose it is."""
    if block.format in (None, SIGNATURE_FORMAT):
        return block if block.data is None else replace(block, data=b64encode(block.data.encode()).decode())
    if block.signature is None and block.data is None:
        return block
    carrier = write_carrier([replace(block, text="")])
    if block.data is None:
        return replace(block, signature=carrier)
    return replace(block, signature=None, data=carrier)


def _write_thinking(block: ReasoningDelta) -> Record | None:
    """Return a block of thinking; None for one that says nothing."""
    sealed = _sealed(block)
    if sealed.data is not None:
        return {"reasoningContent": {"redactedContent": sealed.data}}
    if not sealed.text and not sealed.signature:
        return None
    signature = {} if sealed.signature is None else {"signature": sealed.signature}
    return {"reasoningContent": {"reasoningText": {"text": sealed.text, **signature}}}


def _write_image(url: str) -> Record:
    """Return an image that the model made; one that has only an address is a link in words."""
    if url[:5].lower() != "data:":
        return {"text": f"![image]({url})"}
    media_type, data = split_data_url(url)
    return {"image": {"format": IMAGES.get(media_type, "png"), "source": {"bytes": data}}}


def _citations(notes: list[Record], text: str) -> tuple[list[Record], bool]:
    """Return citations, and whether they are of documents, which only a request for them brings."""
    of_documents = [citation for note in notes if (citation := write_citation(note)) is not None]
    of_pages = [citation for note in notes if (citation := _cite_page(note, text)) is not None]
    return of_documents + of_pages, bool(of_documents)


def _cite_page(note: Record, text: str) -> Record | None:
    """Return the citation of a page of the web for a place in `text`; None for another kind of note."""
    page = note.get("url_citation")
    url = page.get("url") if isinstance(page, dict) else None
    if not isinstance(page, dict) or not isinstance(url, str):
        return None
    title, start, end = page.get("title"), page.get("start_index"), page.get("end_index")
    cited = text[start:end] if isinstance(start, int) and isinstance(end, int) else ""
    return {
        **({"title": title} if isinstance(title, str) and title else {}),
        **({"sourceContent": [{"text": cited}]} if cited else {}),
        "location": {"web": {"url": url, "domain": _domain(url)}},
    }


def _domain(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def write_events(events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
    """Yield a streamed answer, the first of several, in frames from `messageStart` to `metadata`; a failure ends it
    with the frame of an exception."""
    stream = _Stream(chat)
    for event in events:
        if not stream.over and event.choice == 0 and (piece := stream.write(event)):
            yield piece


def _frame(kind: str, **members: Any) -> bytes:
    return write_frame(kind, encode(members))


# An event of no type that clients know, which they skip.
_PING = _frame("ping")


def _block_frame(event: Record) -> bytes:
    """Return the frames of an event of Anthropic's blocks."""
    kind, index = event["type"], event["index"]
    if kind == _START:
        return _block_start(event["content_block"], index)
    if kind == _STOP:
        return _frame("contentBlockStop", contentBlockIndex=index)
    return _delta(_DELTAS[event["delta"]["type"]](event["delta"]), index)


def _delta(delta: Record, index: int) -> bytes:
    return _frame("contentBlockDelta", delta=delta, contentBlockIndex=index)


_DELTAS: dict[str, Callable[[Record], Record]] = {
    "text_delta": lambda delta: {"text": delta["text"]},
    "thinking_delta": lambda delta: {"reasoningContent": {"text": delta["thinking"]}},
    "signature_delta": lambda delta: {"reasoningContent": {"signature": delta["signature"]}},
    "input_json_delta": lambda delta: {"toolUse": {"input": delta["partial_json"]}},
    "citations_delta": lambda delta: {"citation": delta["citation"]},
}


def _block_start(block: Record, index: int) -> bytes:
    """Return the beginning of a block; text and thinking begin with their first delta."""
    match block["type"]:
        case "tool_use":
            start = {"toolUse": {"toolUseId": block["id"], "name": block["name"]}}
            return _frame("contentBlockStart", start=start, contentBlockIndex=index)
        case "redacted_thinking":
            return _delta({"reasoningContent": {"redactedContent": block["data"]}}, index)
        case "own":
            return _own_block(block[_OWN], index)
    return b""


def _own_block(block: Record, index: int) -> bytes:
    """Return a whole block that comes at once: what it begins with, then the content of those that have some."""
    if "text" in block:
        return _delta(block, index)
    start, deltas = dict(block), []
    for name, content in (("toolUse", "input"), ("toolResult", "content"), ("image", "source")):
        inner = block.get(name)
        if isinstance(inner, dict) and content in inner:
            start[name] = {member: value for member, value in inner.items() if member != content}
            deltas.append({name: _own_delta(name, inner[content])})
    begun = _frame("contentBlockStart", start=start, contentBlockIndex=index)
    return begun + b"".join(_delta(delta, index) for delta in deltas)


def _own_delta(name: str, content: Any) -> Any:
    if name == "toolUse":
        return {"input": encode(content).decode()}
    return content if name == "toolResult" else {"source": content}


class _Stream:
    """State of a stream that is being written."""

    def __init__(self, chat: Chat) -> None:
        self.over = False
        self._silent = _hides_thinking(chat)
        self._blocks = Blocks(_block_frame)
        self._has_begun = False
        self._end: Finished | None = None
        self._texts: list[str] = []
        # Calls without a word of their arguments so far.
        self._bare_calls: set[int] = set()
        self._own: Record = {}
        self._around: Record = {}

    def write(self, event: Event) -> bytes:
        """Return the bytes that an event becomes; none for what waits or says nothing here."""
        write = _WRITERS.get(type(event))
        return write(self, event) if write is not None else b""

    def _begun(self, piece: bytes) -> bytes:
        """Return a piece, after the message's start where this is its first."""
        if self._has_begun or not piece:
            return piece
        self._has_begun = True
        return _frame("messageStart", role="assistant") + piece

    def _started(self, event: Started) -> bytes:
        self._around |= event.extra.get(NAME, {})
        return b""

    def _text(self, event: TextDelta | RefusalDelta) -> bytes:
        self._texts.append(event.text)
        return self._begun(self._blocks.write_text(event.text))

    def _audio(self, event: AudioDelta) -> bytes:
        return self._begun(self._blocks.write_text(event.transcript))

    def _reasoning(self, event: ReasoningDelta) -> bytes:
        if self._silent or _write_thinking(event) is None:
            return b""
        return self._begun(self._blocks.think(_sealed(event)))

    def _call_started(self, event: ToolCallStarted) -> bytes:
        self._bare_calls.add(event.index)
        return self._begun(self._blocks.call(event.index, event.id, event.name))

    def _call_delta(self, event: ToolCallDelta) -> bytes:
        if event.arguments:
            self._bare_calls.discard(event.index)
        return self._begun(self._blocks.argue(event.index, event.arguments))

    def _image(self, event: ImageMade) -> bytes:
        return self._begun(self._show(_write_image(event.url)))

    def _show(self, block: Record) -> bytes:
        return self._blocks.show({"type": _OWN, _OWN: block})

    def _annotated(self, event: Annotated) -> bytes:
        citations, _ = _citations([event.annotation], "".join(self._texts))
        return self._begun(b"".join(map(self._blocks.cite, citations)))

    def _opaque(self, event: OpaqueDelta) -> bytes:
        if event.dialect == NAME and event.of == "reply":
            self._around |= event.data
        elif event.dialect == NAME and event.of == "message":
            self._own |= event.data
        return b""

    def _finished(self, event: Finished) -> bytes:
        self._end = event
        return b""

    def _summary(self, event: Summary) -> bytes:
        """Return the ends of the blocks and of the message, and the counts."""
        self.over = True
        pieces = [self._blocks.argue(number, "{}") for number in sorted(self._bare_calls)]
        pieces += map(self._show, _own_blocks(self._own))
        pieces.append(self._blocks.close())
        end = self._end or Finished(reason="stop")
        stop: Record = {"stopReason": _stop_reason(end.reason, end.native, end.stop_sequence)}
        around = dict(self._around)
        if (fields := around.pop(_RESPONSE_FIELDS, None)) is not None:
            stop[_RESPONSE_FIELDS] = fields
        last = _frame("messageStop", **stop) + _frame("metadata", **{**around, **_ending(event)})
        return self._begun(b"".join(pieces) + last)

    def _waiting(self, event: Waiting) -> bytes:
        return _PING

    def _failed(self, event: Failed) -> bytes:
        self.over = True
        error = event.error
        content = error_body(error)
        del content["__type"]
        return write_frame(stream_exception_of(error.status), encode(content), is_exception=True)


_RESPONSE_FIELDS = "additionalModelResponseFields"
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
        OpaqueDelta: _Stream._opaque,
        Finished: _Stream._finished,
        Summary: _Stream._summary,
        Waiting: _Stream._waiting,
        Failed: _Stream._failed,
    },
)
