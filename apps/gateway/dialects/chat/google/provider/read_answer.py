"""Google generateContent, provider side: reads an answer into canonical events. A plain answer is read as a stream
of one chunk.

Counts in chunks are running totals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from apps.gateway.canonical.events import (
    Annotated,
    AudioDelta,
    Event,
    Finished,
    ImageMade,
    Logprobs,
    OpaqueDelta,
    ReasoningDelta,
    Searched,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
    Waiting,
)
from apps.gateway.dialects import Failure
from apps.gateway.dialects.adapting.thinking import join_signature, state_signature
from apps.gateway.dialects.chat.google.provider.write_contents import read_name
from apps.gateway.dialects.chat.google.wire import (
    FAILURE_WORDS,
    FINISH_REASONS,
    IMAGE_SIGNATURE,
    NAME,
    SIGNATURE_FORMAT,
    TEXT_SIGNATURE,
    Layout,
    adds_up,
    encode,
    failed,
    find_failure,
    new_id,
    read_usage,
)
from apps.gateway.dialects.reading.answers import read_answer, truncated_answer, unreadable_answer
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.usage import Usage


def read_citations(grounding: Record, text: str) -> Iterator[Record]:
    """Yield a citation for each source of each supported piece of `text`; for all of it where no pieces are named."""
    chunks = [_source(chunk) for chunk in _entries(grounding, "groundingChunks")]
    supports = [entry for entry in _entries(grounding, "groundingSupports") if isinstance(entry, dict)]
    if not supports:
        yield from (_citation(source, 0, len(text)) for source in chunks if source)
    for support in supports:
        start, end = _span(support.get("segment"), text)
        for index in _entries(support, "groundingChunkIndices"):
            if isinstance(index, int) and 0 <= index < len(chunks) and (source := chunks[index]):
                yield _citation(source, start, end)


def read_queries(grounding: Record, name: str = "webSearchQueries") -> list[str]:
    """Return the search queries."""
    return [query for query in _entries(grounding, name) if isinstance(query, str) and query]


def _source(chunk: Any) -> Record | None:
    """Return where a chunk is from, or None where it has no address."""
    if not isinstance(chunk, dict):
        return None
    for kind in ("web", "retrievedContext", "maps"):
        inner = chunk.get(kind)
        if isinstance(inner, dict) and isinstance(url := inner.get("uri"), str) and url:
            title = inner.get("title")
            return {"url": url, "title": title if isinstance(title, str) else url}
    return None


def _citation(source: Record, start: int, end: int) -> Record:
    return {"type": "url_citation", "url_citation": {**source, "start_index": start, "end_index": end}}


def _span(segment: Any, text: str) -> tuple[int, int]:
    """Return a piece's range in characters; the whole text where the range is unknown."""
    stated: Record = segment if isinstance(segment, dict) else {}
    start, end, words = stated.get("startIndex", 0), stated.get("endIndex"), stated.get("text")
    data = text.encode("utf-8", "replace")
    if isinstance(start, int) and isinstance(end, int) and 0 <= start <= end <= len(data):
        before, piece = data[:start].decode("utf-8", "ignore"), data[start:end].decode("utf-8", "ignore")
        if not isinstance(words, str) or piece == words:
            return len(before), len(before) + len(piece)
    if isinstance(words, str) and words and (place := text.find(words)) >= 0:
        return place, place + len(words)
    return 0, len(text)


def _entries(record: Record, name: str) -> list[Any]:
    entries = record.get(name)
    return entries if isinstance(entries, list) else []


# Fields of a part that carry no content.
_EMPTY_PART = frozenset({"text", "thought", "thoughtSignature"})
_KNOWN = frozenset({"index", "content", "finishReason", "logprobsResult"})


