"""Google generateContent, client side: writes answers, whole or as a stream of responses.

Answers have the shapes that Google's own clients accept. Google's fields beyond the canonical model are put back at
their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from apps.gateway.canonical.chat import Audio, Chat, Image
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
    Searched,
    Started,
    Summary,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Waiting,
)
from apps.gateway.dialects.adapting.thinking import split_signature, stated_signature
from apps.gateway.dialects.chat.anthropic.wire import CITATION_LOCATIONS
from apps.gateway.dialects.chat.google.client import write_carrier, write_error_object
from apps.gateway.dialects.chat.google.provider.write_contents import write_audio, write_image
from apps.gateway.dialects.chat.google.wire import (
    IMAGE_SIGNATURE,
    NAME,
    SIGNATURE_FORMAT,
    TEXT_SIGNATURE,
    encode,
    finish_word,
    laid_out,
    new_id,
    write_time,
    write_usage,
)
from apps.gateway.dialects.reading.fields import Record, argument_object, is_json
from apps.kernel.errors import InvalidRequest

# The audio format that Gemini writes, and the default for audio without a stated format.
_MAX_DIGITS = 6
_DEFAULT_AUDIO_FORMAT = "L16;codec=pcm;rate=24000"


class PartWriter:
    """State of an answer that is being written, with parts that wait for their place."""

    def __init__(self, *, shows_thinking: bool, audio_format: str | None = None) -> None:
        self._shows_thinking = shows_thinking
        self._audio_format = audio_format or _DEFAULT_AUDIO_FORMAT
        # Signatures of Gemini's that wait for their part.
        self._text_signature: str | None = None
        self._image_signatures: dict[int, str] = {}
        self._image_count = 0
        self._pending_image: Record | None = None
        # Other makers' thinking that no part has carried yet, block by block.
        self._blocks: dict[int, list[ReasoningDelta]] = {}
        self._calls: dict[int, tuple[ToolCallStarted, list[str]]] = {}

    def write(self, event: Event) -> list[Record]:
        """Return the parts that an event becomes, and those that waited for it."""
        write = _PART_WRITERS.get(type(event))
        return [] if write is None else write(self, event)

    def close(self) -> list[Record]:
        """Return all that waits: the answer has come to its end."""
        parts = self._before(whole=False)
        if (carrier := self._carrier()) is not None:
            parts.append({"text": "", "thoughtSignature": carrier})
        if self._text_signature is not None:
            parts.append({"text": "", "thoughtSignature": self._text_signature})
        parts += [{"text": "", "thoughtSignature": signature} for signature in self._image_signatures.values()]
        self._text_signature = None
        self._image_signatures.clear()
        return parts

    def _before(self, *, whole: bool = True) -> list[Record]:
        """Return what has waited for an end: an image, and calls, only those that are `whole` if there may be more."""
        parts: list[Record] = []
        if self._pending_image is not None:
            parts.append(self._pending_image)
            self._pending_image = None
        for index, (call, pieces) in list(self._calls.items()):
            text = "".join(pieces)
            if whole and not is_json(text):
                break
            del self._calls[index]
            parts.append(self._call(call, text))
        return parts

    def _call(self, call: ToolCallStarted, text: str) -> Record:
        """Return a call; arguments that are no object are said as the only one."""
        call_id, carried = split_signature(call.id)
        # On one line: a line break within an event would end it.
        wire: Record = {"functionCall": {"id": call_id, "name": call.name, "args": argument_object(text)}}
        signature = stated_signature(call.extra) or carried or self._carrier()
        return wire if signature is None else {**wire, "thoughtSignature": signature}

    def _carrier(self) -> str | None:
        """Return what carries the thinking that led here, once."""
        blocks, self._blocks = self._blocks, {}
        return write_carrier([_joined(pieces) for pieces in blocks.values()]) if blocks else None

    def _text(self, event: TextDelta | RefusalDelta) -> list[Record]:
        part: Record = {"text": event.text}
        if self._text_signature is not None:
            part["thoughtSignature"], self._text_signature = self._text_signature, None
        return [*self._before(), part]

    def _think(self, event: ReasoningDelta) -> list[Record]:
        if event.format == SIGNATURE_FORMAT and event.signature is not None and not event.text and event.id is not None:
            return self._attach_signature(event.id, event.signature)
        if event.format not in (None, SIGNATURE_FORMAT):
            self._blocks.setdefault(event.block, []).append(event)
        shown: Record = {}
        if event.text and self._shows_thinking:
            shown = {"text": event.text, "thought": True}
        if event.format == SIGNATURE_FORMAT and event.signature is not None and self._shows_thinking:
            shown = {"text": event.text, "thought": True, "thoughtSignature": event.signature}
        return [*self._before(), shown] if shown else []

    def _attach_signature(self, name: str, signature: str) -> list[Record]:
        """Take in a signature of Gemini's on a text, which comes behind it, or on an image."""
        number = name.removeprefix(IMAGE_SIGNATURE)
        if name == TEXT_SIGNATURE or not number.isdecimal() or len(number) > _MAX_DIGITS:
            before = [*self._before()]
            if self._text_signature is not None:
                before.append({"text": "", "thoughtSignature": self._text_signature})
            self._text_signature = signature
            return before
        if self._pending_image is not None and int(number) == self._image_count - 1:
            self._pending_image["thoughtSignature"] = signature
            return self._before()
        self._image_signatures[int(number)] = signature
        return []

    def _call_started(self, event: ToolCallStarted) -> list[Record]:
        """Take in a call: all calls of a turn are said at once, which clients count on that run them by themselves."""
        parts = [] if self._calls else self._before()
        self._calls[event.index] = (event, [])
        return parts

    def _call_delta(self, event: ToolCallDelta) -> list[Record]:
        if event.index in self._calls:
            self._calls[event.index][1].append(event.arguments)
        return []

    def _image(self, event: ImageMade) -> list[Record]:
        parts = self._before()
        try:
            self._pending_image = write_image(Image(url=event.url))
        except InvalidRequest:
            self._pending_image = {"fileData": {"fileUri": event.url}}
        signature = self._image_signatures.pop(self._image_count, None)
        self._image_count += 1
        if signature is not None:
            self._pending_image["thoughtSignature"] = signature
        return parts

    def _audio(self, event: AudioDelta) -> list[Record]:
        parts = self._before()
        if event.data:
            parts.append(write_audio(Audio(data=event.data, format=self._audio_format)))
        return [*parts, {"text": event.transcript}] if event.transcript else parts

    def _opaque(self, event: OpaqueDelta) -> list[Record]:
        if event.dialect != NAME or event.of != "stream" or not isinstance(part := event.data.get("part"), dict):
            return []
        return [*self._before(), part]


