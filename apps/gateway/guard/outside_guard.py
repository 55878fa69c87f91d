"""Outside guard: has an organization's guards judge the texts of a request and of its answer, and does what they say.

They get the texts as the rules of the gateway left them. A request waits for them, unless they only note; an answer is
held back until they have judged it, and its texts are changed within its events.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import gevent
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import (
    AudioDelta,
    Event,
    Finished,
    Logprobs,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    TranscriptTimed,
    UsageReported,
    Waiting,
)
from apps.gateway.guard.chat_texts import ChatText, ChatTexts
from apps.gateway.guard.json_text import JsonText, Redaction, apply_redactions, encode_json, parse_json_text
from apps.gateway.guard.request_guard import (
    RequestGuard,
    act_as_possible,
    blocked_error,
    client_path_of,
    reading_size,
    redactions_of,
)
from apps.gateway.tasks import TASKS
from apps.guardrails import outside_client
from apps.guardrails.findings.redaction import is_masked, placeholder_of
from apps.guardrails.findings.scan_types import Finding, Segment, Verdict
from apps.guardrails.outside import INPUT, OUTPUT, OutsideText
from apps.guardrails.outside.model import MAX_CHARACTERS
from apps.guardrails.outside.model import TYPE as MODEL
from apps.guardrails.outside_client import Judged
from apps.guardrails.scanning.outside_rules import OutsideRule, action_of, findings_of
from apps.guardrails.text.scanned_text import ScannedText
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import Overloaded
from apps.kernel.json_bounds import OutOfBounds

UNAVAILABLE: Final = "guardrail_unavailable"
# Seconds of silence after which a client that waits for a held answer gets a sign of life.
_SILENCE: Final = 10.0


def screen_request(guard: RequestGuard, chat: Chat, body: bytes) -> None:
    """Have the guards judge a request, which may be masked.

    Raises InvalidRequest (`guardrail_blocked`), and Overloaded (`guardrail_unavailable`) where a guard failed without
    which nothing may pass.
    """
    rules = [rule for rule in guard.compiled.outside if rule.judges(INPUT)]
    wants_prompt = any(rule.type.TYPE == MODEL and rule.judges(OUTPUT) for rule in guard.compiled.outside)
    if not rules and not wants_prompt:
        return
    size = reading_size(chat, body)
    chat_texts = offload(size, lambda: ChatTexts(chat, TASKS[chat.task].files_to_screen(chat)))
    named = TASKS[chat.task].path_for_client or str
    texts = [OutsideText(one.role, named(one.path), one.text, _is_replaceable(one)) for one in chat_texts.texts]
    if wants_prompt:
        latest = next((one.text for one in reversed(texts) if one.role == "user"), "")
        guard.facts = guard.facts._replace(prompt=latest[-MAX_CHARACTERS:])
    if not texts or not rules:
        return
    segments = [Segment(ScannedText(one.text), one.role, one.place) for one in texts]
    waited = _judge(guard, rules, INPUT, texts, segments)
    for rule, judged in waited:
        if judged.has_failed and rule.is_closed_on_failure and not rule.only_notes:
            raise Overloaded(
                f"The guardrail {rule.active.name!r} could not judge this request: {judged.error}",
                code=UNAVAILABLE,
                retry_after=5,
            )
    verdict = _verdict_of(waited, texts)
    redactions = _redactions_of(waited, texts, verdict, segments)
    verdict = act_as_possible(verdict, chat_texts)
    guard.record_findings(verdict, segments)
    if verdict.blocked is not None:
        place = offload(size, partial(client_path_of, body, chat_texts, verdict.blocked))
        raise blocked_error(verdict.blocked, segments, place=place)
    for index, wanted in redactions.items():
        if (redact := chat_texts.texts[index].redact) is not None:
            redact(wanted)
    if redactions:
        # The client's bytes still have the masked words.
        chat.source = None


def screen_answer(guard: RequestGuard, events: Iterator[Event]) -> Iterator[Event]:
    """Yield what the guards leave of an answer. Where all of them only note, it passes as it comes."""
    rules = [rule for rule in guard.compiled.outside if rule.judges(OUTPUT)]
    if not rules:
        return events
    if all(rule.only_notes for rule in rules):
        return _noted(guard, rules, events)
    return _held(guard, rules, events)


def _noted(guard: RequestGuard, rules: Sequence[OutsideRule], events: Iterator[Event]) -> Iterator[Event]:
    answer = AnswerTexts()
    try:
        for event in events:
            answer.take(event)
            yield event
    finally:
        _close(events)
    texts = answer.texts()
    if texts:
        _judge(guard, rules, OUTPUT, _outside_texts(texts), _segments(texts))


def _held(guard: RequestGuard, rules: Sequence[OutsideRule], events: Iterator[Event]) -> Iterator[Event]:
    answer, told = AnswerTexts(), time.monotonic()
    try:
        for event in events:
            if isinstance(event, Started | Waiting):
                told = time.monotonic()
                yield event
                continue
            answer.take(event)
            if time.monotonic() - told > _SILENCE:
                told = time.monotonic()
                yield Waiting()
    finally:
        _close(events)
    texts = answer.texts()
    if not texts:
        yield from answer.events
        return
    outside, segments = _outside_texts(texts), _segments(texts)
    waited = _judge(guard, rules, OUTPUT, outside, segments)
    verdict = _verdict_of(waited, outside)
    redactions = _redactions_of(waited, outside, verdict, segments)
    verdict = _blocked_where_fixed(verdict, [one.is_maskable for one in texts])
    guard.record_findings(verdict, segments)
    has_failed = any(one.has_failed and rule.is_closed_on_failure and not rule.only_notes for rule, one in waited)
    if verdict.blocked is not None or has_failed:
        yield from _blocked(answer.events)
        return
    answer.redact(redactions)
    masked = {texts[index].choice for index in redactions}
    for event in answer.events:
        # They repeat the words of the answer.
        if not (event.choice in masked and isinstance(event, Logprobs | TranscriptTimed)):
            yield event


def _blocked(events: Sequence[Event]) -> Iterator[Event]:
    """Yield an answer that was blocked: its counts, and an end for each choice."""
    choices = {event.choice for event in events if not isinstance(event, UsageReported)}
    yield from (event for event in events if isinstance(event, UsageReported))
    yield from (Finished(choice=choice, reason="content_filter") for choice in sorted(choices or {0}))


def _judge(
    guard: RequestGuard,
    rules: Sequence[OutsideRule],
    direction: str,
    texts: Sequence[OutsideText],
    segments: Sequence[Segment],
) -> list[tuple[OutsideRule, Judged]]:
    """Ask all guards at once; return the outcomes of those that the request waits for. The others note by themselves,
    and are waited for when the request is recorded."""

    def ask(rule: OutsideRule) -> Judged:
        judged = outside_client.judge(rule, direction, guard.facts, texts, guard.ask_model)
        guard.record_call(rule, direction, judged)
        return judged

    def note(rule: OutsideRule) -> None:
        judged = ask(rule)
        guard.record_findings(Verdict(findings=tuple(findings_of(rule, judged.findings, texts))), segments)

    for rule in rules:
        if rule.only_notes:
            guard.pending.append(gevent.spawn(note, rule))
    waiting = [rule for rule in rules if not rule.only_notes]
    if len(waiting) == 1:
        return [(waiting[0], ask(waiting[0]))]
    asked = [gevent.spawn(ask, rule) for rule in waiting]
    gevent.joinall(asked, raise_error=True)
    return [(rule, one.get()) for rule, one in zip(waiting, asked, strict=True)]


def _verdict_of(waited: Sequence[tuple[OutsideRule, Judged]], texts: Sequence[OutsideText]) -> Verdict:
    findings = [one for rule, judged in waited for one in findings_of(rule, judged.findings, texts)]
    return Verdict(blocked=next((one for one in findings if one.action == "block"), None), findings=tuple(findings))


def _redactions_of(
    waited: Sequence[tuple[OutsideRule, Judged]],
    texts: Sequence[OutsideText],
    verdict: Verdict,
    segments: Sequence[Segment],
) -> dict[int, list[Redaction]]:
    """Return the redactions by the text's index.

    Where one guard rewrites a text that others mask, all of it is masked: their places are not those of the new text.
    """
    redactions = redactions_of(verdict, segments)
    rewritten: defaultdict[int, list[str]] = defaultdict(list)
    others: set[int] = set()
    for rule, judged in waited:
        for one in judged.findings:
            if action_of(rule, one) == "redact":
                if one.replacement is None:
                    others.add(one.text)
                else:
                    rewritten[one.text].append(one.replacement)
    for index, replacements in rewritten.items():
        is_alone = len(set(replacements)) == 1 and index not in others
        words = replacements[0] if is_alone else placeholder_of("")
        redactions[index] = [Redaction(0, len(texts[index].text), words)]
    return redactions


def _blocked_where_fixed(verdict: Verdict, maskable: Sequence[bool]) -> Verdict:
    """Return the verdict, which blocks as well where something would have to be masked that cannot be."""
    if verdict.blocked is not None:
        return verdict
    fixed = next(
        (one for one in verdict.findings if one.segment is not None and is_masked(one) and not maskable[one.segment]),
        None,
    )
    if fixed is None:
        return verdict
    blocked = _as_block(fixed)
    findings = tuple(blocked if one is fixed else one for one in verdict.findings)
    return Verdict(blocked=blocked, findings=findings)


def _as_block(finding: Finding) -> Finding:
    return Finding(
        rule_id=finding.rule_id,
        rule_name=finding.rule_name,
        category=finding.category,
        action="block",
        spans=finding.spans,
        segment=finding.segment,
        reason="it cannot be masked here",
    )


def _is_replaceable(one: ChatText) -> bool:
    """Return whether a text is in the chat as it is: JSON and files are masked in places only."""
    return one.redact is not None and one.said[:1] == (one.text,)


def _outside_texts(texts: Sequence[AnswerText]) -> list[OutsideText]:
    return [OutsideText("assistant", one.place, one.text, one.is_replaceable) for one in texts]


def _segments(texts: Sequence[AnswerText]) -> list[Segment]:
    return [Segment(ScannedText(one.text), "assistant", one.place) for one in texts]


def _close(events: Iterator[Event]) -> None:
    if isinstance(events, Generator):
        events.close()


_Key = tuple[str, int, int, int]


class AnswerText(NamedTuple):
    """One text of an answer: running text, thinking, a refusal, a call's arguments, or the words of its audio."""

    place: str
    choice: int
    text: str
    is_maskable: bool
    is_replaceable: bool