class CandidateReader:
    """State of the candidate that was read so far."""

    def __init__(self, index: int) -> None:
        self.finish_word: str | None = None
        # The provider's words for why its filter ended the answer.
        self.explanation: str | None = None
        # The search queries in the answer's metadata, and those in calls of the search.
        self.queries: set[str] = set()
        self.called_queries: set[str] = set()
        # The queries of image searches, which cost the same as other searches.
        self.image_queries: set[str] = set()
        self._uses_maps = False
        self._map_calls = 0
        self.has_calls = False
        self._index = index
        self._texts: list[str] = []
        self._thinking = False
        self._blocks = self._calls = self._images = 0
        self._layout = Layout()
        self._around: Record = {}
        self._grounding: Record = {}
        # The last image that was made while thinking, and the signature on it.
        self._draft: tuple[Record, str | None] | None = None
        # Searches that were reported in the middle of the text.
        self._late: list[Event] = []

    @property
    def map_queries(self) -> int:
        """The number of Google Maps queries: as reported, else one where the answer names places."""
        return self._map_calls or int(self._uses_maps)

    def read(self, candidate: Record, events: list[Event]) -> None:
        """Add the events of a candidate, or of more of it: metadata of its parts comes before them."""
        if isinstance(grounding := candidate.get("groundingMetadata"), dict):
            self._read_grounding(grounding, events)
        if isinstance(logprobs := candidate.get("logprobsResult"), dict):
            events.append(Logprobs(choice=self._index, logprobs=_logprobs(logprobs)))
        content = candidate.get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                self._read_part(part, events)
        if isinstance(word := candidate.get("finishReason"), str) and word:
            self.finish_word = word
        if isinstance(words := candidate.get("finishMessage"), str) and words.strip():
            self.explanation = words
        self._around |= {
            name: value for name, value in candidate.items() if name not in _KNOWN and value not in (None, [], {})
        }

    def end(self, events: list[Event]) -> None:
        """Add the last events: citations of the whole text, and fields that no other format has."""
        events += self._late
        if self._draft is not None and not self._images:
            # The only image there is, whatever it is marked as.
            blob, signature = self._draft
            if self._read_blob(blob, events):
                self._add_signature(f"{IMAGE_SIGNATURE}{self._images - 1}", signature, events)
        if self._grounding:
            citations = read_citations(self._grounding, "".join(self._texts))
            events.extend(Annotated(choice=self._index, annotation=citation) for citation in citations)
        if (entries := self._layout.entries) is not None:
            events.append(OpaqueDelta(choice=self._index, dialect=NAME, data={"parts": entries}))
        if self._around:
            events.append(OpaqueDelta(choice=self._index, dialect=NAME, data=self._around, of="choice"))

    def _read_grounding(self, grounding: Record, events: list[Event]) -> None:
        """Add the searches that were not told yet, none of them in the middle of the text, and keep what the answer's
        citations are read from."""
        for query in read_queries(grounding):
            if query not in self.queries:
                self.queries.add(query)
                (self._late if self._texts else events).append(Searched(choice=self._index, query=query))
        self.image_queries.update(read_queries(grounding, "imageSearchQueries"))
        self._uses_maps = self._uses_maps or bool(grounding.get("googleMapsWidgetContextToken"))
        if chunks := grounding.get("groundingChunks"):
            self._grounding = grounding
            listed = chunks if isinstance(chunks, list) else []
            self._uses_maps = self._uses_maps or any(isinstance(chunk, dict) and "maps" in chunk for chunk in listed)

    def _read_part(self, part: Record, events: list[Event]) -> None:
        signature = part.get("thoughtSignature")
        signature = signature if isinstance(signature, str) and signature else None
        text, call, blob = part.get("text"), part.get("functionCall"), part.get("inlineData")
        signed = signature is not None
        if part.get("thought") is True and isinstance(text, str):
            self._layout.add("thought", len(text), signed=signed)
            self._think(text, signature, events)
        elif isinstance(call, dict):
            self._layout.add("call")
            self._read_call(call, signature, events)
        elif isinstance(text, str):
            if text or signed:
                self._layout.add("text", len(text), signed=signed)
            self._add_signature(TEXT_SIGNATURE, signature, events)
            if text:
                self._texts.append(text)
                events.append(TextDelta(choice=self._index, text=text))
        elif isinstance(blob, dict) and part.get("thought") is not True and self._read_blob(blob, events):
            self._add_signature(f"{IMAGE_SIGNATURE}{self._images - 1}", signature, events)
        elif part:
            if isinstance(blob, dict):
                self._draft = blob, signature
            if isinstance(call := part.get("toolCall"), dict):
                self._count_queries(call)
            self._layout.add_own(part)
            events.append(OpaqueDelta(choice=self._index, dialect=NAME, data={"part": part}, of="stream"))

    def _count_queries(self, call: Record) -> None:
        """Count the queries of a call of one of Google's own tools: with functions the metadata do not have them."""
        kind, asked = call.get("toolType"), call.get("args")
        queries = read_queries(asked, "queries") if isinstance(asked, dict) else []
        if kind == "GOOGLE_MAPS":
            self._map_calls += max(len(queries), 1)
        elif kind == "GOOGLE_SEARCH_WEB":
            self.called_queries.update(queries)
        elif kind == "GOOGLE_SEARCH_IMAGE":
            self.image_queries.update(queries)

    def _think(self, text: str, signature: str | None, events: list[Event]) -> None:
        """Add thinking; a signature on it ends its block."""
        if not self._thinking:
            self._thinking = True
            self._blocks += 1
        if text or signature:
            events.append(
                ReasoningDelta(
                    choice=self._index,
                    text=text,
                    signature=signature,
                    format=SIGNATURE_FORMAT if signature else None,
                    block=self._blocks - 1,
                )
            )
        self._thinking = signature is None

    def _add_signature(self, name: str, signature: str | None, events: list[Event]) -> None:
        """Add a block of its own for the signature on a part that has no place for one."""
        if signature is None:
            return
        self._thinking = False
        self._blocks += 1
        events.append(
            ReasoningDelta(
                choice=self._index, signature=signature, id=name, format=SIGNATURE_FORMAT, block=self._blocks - 1
            )
        )

    def _read_call(self, call: Record, signature: str | None, events: list[Event]) -> None:
        stated, name, arguments = call.get("id"), call.get("name"), call.get("args")
        call_id = stated if isinstance(stated, str) and stated else new_id("call_")
        extra: Record | None = None
        if signature is not None:
            call_id = join_signature(call_id, signature)
            extra = state_signature(signature)
        self.has_calls = True
        events.append(
            ToolCallStarted(
                choice=self._index,
                index=self._calls,
                id=call_id,
                name=read_name(name) if isinstance(name, str) else "",
                extra=extra,
            )
        )
        text = encode(arguments if isinstance(arguments, dict) else {}).decode()
        events.append(ToolCallDelta(choice=self._index, index=self._calls, arguments=text))
        self._calls += 1

    def _read_blob(self, blob: Record, events: list[Event]) -> bool:
        """Add an image or audio; False for anything else. Only images are numbered."""
        media_type, data = blob.get("mimeType"), blob.get("data")
        if not isinstance(media_type, str) or not isinstance(data, str):
            return False
        if media_type.startswith("audio/"):
            self._layout.add("audio")
            events.append(AudioDelta(choice=self._index, data=data))
            return True
        if media_type.startswith("image/"):
            self._layout.add("image")
            self._images += 1
            events.append(ImageMade(choice=self._index, url=f"data:{media_type};base64,{data}"))
            return True
        return False


