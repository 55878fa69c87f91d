"""OpenAI Chat Completions, provider side: reads an answer into canonical events. A plain answer is read as a stream of
one chunk.

Servers deviate from OpenAI's chunks in many ways. Unknown fields travel as opaque data. From one piece of text to the
next most servers repeat everything else byte for byte: such a chunk is compared with a template instead of parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from apps.gateway.canonical.chat import served_tier
from apps.gateway.canonical.events import (
    Annotated,
    AudioDelta,
    Event,
    Finished,
    ImageMade,
    Logprobs,
    OpaqueDelta,
    ReasoningDelta,
    RefusalDelta,
    Searched,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
    Waiting,
)
from apps.gateway.dialects import Failure
from apps.gateway.dialects.adapting.thinking import join_signature, stated_signature
from apps.gateway.dialects.chat.openai.wire import (
    FAILURE_WORDS,
    FINISH_REASONS,
    NAME,
    PART_FORMAT,
    citations_of,
    encode,
    failed,
    find_failure,
    new_id,
    read_usage,
)
from apps.gateway.dialects.reading.answers import drain_frames, read_answer, truncated_answer, unreadable_answer
from apps.gateway.dialects.reading.fields import Record
from apps.kernel.usage import Usage

_FIELDS = frozenset(
    {
        "role",
        "content",
        "refusal",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "thinking",
        "tool_calls",
        "function_call",
        "images",
        "annotations",
        "audio",
    }
)
_CALL_FIELDS = frozenset({"index", "id", "type", "function", "custom"})
# The mark of a block of thinking without a stated format, so that clients get it back as a block.
UNKNOWN_FORMAT = "unknown"


def _plain_thinking(delta: Record) -> Any:
    """Return thinking as plain text: servers and their versions have names of their own for it."""
    return delta.get("reasoning") or delta.get("reasoning_content") or delta.get("thinking")


class _Call:
    """A tool call that has begun: our number of it, and what waits until its name is known."""

    __slots__ = ("arguments", "extra", "id", "index", "named")

    def __init__(self, index: int, call_id: str, extra: Record | None) -> None:
        self.index = index
        self.id = call_id
        self.extra = extra
        self.named = False
        self.arguments = ""


class ChoiceReader:
    """State of the choice that was read so far."""

    def __init__(self, index: int, *, whole: bool) -> None:
        self.finish_word: str | None = None
        self._index = index
        self._whole = whole
        self._calls: dict[int, _Call] = {}
        self._count = 0
        self._blocks: dict[str, int] = {}
        self._has_text = self._has_empty_text = self._searched = False
        # Characters of the text so far.
        self.text_length = 0
        # A search that was reported in the middle of the text.
        self._late: list[Event] = []

    @property
    def has_calls(self) -> bool:
        """Whether the model called a tool."""
        return self._count > 0

    @property
    def has_begun(self) -> bool:
        """Whether the choice has said or called anything."""
        return self._has_text or self._count > 0

    def catch_up(self, message: Record, events: list[Event]) -> None:
        """Add the text of a whole message that was not streamed."""
        content = message.get("content")
        if isinstance(content, str) and len(content) > self.text_length:
            self._add_text(content[self.text_length :], events)

    def read_around(self, extra: Record, logprobs: Any, events: list[Event]) -> None:
        """Add what stands beside the message."""
        if extra:
            events.append(OpaqueDelta(choice=self._index, dialect=NAME, data=extra, of="choice"))
        if isinstance(logprobs, dict):
            events.append(Logprobs(choice=self._index, logprobs=logprobs))

    def read(self, delta: Record, events: list[Event]) -> None:
        """Add the events of a delta or a whole message."""
        if not delta.keys() <= _FIELDS:
            extra = {name: value for name, value in delta.items() if name not in _FIELDS and value is not None}
            if extra:
                events.append(OpaqueDelta(choice=self._index, dialect=NAME, data=extra))
        if len(delta) > 1 or "content" not in delta:
            self._read_reasoning(delta, events)
            self._read_search(delta.get("annotations"), events)
        content = delta.get("content")
        if isinstance(content, str):
            self._add_text(content, events)
        elif isinstance(content, list):
            for part in content:
                self._read_part(part, events)
        if len(delta) > 1 or content is None:
            self._read_rest(delta, events)

    def end(self, events: list[Event]) -> None:
        """Add what could only be said now: that the text is empty, not absent; that a call has no name."""
        events += self._late
        if self._has_empty_text and not self._has_text:
            events.append(TextDelta(choice=self._index, text=""))
        for call in self._calls.values():
            if not call.named:
                self._continue_call(call, "", "", events)

    def _add_text(self, text: str, events: list[Event]) -> None:
        if text:
            self._has_text = True
            self.text_length += len(text)
            events.append(TextDelta(choice=self._index, text=text))
        else:
            self._has_empty_text = True

    def _read_search(self, annotations: Any, events: list[Event]) -> None:
        """Add the search that cited pages of the web were found by, not in the middle of the text; what it was for is
        not told."""
        if self._searched or not isinstance(annotations, list):
            return
        if any(isinstance(note, dict) and note.get("type") == "url_citation" for note in annotations):
            self._searched = True
            (self._late if self._has_text else events).append(Searched(choice=self._index))

    def _think(self, thought: Any, events: list[Event]) -> None:
        if isinstance(thought, str) and thought:
            block = self._blocks.setdefault("", len(self._blocks))
            events.append(ReasoningDelta(choice=self._index, text=thought, block=block))

    def _read_reasoning(self, delta: Record, events: list[Event]) -> None:
        """Read thinking block by block where there are blocks; the plain text beside them says the same."""
        details = delta.get("reasoning_details")
        if not isinstance(details, list) or not details:
            self._think(_plain_thinking(delta), events)
            return
        found = [self._detail(detail) for detail in details if isinstance(detail, dict)]
        if not any(block.text for block in found):
            self._think(_plain_thinking(delta), events)
        events.extend(found)

    def _detail(self, detail: Record) -> ReasoningDelta:
        # Some number encrypted thinking like the summary of it: the kind belongs to the number.
        block = self._blocks.setdefault(f"{detail.get('index')} {detail.get('type')}", len(self._blocks))
        summary = detail.get("summary")
        text = summary if isinstance(summary, str) else detail.get("text")
        return ReasoningDelta(
            choice=self._index,
            text=text if isinstance(text, str) else "",
            summary=isinstance(summary, str),
            signature=_text(detail.get("signature")),
            data=_text(detail.get("data")),
            id=_text(detail.get("id")),
            format=_text(detail.get("format")) or UNKNOWN_FORMAT,
            block=block,
        )

    def _read_part(self, part: Any, events: list[Event]) -> None:
        """Read a part of content that came as a list."""
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            self._add_text(part["text"], events)
        elif kind == "thinking":
            thoughts = part.get("thinking")
            for thought in thoughts if isinstance(thoughts, list) else [thoughts]:
                self._think(thought.get("text") if isinstance(thought, dict) else thought, events)
            if signature := _text(part.get("signature")):
                block = self._blocks.setdefault("", len(self._blocks))
                events.append(ReasoningDelta(choice=self._index, signature=signature, format=PART_FORMAT, block=block))
        elif kind == "image_url":
            self._read_images([part], events)
        elif part:
            events.append(OpaqueDelta(choice=self._index, dialect=NAME, data={"content_parts": [part]}))

    def _read_call(self, wire: Any, position: int, events: list[Event]) -> None:
        """Read a call or more of one. A delta that names a function begins a call, unless it repeats its own id."""
        if not isinstance(wire, dict):
            return
        kind = "custom" if isinstance(wire.get("custom"), dict) else "function"
        inner = wire.get(kind)
        function: Record = inner if isinstance(inner, dict) else {}
        index, call_id, name = wire.get("index"), _text(wire.get("id")), _text(function.get("name"))
        stated = isinstance(index, int) and not self._whole
        at = index if stated and isinstance(index, int) else position
        call = self._calls.get(at)
        if call is None or (call.named and name is not None and (call_id != call.id if call_id else not stated)):
            extra = {key: value for key, value in wire.items() if key not in _CALL_FIELDS and value is not None}
            if kind == "custom":
                extra["type"] = kind
            call = self._calls[at] = _Call(self._count, call_id or new_id("call_"), extra or None)
            self._count += 1
        arguments = function.get("input" if kind == "custom" else "arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = encode(arguments).decode()
        if self._whole and kind == "function" and arguments in (None, "null"):
            # A function that is called with nothing: clients parse the text, and want an object.
            arguments = "{}"
        self._continue_call(call, name, arguments or "", events)

    def _continue_call(self, call: _Call, name: str | None, arguments: str, events: list[Event]) -> None:
        """Add what is new of a call; its arguments wait for its name."""
        if not call.named:
            arguments = call.arguments + arguments
            if name is None:
                call.arguments = arguments
                return
            call.named = True
            signature = stated_signature(call.extra)
            call_id = call.id if signature is None else join_signature(call.id, signature)
            events.append(
                ToolCallStarted(choice=self._index, index=call.index, id=call_id, name=name, extra=call.extra)
            )
        if arguments:
            events.append(ToolCallDelta(choice=self._index, index=call.index, arguments=arguments))

    def _read_rest(self, delta: Record, events: list[Event]) -> None:
        """Read what a message may hold besides text and thinking."""
        if (refusal := delta.get("refusal")) and isinstance(refusal, str):
            events.append(RefusalDelta(choice=self._index, text=refusal))
        if (calls := delta.get("tool_calls")) and isinstance(calls, list):
            for position, call in enumerate(calls):
                self._read_call(call, position, events)
        elif call := delta.get("function_call"):
            self._read_call({"index": 0, "function": call}, 0, events)
        self._read_images(delta.get("images"), events)
        if isinstance(annotations := delta.get("annotations"), list):
            events.extend(
                Annotated(choice=self._index, annotation=entry) for entry in annotations if isinstance(entry, dict)
            )
        if isinstance(audio := delta.get("audio"), dict):
            expires_at = audio.get("expires_at")
            events.append(
                AudioDelta(
                    choice=self._index,
                    id=_text(audio.get("id")),
                    data=_text(audio.get("data")) or "",
                    transcript=_text(audio.get("transcript")) or "",
                    expires_at=expires_at if isinstance(expires_at, int) else None,
                )
            )

    def _read_images(self, images: Any, events: list[Event]) -> None:
        for image in images if isinstance(images, list) else ():
            inner = image.get("image_url") if isinstance(image, dict) else None
            url = inner.get("url") if isinstance(inner, dict) else inner
            if isinstance(url, str):
                events.append(ImageMade(choice=self._index, url=url))


def _text(value: Any) -> str | None:
    """Return a string that says something, else None."""
    return value if isinstance(value, str) and value else None


def read_sources(answer: Record) -> list[Record]:
    """Return a citation for each page that `search_results` lists, else `citations`; none where nothing is listed."""
    return (citations_of(answer.get("search_results")) or citations_of(answer.get("citations"))) if answer else []


_CHUNK_FIELDS = frozenset({"id", "object", "created", "model", "choices", "usage", "obfuscation", "error"})
_USUAL_CHOICE_FIELDS = frozenset({"index", "delta", "message", "finish_reason"})
_CHOICE_FIELDS = _USUAL_CHOICE_FIELDS | {"logprobs", "error"}
_END = b"[DONE]"


def read_reply(body: bytes) -> Iterator[Event]:
    """Return the events of a whole answer; one that cannot be read, or holds an error, ends with `Failed`."""
    answer = _Answer()
    events = answer.read(body)
    if not answer.over:
        events += answer.end(announced=True)
    return iter(events)


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of a streamed answer; an empty frame is silence and becomes `Waiting`.

    An answer that breaks off, holds an error or cannot be read ends with `Failed`.
    """
    template = StreamTemplate()
    answer, text_of = _Answer(template), template.text_of
    frames = iter(frames)
    for frame in frames:
        if not frame:
            yield Waiting()
        elif (text := text_of(frame)) is not None:
            # Most have nothing new but text.
            if text:
                answer.choices[answer.index].text_length += len(text)
                yield TextDelta(choice=answer.index, text=text)
        elif frame.strip() == _END:
            yield from answer.end(announced=True)
            drain_frames(frames)
            return
        else:
            yield from answer.read(frame)
            if answer.over:
                return
    yield from answer.end(announced=False)