def _joined(pieces: list[ReasoningDelta]) -> ReasoningDelta:
    """Return a block of thinking whole: its text, and of everything else the last that was said."""
    whole = ReasoningDelta(text="".join(piece.text for piece in pieces), summary=pieces[0].summary)
    for piece in pieces:
        whole.signature = piece.signature or whole.signature
        whole.data = piece.data or whole.data
        whole.id = piece.id or whole.id
        whole.format = piece.format or whole.format
    return whole


_PART_WRITERS = cast(
    dict[type[Event], Callable[[PartWriter, Event], list[Record]]],
    {
        TextDelta: PartWriter._text,
        RefusalDelta: PartWriter._text,
        ReasoningDelta: PartWriter._think,
        ToolCallStarted: PartWriter._call_started,
        ToolCallDelta: PartWriter._call_delta,
        ImageMade: PartWriter._image,
        AudioDelta: PartWriter._audio,
        OpaqueDelta: PartWriter._opaque,
    },
)


def write_grounding(citations: list[Record], text: str, queries: list[str]) -> Record:
    """Return the search queries and the sources of the pieces of a text: each source once, with the pieces that it
    supports; cited pieces of documents; empty without any."""
    sources: dict[tuple[str, str], int] = {}
    supports: dict[tuple[int, int], list[int]] = {}
    documents: list[Record] = []
    for citation in citations:
        if citation.get("type") in CITATION_LOCATIONS and (document := _document(citation)) not in documents:
            documents.append(document)
        page = citation.get("url_citation")
        if not isinstance(page, dict) or not isinstance(url := page.get("url"), str):
            continue
        title = page.get("title")
        source = sources.setdefault((url, title if isinstance(title, str) and title else url), len(sources))
        start, end = _place(page.get("start_index")), _place(page.get("end_index"))
        supported = supports.setdefault((min(start, len(text)), min(end, len(text))), [])
        if source not in supported:
            supported.append(source)
    searched: Record = {"webSearchQueries": asked} if (asked := list(filter(None, queries))) else {}
    if not sources and not documents:
        return searched
    return {
        **searched,
        "groundingChunks": [*({"web": {"uri": url, "title": title}} for url, title in sources), *documents],
        "groundingSupports": [
            {"segment": _segment(text, start, end), "groundingChunkIndices": indices}
            for (start, end), indices in supports.items()
            if start < end
        ],
    }