def is_empty(candidates: Any) -> bool:
    """Return whether the candidates of a chunk hold no content: nothing but empty text and signatures."""
    for candidate in candidates if isinstance(candidates, list) else ():
        content = candidate.get("content") if isinstance(candidate, dict) else None
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if not isinstance(part, dict) or part.get("text") or not part.keys() <= _EMPTY_PART:
                return False
    return True


def _logprobs(result: Record) -> Record:
    """Return log probabilities as OpenAI writes them."""
    tops = result.get("topCandidates")
    chosen = result.get("chosenCandidates")
    content: list[Record] = []
    for place, token in enumerate(chosen if isinstance(chosen, list) else ()):
        top: Any = tops[place] if isinstance(tops, list) and place < len(tops) else None
        others = top.get("candidates") if isinstance(top, dict) else None
        likely = [_token(other) for other in (others if isinstance(others, list) else ())]
        content.append({**_token(token), "top_logprobs": likely})
    return {"content": content}


def _token(token: Any) -> Record:
    stated: Record = token if isinstance(token, dict) else {}
    text, value = stated.get("token"), stated.get("logProbability", 0.0)
    word = text if isinstance(text, str) else ""
    probability = value if isinstance(value, int | float) else 0.0
    return {"token": word, "logprob": probability, "bytes": list(word.encode("utf-8", "replace"))}


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer; one that cannot be read, or holds an error, ends with `Failed`."""
    answer = _Answer()
    yield from answer.read(body)
    if not answer.over:
        yield from answer.end(whole=True)


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a streamed answer; an empty frame is silence and becomes `Waiting`.

    Google marks no end: an answer is complete when every candidate has said why it stopped, or when a last chunk that
    says nothing more brings counts that add up.
    """
    answer = _Answer()
    for frame in frames:
        if not frame:
            yield Waiting()
            continue
        yield from answer.read(frame)
        if answer.over:
            return
    yield from answer.end(whole=False)