class _Answer:
    """State of the answer so far. The ends of choices are held back: providers send them early, twice, or wrong."""

    def __init__(self, template: StreamTemplate | None = None) -> None:
        """`template` learns from the chunks of a stream; without one the answer is whole."""
        self.over = False
        self._template = template
        self._whole = template is None
        self._started = self._cites = False
        self._extra: Record = {}
        self.choices: dict[int, ChoiceReader] = {}
        # The index of the choice whose template was learnt.
        self.index = 0

    def read(self, data: bytes) -> list[Event]:
        """Return the events of a chunk."""
        try:
            chunk = read_answer(data)
        except ValueError:
            return self._end_with(unreadable_answer("The provider sent invalid JSON"))
        if failure := find_failure(chunk):
            return self._end_with(failed(chunk, failure))
        choices = chunk.get("choices") if isinstance(chunk, dict) else None
        if not isinstance(choices, list):
            if self._whole or not isinstance(chunk, dict):
                return self._end_with(unreadable_answer("The provider sent an answer without choices"))
            choices = []
        events: list[Event] = []
        news = self._begin(chunk, choices, events)
        for position, choice in enumerate(choices):
            if isinstance(choice, dict) and not self._read_choice(choice, position, events):
                return events
            if events and isinstance(events[-1], Annotated):
                self._cites = True
        usage = chunk.get("usage")
        if usage is None and news:
            # Some report it in an object of their own.
            usage = next(
                (aside["usage"] for aside in news.values() if isinstance(aside, dict) and "usage" in aside), None
            )
        if usage is not None and (counts := read_usage(usage)):
            events.append(UsageReported(usage=self._complete_counts(counts, events)))
        if len(events) == 1 and len(choices) == 1 and self._template is not None:
            self._learn_template(self._template, data, chunk, events[0])
        return events

    def _learn_template(self, template: StreamTemplate, data: bytes, chunk: Record, event: Event) -> None:
        """Remember what stands around a text that came alone, where its choice goes on after it."""
        choice = chunk["choices"][0]
        if not isinstance(event, TextDelta) or choice.get("finish_reason") or not isinstance(choice.get("delta"), dict):
            return
        if "message" in choice:
            # Every chunk of such a stream tells more than the one before.
            return
        if template.learn(data, chunk, event.text, _set_text):
            self.index = event.choice

    def _complete_counts(self, counts: Usage, events: list[Event]) -> Usage:
        """Return the counts with one search where pages of the web are cited and the provider counts none, as OpenAI,
        and with the tier of service that the answer names."""
        self._cites = self._cites or Annotated in map(type, events)
        listed = not self._cites and bool(read_sources(self._extra))
        if (self._cites or listed) and not counts.web_searches:
            counts = replace(counts, web_searches=1)
        if tier := served_tier(self._extra.get("service_tier")):
            counts = replace(counts, service_tier=tier)
        return counts

    def _begin(self, chunk: Record, choices: list[Any], events: list[Event]) -> Record:
        """Announce the answer with its first chunk that has content, and later the changes of its other fields.

        Returns the changes.
        """
        known, news = self._extra, {}
        if not chunk.keys() <= _CHUNK_FIELDS:
            news = {
                name: value
                for name, value in chunk.items()
                if name not in _CHUNK_FIELDS and value is not None and known.get(name) != value
            }
            known |= news
        if self._started:
            if news:
                events.append(OpaqueDelta(dialect=NAME, data=news, of="reply"))
        elif choices or chunk.get("id"):
            self._started = True
            name, model, created = chunk.get("id"), chunk.get("model"), chunk.get("created")
            events.append(
                Started(
                    id=name if isinstance(name, str) else "",
                    model=model if isinstance(model, str) else "",
                    created=int(created) if isinstance(created, int | float) else 0,
                    extra={NAME: dict(known)} if known else {},
                )
            )
        return news

    def _read_choice(self, choice: Record, position: int, events: list[Event]) -> bool:
        """Add the events of a choice; False when it says that the provider broke down."""
        index = choice.get("index")
        if not isinstance(index, int) or index < 0:
            index = position
        reader = self.choices.get(index)
        if reader is None:
            reader = self.choices[index] = ChoiceReader(index, whole=self._whole)
        word = choice.get("finish_reason")
        if word is not None or "error" in choice:
            failure = find_failure(choice) if "error" in choice else None
            if failure is None and isinstance(word, str) and word in FAILURE_WORDS:
                failure = Failure(message=f"The provider ended its answer with `{word}`")
            if failure is not None:
                events.extend(self._end_with(failed(choice, failure)))
                return False
        if not choice.keys() <= _USUAL_CHOICE_FIELDS:
            extra = {name: value for name, value in choice.items() if name not in _CHOICE_FIELDS and value is not None}
            reader.read_around(extra, choice.get("logprobs"), events)
        delta, message = choice.get("delta"), choice.get("message")
        if isinstance(delta, dict) and delta:
            reader.read(delta, events)
        if isinstance(message, dict):
            if "delta" in choice and (delta or reader.has_begun):
                # Perplexity's: the text so far, which its deltas may lack.
                reader.catch_up(message, events)
            else:
                reader.read(message, events)
        if isinstance(word, str) and word:
            reader.finish_word = word
        return True

    def end(self, *, announced: bool) -> list[Event]:
        """Return the last events; a missing end of the stream is tolerated when every choice had finished."""
        complete = announced or bool(self.choices)
        if not announced and any(reader.finish_word is None for reader in self.choices.values()):
            complete = False
        if not complete:
            return self._end_with(truncated_answer())
        events: list[Event] = []
        for index, reader in sorted(self.choices.items()):
            reader.end(events)
            if not self._cites and (pages := read_sources(self._extra)):
                events.append(Searched(choice=index))
                events += [Annotated(choice=index, annotation=page) for page in pages]
            word = reader.finish_word
            reason = FINISH_REASONS.get(word.lower(), "stop") if word else "stop"
            if reason == "stop" and reader.has_calls:
                reason = "tool_calls"
            events.append(Finished(choice=index, reason=reason, native=word))
        self.over = True
        return events

    def _end_with(self, event: Event) -> list[Event]:
        self.over = True
        return [event]