class _Run(NamedTuple):
    """The indexes of the events that make one text."""

    key: _Key
    indexes: list[int]


class AnswerTexts:
    """The events of an answer, and the texts in them. Text that another kind of event interrupts is two texts."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._runs: list[_Run] = []
        # The run that goes on, by choice for texts, by call for arguments.
        self._open: dict[_Key, _Run] = {}
        self._latest: dict[int, _Key] = {}
        self._json: dict[int, JsonText] = {}

    def take(self, event: Event) -> None:
        """Take the next event in."""
        key = _key_of(event)
        if key is not None:
            kind, choice = key[0], key[1]
            if kind in ("text", "reasoning", "refusal"):
                if self._latest.get(choice) != key:
                    self._open.pop(key, None)
                self._latest[choice] = key
            run = self._open.get(key)
            if run is None:
                run = self._open[key] = _Run(key, [])
                self._runs.append(run)
            run.indexes.append(len(self.events))
        self.events.append(event)

    def texts(self) -> list[AnswerText]:
        """Return all texts that say something. Their indexes are those that `redact` takes."""
        self._runs = [run for run in self._runs if self._written(run).strip()]
        found = []
        for number, run in enumerate(self._runs):
            text, kind = self._written(run), run.key[0]
            value = _json_in(text) if kind == "arguments" else None
            if value is not None:
                self._json[number] = JsonText(value)
                text = self._json[number].text
            is_maskable = kind != "audio"
            found.append(AnswerText(_place_of(run.key), run.key[1], text, is_maskable, is_maskable and value is None))
        return found

    def redact(self, redactions: Mapping[int, Sequence[Redaction]]) -> None:
        """Change texts by their indexes: the first event of each gets all of it, the others nothing."""
        for number, wanted in redactions.items():
            run = self._runs[number]
            read = self._json.get(number)
            text = apply_redactions(self._written(run), wanted) if read is None else encode_json(read.redact(wanted))
            for index in run.indexes:
                self.events[index] = _with_text(self.events[index], text)
                text = ""

    def _written(self, run: _Run) -> str:
        return "".join(_text_of(self.events[index]) for index in run.indexes)


def _key_of(event: Event) -> _Key | None:
    match event:
        case TextDelta():
            return "text", event.choice, 0, 0
        case ReasoningDelta():
            return "reasoning", event.choice, event.block, int(event.summary)
        case RefusalDelta():
            return "refusal", event.choice, 0, 0
        case ToolCallDelta():
            return "arguments", event.choice, event.index, 0
        case AudioDelta():
            return "audio", event.choice, 0, 0
    return None


def _text_of(event: Event) -> str:
    match event:
        case TextDelta() | ReasoningDelta() | RefusalDelta():
            return event.text
        case ToolCallDelta():
            return event.arguments
        case AudioDelta():
            return event.transcript
    return ""


def _with_text(event: Event, text: str) -> Event:
    """Return the event with another text; thinking loses the signature on the old one."""
    match event:
        case ReasoningDelta():
            return replace(event, text=text, signature=None)
        case TextDelta() | RefusalDelta():
            return replace(event, text=text)
        case ToolCallDelta():
            return replace(event, arguments=text)
    return event


def _place_of(key: _Key) -> str:
    kind, choice, number, _ = key
    return f"choices[{choice}].tool_calls[{number}].arguments" if kind == "arguments" else f"choices[{choice}].{kind}"


def _json_in(text: str) -> Any:
    """Return the JSON that arguments are; None for any other text, and for more than any model writes."""
    try:
        return parse_json_text(text)
    except OutOfBounds:
        return None