def _document(citation: Record) -> Record:
    """Return the piece of a document or of a client's search result that is cited; it supports no certain piece of the
    answer."""
    title, text = citation.get("document_title") or citation.get("title"), citation.get("cited_text")
    stated = {"uri": citation.get("source"), "title": title, "text": text}
    return {"retrievedContext": {name: value for name, value in stated.items() if isinstance(value, str) and value}}


def _place(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _segment(text: str, start: int, end: int) -> Record:
    before = len(text[:start].encode("utf-8", "replace"))
    piece = text[start:end]
    wire: Record = {"endIndex": before + len(piece.encode("utf-8", "replace")), "text": piece}
    return {"startIndex": before, **wire} if before else wire


def write_logprobs(likely: list[Any]) -> Record:
    """Return log probabilities, as OpenAI writes them, in Google's words."""
    tokens = [token for token in likely if isinstance(token, dict)]
    wire: Record = {"chosenCandidates": [_token(token) for token in tokens]}
    if any(token.get("top_logprobs") for token in tokens):
        wire["topCandidates"] = [
            {"candidates": [_token(other) for other in _listed(token.get("top_logprobs")) if isinstance(other, dict)]}
            for token in tokens
        ]
    return wire


def _listed(value: Any) -> list[Any]:
    """Return a provider's list; an empty one for anything else."""
    return value if isinstance(value, list) else []


def _token(token: Record) -> Record:
    return {"token": token.get("token", ""), "logProbability": token.get("logprob", 0.0)}


# Bytes that Google's clients skip in a stream of either kind: their readers of events add_choice no comments.
_SILENCE = b"\r\n"
_YEAR_10000 = 253_402_300_800
_LAYOUT, _FEEDBACK, _GROUNDING = "parts", "promptFeedback", "groundingMetadata"


def write_reply(reply: Reply, summary: Summary, chat: Chat) -> bytes:
    """Return a whole answer."""
    candidates = _Candidates(chat)
    for index, choice in enumerate(reply.choices):
        candidates[index].add_choice(choice)
    written = [
        candidates.whole(index, laid=choice.extra.get(NAME, {}).get(_LAYOUT))
        for index, choice in enumerate(reply.choices)
    ]
    return encode(
        {
            **_answered(written, reply.extra.get(NAME, {})),
            "usageMetadata": write_usage(summary),
            **_common(reply.id, summary.metadata.get("used_model") or reply.model, reply.created),
            "metadata": summary.metadata,
        }
    )


def write_events(events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
    """Yield a streamed answer as server-sent events; a failure ends it with an error."""
    for chunk in _chunks(events, chat):
        yield b"data: %b\r\n\r\n" % chunk if chunk else _SILENCE


def write_array(events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
    """Yield a streamed answer as one JSON array, which is what clients get that do not ask for events."""
    begin = b"["
    for chunk in _chunks(events, chat):
        if chunk:
            yield begin + chunk
            begin = b",\r\n"
        else:
            yield _SILENCE
    yield b"[]" if begin == b"[" else b"]"


def _chunks(events: Iterable[Event], chat: Chat) -> Iterator[bytes]:
    """Yield the responses of a stream; nothing (`b""`) stands for a sign of life."""
    stream = _Stream(chat)
    for event in events:
        if not stream.over and (piece := stream.write(event)) is not None:
            yield piece


def _answered(candidates: list[Record], extra: Record) -> Record:
    """Return the candidates, or in their place why a prompt was not answered at all."""
    if _FEEDBACK in extra and not any(_has_content(candidate) for candidate in candidates):
        return extra
    return {"candidates": candidates, **extra}


def _has_content(candidate: Record) -> bool:
    return bool(candidate["content"]["parts"] != [{"text": ""}])


def _common(name: str, model: str, created: int) -> Record:
    """Return what every response of an answer says."""
    times = {"createTime": write_time(created)} if 0 < created < _YEAR_10000 else {}
    return {"modelVersion": model, **times, "responseId": name or new_id("")}


class _Candidates:
    """The candidates of an answer: their written parts, and how each ended."""

    def __init__(self, chat: Chat) -> None:
        asked = chat.reasoning
        # Google shows thinking to those who ask for it.
        self._shows_thinking = chat.dialect != NAME or (asked is not None and asked.exclude is False)
        stated = (chat.audio or {}).get("format")
        self._audio_format = stated if isinstance(stated, str) else None
        self._by_index: dict[int, _Candidate] = {}

    def __getitem__(self, index: int) -> _Candidate:
        """Return a candidate, a new one where nothing was said of it yet."""
        candidate = self._by_index.get(index)
        if candidate is None:
            writer = PartWriter(shows_thinking=self._shows_thinking, audio_format=self._audio_format)
            candidate = self._by_index[index] = _Candidate(writer)
        return candidate

    @property
    def indices(self) -> list[int]:
        """The numbers of all candidates, at least one."""
        return sorted(self._by_index) or [0]

    def whole(self, index: int, *, laid: Any) -> Record:
        """Return a whole candidate; `laid` is how its parts stand, where that is not the usual order."""
        candidate = self[index]
        parts = [*candidate.parts, *candidate.writer.close()]
        return candidate.written(index, laid_out(parts, laid) if laid else parts)


class _Candidate:
    """One answer: its parts, and what stands beside them at its end."""

    def __init__(self, writer: PartWriter) -> None:
        self.writer = writer
        self.parts: list[Record] = []
        # Log probabilities that no response has told yet.
        self.likely: list[Any] | None = None
        self._texts: list[str] = []
        self._citations: list[Record] = []
        self._queries: list[str] = []
        self._own: Record = {}
        self._end: Finished | None = None

    def add_choice(self, choice: Choice) -> None:
        """Take in a whole answer: its parts in the usual order, and what stands beside them."""
        events: list[Event] = [*choice.reasoning]
        if choice.text is not None:
            events.append(TextDelta(text=choice.text))
        if choice.refusal is not None:
            events.append(RefusalDelta(text=choice.refusal))
        if choice.audio is not None:
            events.append(choice.audio)
        events += [ImageMade(url=url) for url in choice.images]
        for index, call in enumerate(choice.tool_calls):
            events.append(ToolCallStarted(index=index, id=call.id, name=call.name, extra=call.extra))
            events.append(ToolCallDelta(index=index, arguments=call.arguments))
        for event in events:
            self.parts += self.writer.write(event)
        self._texts = [choice.text or ""]
        self._citations, self._queries = choice.annotations, choice.searches
        self._own = dict(choice.choice_extra.get(NAME, {}))
        self.likely = None if choice.logprobs is None else _listed(choice.logprobs.get("content"))
        if choice.finish is not None:
            self._end = Finished(reason=choice.finish, native=choice.native_finish, explanation=choice.explanation)

    def read_metadata(self, event: Event) -> None:
        """Read an event about the whole answer."""
        if isinstance(event, TextDelta):
            self._texts.append(event.text)
        elif isinstance(event, Annotated):
            self._citations.append(event.annotation)
        elif isinstance(event, Searched):
            self._queries.append(event.query)
        elif isinstance(event, Logprobs):
            self.likely = [*(self.likely or ()), *_listed(event.logprobs.get("content"))]
        elif isinstance(event, Finished):
            self._end = event
        elif isinstance(event, OpaqueDelta) and event.dialect == NAME and event.of == "choice":
            self._own |= event.data

    def written(self, index: int, parts: list[Record]) -> Record:
        """Return the end of the answer, or the whole of it, with these parts."""
        end = self._end or Finished(reason="stop")
        wire: Record = {
            "content": {"parts": parts or [{"text": ""}], "role": "model"},
            "finishReason": finish_word(end.reason, end.native),
            **({} if end.explanation is None else {"finishMessage": end.explanation}),
            "index": index,
            **self._own,
        }
        if self.likely is not None:
            wire["logprobsResult"] = write_logprobs(self.likely)
        if _GROUNDING not in wire:
            grounding = write_grounding(self._citations, "".join(self._texts), self._queries)
            wire |= {_GROUNDING: grounding} if grounding else {}
        return wire


class _Stream:
    """State of a stream that is being written."""

    def __init__(self, chat: Chat) -> None:
        self.over = False
        self._candidates = _Candidates(chat)
        self._own: Record = {}
        # The fields of every response, and their bytes.
        self._common: Record = {}
        self._tail = b""
        self._begun = False

    def write(self, event: Event) -> bytes | None:
        """Return the response that an event becomes; None for what waits or says nothing here."""
        write = _WRITERS.get(type(event))
        return self._parts_chunk(event) if write is None else write(self, event)

    def _started(self, event: Started) -> None:
        self._own |= event.extra.get(NAME, {})
        self._common = _common(event.id, event.model, event.created)
        self._tail = b"," + encode(self._common)[1:]

    def _parts_chunk(self, event: Event) -> bytes | None:
        """Return the parts that an event becomes."""
        candidate = self._candidates[event.choice]
        candidate.read_metadata(event)
        parts = candidate.writer.write(event)
        return self._chunk(event.choice, candidate, parts) if parts else None

    def _chunk(self, index: int, candidate: _Candidate, parts: list[Record]) -> bytes:
        beside = b""
        if candidate.likely is not None:
            beside = b',"logprobsResult":' + encode(write_logprobs(candidate.likely))
            candidate.likely = None
        if not self._tail:
            self._started(Started())
        self._begun = True
        return b'{"candidates":[{"content":{"parts":%b,"role":"model"},"index":%d%b}]%b' % (
            encode(parts),
            index,
            beside,
            self._tail,
        )

    def _opaque(self, event: OpaqueDelta) -> bytes | None:
        if event.of == "reply":
            if event.dialect == NAME:
                self._own |= event.data
            return None
        return self._parts_chunk(event)

    def _summary(self, event: Summary) -> bytes:
        """Return the last response: the ends of the candidates, the usage, and the gateway's metadata."""
        self.over = True
        ends = [
            self._candidates[index].written(index, self._candidates[index].writer.close())
            for index in self._candidates.indices
        ]
        answered = {"candidates": ends, **self._own} if self._begun else _answered(ends, self._own)
        if not self._common:
            self._started(Started())
        return encode(
            {
                **answered,
                "usageMetadata": write_usage(event),
                **self._common,
                "metadata": event.metadata,
            }
        )

    def _waiting(self, event: Waiting) -> bytes:
        return b""

    def _failed(self, event: Failed) -> bytes:
        self.over = True
        return encode({"error": write_error_object(event.error)})


_WRITERS = cast(
    dict[type[Event], Callable[[_Stream, Event], bytes | None]],
    {
        Started: _Stream._started,
        OpaqueDelta: _Stream._opaque,
        Summary: _Stream._summary,
        Waiting: _Stream._waiting,
        Failed: _Stream._failed,
    },
)