def _set_text(chunk: Record, text: str) -> None:
    chunk["choices"][0]["delta"]["content"] = text


_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode
# A stream whose messages differ in more than their text (in ids, in padding) is not looked at for ever.
_MAX_TRIES: Final = 3
# Takes the text's place to see whether that is all that changes. Nothing that a model says, so that it is found once.
_STAND_IN: Final = "\x00text\x00"


class StreamTemplate:
    """The bytes before and behind the text of the last message that held nothing new but text."""

    __slots__ = ("_after", "_before", "_tries")

    def __init__(self) -> None:
        self._tries = 0
        self._before = self._after = b""

    def text_of(self, message: bytes) -> str | None:
        """Return the text of a message that matches the learnt template, else None."""
        before, after = self._before, self._after
        if not (before and message.startswith(before) and message.endswith(after)):
            return None
        try:
            return _decode_text(message[len(before) : -len(after)])
        except (msgspec.MsgspecError, UnicodeDecodeError):
            # Something else stands there: not one string, or more than it.
            return None

    def learn(self, message: bytes, value: Any, text: str, place: Callable[[Any, str], None]) -> bool:
        """Learn the template around the `text` of a message that was read as `value`, and return whether it was learnt:
        where it is ambiguous, the previous template stays.

        `place` puts another text into the value, where this one stands.
        """
        if self._tries >= _MAX_TRIES:
            return False
        before, _, after = message.partition(_encode(text))
        if not before or not after:
            # Written in another way, as with escapes.
            return False
        self._tries += 1
        # The same text may occur in several places: with another text here, the rest of the value must stay the same.
        place(value, _STAND_IN)
        try:
            same = bool(msgspec.json.decode(before + _encode(_STAND_IN) + after) == value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            same = False
        if same:
            self._before, self._after = before, after
        return same