class _Answer:
    """State of the answer that was read so far."""

    def __init__(self) -> None:
        self.over = False
        self._started = False
        self._candidates: dict[int, CandidateReader] = {}
        self._blocked: str | None = None
        self._feedback: Record = {}
        self._reported: Any = None
        self._usage: Usage | None = None
        # Whether the last chunk brought nothing but the counts of the whole answer.
        self._is_counted = False

    def read(self, data: bytes) -> list[Event]:
        """Return the events of a chunk."""
        try:
            chunk = read_answer(data)
        except ValueError:
            return self._end_with(unreadable_answer("The provider sent invalid JSON"))
        if failure := find_failure(chunk):
            return self._end_with(failed(chunk, failure))
        if not isinstance(chunk, dict):
            return self._end_with(unreadable_answer("The provider sent an answer without candidates"))
        events: list[Event] = []
        candidates = chunk.get("candidates")
        feedback = chunk.get("promptFeedback")
        if isinstance(feedback, dict) and isinstance(word := feedback.get("blockReason"), str) and word:
            self._blocked, self._feedback = word, feedback
        if not self._started and (candidates or self._blocked or chunk.get("responseId")):
            self._started = True
            events.append(_started(chunk))
        for position, candidate in enumerate(candidates if isinstance(candidates, list) else ()):
            if isinstance(candidate, dict):
                self._read_candidate(candidate, position, events)
                if self.over:
                    return events
        self._is_counted = is_empty(candidates) and adds_up(chunk.get("usageMetadata"))
        self._reported = chunk.get("usageMetadata") or self._reported
        self._count(events)
        return events

    def end(self, *, whole: bool) -> list[Event]:
        """Return the last events."""
        if not self._candidates and self._blocked:
            self.over = True
            own = OpaqueDelta(dialect=NAME, data={"promptFeedback": self._feedback}, of="reply")
            words = self._feedback.get("blockReasonMessage")
            explanation = words if isinstance(words, str) and words.strip() else None
            return [own, Finished(reason="content_filter", native=self._blocked, explanation=explanation)]
        if not self._candidates:
            return self._end_with(
                unreadable_answer("The provider sent an answer without candidates") if whole else truncated_answer()
            )
        unfinished = any(reader.finish_word is None for reader in self._candidates.values())
        if unfinished and not whole and not self._is_counted:
            return self._end_with(truncated_answer())
        events: list[Event] = []
        for index, reader in sorted(self._candidates.items()):
            reader.end(events)
            reason = FINISH_REASONS.get(reader.finish_word or "", "stop")
            if reason == "stop" and reader.has_calls:
                reason = "tool_calls"
            explanation = reader.explanation if reason == "content_filter" else None
            events.append(Finished(choice=index, reason=reason, native=reader.finish_word, explanation=explanation))
        self.over = True
        return events

    def _read_candidate(self, candidate: Record, position: int, events: list[Event]) -> None:
        index = candidate.get("index")
        if not isinstance(index, int) or isinstance(index, bool) or index < 0:
            index = position
        reader = self._candidates.get(index)
        if reader is None:
            reader = self._candidates[index] = CandidateReader(index)
        word, words = candidate.get("finishReason"), candidate.get("finishMessage")
        if isinstance(word, str) and word in FAILURE_WORDS:
            message = words if isinstance(words, str) and words else f"The provider ended its answer with `{word}`"
            events.extend(self._end_with(failed(None, Failure(message=message, code=word.lower()))))
            return
        reader.read(candidate, events)

    def _count(self, events: list[Event]) -> None:
        """Report the counts where they have changed."""
        readers = self._candidates.values()
        searches = set().union(*(reader.queries | reader.called_queries for reader in readers))
        images = set().union(*(reader.image_queries for reader in readers))
        usage = read_usage(self._reported, len(searches) + len(images))
        if usage is not None and (maps := sum(reader.map_queries for reader in readers)):
            usage = replace(usage, tool_calls={"google_maps": maps})
        if usage is not None and usage != self._usage:
            self._usage = usage
            events.append(UsageReported(usage=usage))

    def _end_with(self, event: Event) -> list[Event]:
        self.over = True
        return [event]


def _started(chunk: Record) -> Started:
    name, model = chunk.get("responseId"), chunk.get("modelVersion")
    return Started(
        id=name if isinstance(name, str) else "",
        model=model if isinstance(model, str) else "",
        created=_seconds(chunk.get("createTime")),
    )


def _seconds(moment: Any) -> int:
    """Return a time as Google writes it in Unix seconds; 0 where there is none."""
    try:
        return max(int(datetime.fromisoformat(moment).timestamp()), 0) if isinstance(moment, str) else 0
    except (ValueError, OverflowError, OSError):
        return 0
