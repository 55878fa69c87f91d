"""Google generateContent, provider side: reads one candidate into canonical events, part by part.

Knows parts and the signatures on them. Must never know what stands around candidates.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.events import (
    Annotated,
    AudioDelta,
    Event,
    ImageMade,
    Logprobs,
    OpaqueDelta,
    ReasoningDelta,
    Searched,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
)
from apps.gateway.dialects.adapting.signed_call_ids import join_signature, state_signature
from apps.gateway.dialects.chat.google.provider.function_names import read_name
from apps.gateway.dialects.chat.google.provider.read_citations import read_citations, read_queries
from apps.gateway.dialects.chat.google.shared.part_layout import Layout
from apps.gateway.dialects.chat.google.shared.wire import (
    IMAGE_SIGNATURE,
    NAME,
    SIGNATURE_FORMAT,
    TEXT_SIGNATURE,
    Record,
    encode,
    new_id,
)

# What a part has that says nothing.
_EMPTY_PART = frozenset({"text", "thought", "thoughtSignature"})
_KNOWN = frozenset({"index", "content", "finishReason", "logprobsResult"})


class CandidateReader:
    """What has been read of a candidate so far."""

    def __init__(self, index: int) -> None:
        self.finish_word: str | None = None
        # The provider's words for why its filter ended the answer.
        self.explanation: str | None = None
        # What was searched for, as the metadata of the answer say, and beside that as calls of the search say.
        self.queries: set[str] = set()
        self.called_queries: set[str] = set()
        # What pictures were searched for, which costs what other searches do.
        self.picture_queries: set[str] = set()
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
        # The last picture that was made while thinking, and the signature on it.
        self._draft: tuple[Record, str | None] | None = None
        # Searches that were told in the middle of the text.
        self._late: list[Event] = []

    @property
    def map_queries(self) -> int:
        """How often Google Maps was asked: as often as is told, else once where the answer names places."""
        return self._map_calls or int(self._uses_maps)

    def read(self, candidate: Record, events: list[Event]) -> None:
        """Add the events of a candidate, or of more of it: what is said of its parts comes before them."""
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
        """Add what is only known now: citations of the whole text, and what no other format has words for."""
        events += self._late
        if self._draft is not None and not self._images:
            # The only picture there is, whatever it is marked as.
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
        self.picture_queries.update(read_queries(grounding, "imageSearchQueries"))
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
            self.picture_queries.update(queries)

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
        """Add an image or sound; False for anything else. Only images are numbered."""
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


def says_nothing(candidates: Any) -> bool:
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
