"""Request guard: run an organization's guardrails on a request: refuse, redact or pass it, and record findings.

It connects the chat, which guardrails do not know, with the rules, which the rest of the gateway does not know.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import gevent
from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat
from apps.gateway.guard.chat_texts import ChatText, ChatTexts, FilePlace, has_documents
from apps.gateway.guard.client_path import UnreadableText, find_client_path
from apps.gateway.guard.documents import AttachedDocument
from apps.gateway.guard.json_text import Redaction, WritePlaceholder, write_fixed
from apps.gateway.guard.placeholders import ConversationNumbers, MaskedValue, Placeholders, find_placeholders
from apps.gateway.metrics import FINDINGS, OUTSIDE_CALLS, SCANNED
from apps.gateway.tasks import TASKS
from apps.guardrails import rules
from apps.guardrails.findings.redaction import is_masked, merge_spans, placeholder_of, removed_label, replaced_spans
from apps.guardrails.findings.scan_types import ArgumentMark, Finding, ScannedFile, Segment, Span, Verdict
from apps.guardrails.findings.violation_draft import ViolationDraft
from apps.guardrails.outside import RequestFacts, outside_types
from apps.guardrails.outside_client import OUTCOMES, AskModel, Judged
from apps.guardrails.scanning import engine
from apps.guardrails.scanning.engine import CompiledGuardrails
from apps.guardrails.scanning.outside_rules import OutsideRule
from apps.guardrails.scanning.scan_memory import ScanMemory, ScanRecall
from apps.guardrails.scanning.violations import (
    ACTIONS_TAKEN,
    MAX_VIOLATIONS,
    action_taken_of,
    draft_violations,
)
from apps.guardrails.text.scanned_text import ScannedText
from apps.kernel.concurrency.native_thread_pool import LARGE, offload
from apps.kernel.errors import InvalidRequest
from apps.kernel.valkey.cache_store import CacheShare
from apps.kernel.zero_series import begin_at_zero
from apps.keys.secrets import digest_of

BLOCKED: Final = "guardrail_blocked"
# The findings in texts of recent requests of this process.
_MEMORY: Final = ScanMemory()
# Tasks whose answers are texts that a client reads: there masked values are restored. In others placeholders have no
# numbers, so that a text has the same vector or rank beside every other text.
_RESTORED: Final = frozenset({"chat", "completions"})
# Characters of the first message that tell a conversation from others.
_MAX_BEGINNING: Final = 10_000


class _Read(NamedTuple):
    """A chat's text, and its verdict."""

    chat_texts: ChatTexts
    segments: list[Segment]
    files: list[ScannedFile]
    verdict: Verdict


# For work without texts for outside guards.
NO_FACTS: Final = RequestFacts("", "", "", "")


class RequestGuard:
    """The guardrails of one request: the rules in force, and the findings so far, which are recorded with it.

    `masked_values` maps the request's placeholders to the values that come back in the answer in their place.
    """

    def __init__(
        self,
        compiled: CompiledGuardrails,
        retention: str,
        facts: RequestFacts = NO_FACTS,
        share: CacheShare | None = None,
        ask_model: AskModel | None = None,
    ) -> None:
        """`ask_model` asks guards that are models of this gateway. `share` keeps the numbers of a conversation's
        placeholders; without one they follow from the request alone. A conversation is known by its session; without
        one by its first message."""
        self.compiled = compiled
        self.facts = facts
        self.ask_model = ask_model
        self.masked_values: dict[str, MaskedValue] = {}
        # Guards of others that were asked, and greenlets that still ask.
        self.outside_calls: list[dict[str, Any]] = []
        self.pending: list[gevent.Greenlet[..., Any]] = []
        # Arguments of the answer's tool calls that only results of tools contain.
        self.marked_arguments: list[dict[str, str]] = []
        self._share = share
        self.violations: list[ViolationDraft] = []
        self._with_content = retention == "retain"
        self._reported: dict[tuple[str, str], None] = {}

    @property
    def client_report(self) -> list[dict[str, str]]:
        """The client's report: the rules that found something, and the action taken."""
        return [{"rule_id": rule_id, "action": taken} for rule_id, taken in self._reported]

    def screen(self, chat: Chat, body: bytes) -> None:
        """Mask the chat, which was read from this body, where rules say so. Raises InvalidRequest
        (`guardrail_blocked`), Overloaded."""
        size = reading_size(chat, body)
        recall = ScanRecall(_MEMORY, self.compiled.number)
        try:
            chat_texts, segments, files, verdict = offload(size, partial(_read, self.compiled, chat, recall))
        except UnreadableText as error:
            raise offload(size, partial(error.at_client_path, body)) from None
        SCANNED.labels("remembered").inc(recall.remembered)
        SCANNED.labels("scanned").inc(recall.scanned)
        verdict = act_as_possible(verdict, chat_texts)
        redactions = redactions_of(verdict, segments)
        removals = [one for one in verdict.findings if one.file is not None and is_masked(one)]
        self.record_findings(verdict, segments, files)
        if verdict.blocked is not None:
            place = offload(size, partial(client_path_of, body, chat_texts, verdict.blocked))
            raise blocked_error(verdict.blocked, segments, files, place=place)
        if redactions:
            self._redact(chat, chat_texts, redactions, size)
        for finding in removals:
            _remove_file(chat_texts, finding)
        # The client's bytes may say more than the chat, or repeat it: after a redaction only the chat may be sent.
        chat.source = None if redactions or removals else chat_texts.source

    def _redact(self, chat: Chat, chat_texts: ChatTexts, redactions: Mapping[int, list[Redaction]], size: int) -> None:
        """Write placeholders into the chat; note those that come back, under their numbers in the conversation."""
        if chat.task not in _RESTORED or all(one.label is None for cuts in redactions.values() for one in cuts):
            offload(size, partial(_write_into, chat_texts, redactions, write_fixed))
            return
        numbers = None
        if self._share is not None:
            numbers = ConversationNumbers(self._share, _conversation_name(chat_texts.texts, self.facts.session or None))
        placeholders = Placeholders(
            {} if numbers is None else numbers.read(),
            _pair if numbers is None else numbers.digest_of,
            # A placeholder in a model's own words may come from here.
            offload(size, lambda: find_placeholders(one.text for one in chat_texts.texts if one.role != "assistant")),
        )
        offload(size, partial(_write_into, chat_texts, redactions, placeholders.write))
        self.masked_values = placeholders.values
        if numbers is not None:
            numbers.keep(placeholders.numbers, is_changed=placeholders.is_changed)

    def screen_answer(self, segments: Sequence[Segment]) -> Verdict:
        """Return what becomes of whole texts of an answer."""
        size = sum(len(segment.text.raw) for segment in segments)
        return offload(size, partial(engine.screen_answer, self.compiled, segments))

    def record_calls(self, marked: Sequence[tuple[Finding, ArgumentMark]]) -> None:
        """Note the marks on the answer's tool calls, without the marked values."""
        for finding, mark in marked:
            segments = [Segment(ScannedText(mark.value), "assistant", mark.argument)]
            self.record_findings(Verdict(findings=(finding,)), segments, keeps_content=False)
            self.marked_arguments.append(
                {"tool": mark.tool, "argument": mark.argument, "kind": mark.kind, "source": mark.source}
            )

    def record_findings(
        self,
        verdict: Verdict,
        segments: Sequence[Segment],
        files: Sequence[ScannedFile] = (),
        *,
        keeps_content: bool = True,
    ) -> None:
        """Note the findings, for the record and the client's report. The matched content is kept only if
        `keeps_content`, and where the organization retains content."""
        left = MAX_VIOLATIONS - len(self.violations)
        with_content = self._with_content and keeps_content
        self.violations += draft_violations(verdict, segments, files, _digest, with_content=with_content)[:left]
        for finding in verdict.findings:
            taken = action_taken_of(finding)
            if taken is not None:
                FINDINGS.labels(_name_of(finding), taken).inc()
                if not finding.observed:
                    self._reported[finding.rule_id, taken] = None

    def record_call(self, rule: OutsideRule, direction: str, judged: Judged) -> None:
        """Note that an outside guard was asked, for the log."""
        OUTSIDE_CALLS.labels(rule.type.TYPE, judged.outcome).inc()
        self.outside_calls.append(
            {
                "rule_id": rule.id,
                "rule_name": rule.active.name,
                "type": rule.type.TYPE,
                "direction": direction,
                "outcome": judged.outcome,
                "milliseconds": judged.milliseconds,
                "requests": judged.requests,
                **({} if judged.cost is None else {"cost": float(judged.cost)}),
                **({"log_ids": judged.log_ids} if judged.log_ids else {}),
                **({"error": judged.error} if judged.error else {}),
            }
        )

    def finish(self) -> None:
        """Wait for the guards that only note. Each has its own time limit."""
        pending, self.pending = self.pending, []
        gevent.joinall(pending)


def reading_size(chat: Chat, body: bytes) -> int:
    """Return the size by which reading a chat is offloaded: documents take long, however small they are."""
    return max(len(body), LARGE) if has_documents(chat, body) else len(body)


def redactions_of(verdict: Verdict, segments: Sequence[Segment]) -> dict[int, list[Redaction]]:
    """Return the redactions by the index of their segment.

    Nothing comes back of a place where a rule matched that does not restore, or that cuts its findings out.
    """
    spans: dict[int, list[Span]] = {}
    lasting: dict[int, list[Span]] = {}
    for finding in filter(is_masked, verdict.findings):
        if finding.segment is not None:
            replaced = list(replaced_spans(finding, segments[finding.segment]))
            spans.setdefault(finding.segment, []).extend(replaced)
            if finding.action == "neutralize" or not finding.restore:
                lasting.setdefault(finding.segment, []).extend(replaced)
    return {index: list(_redactions(found, lasting.get(index, ()))) for index, found in spans.items()}


def _redactions(spans: Iterable[Span], lasting: Iterable[Span]) -> Iterator[Redaction]:
    """Yield a redaction for each place; it has a label unless one of the `lasting` spans is part of it."""
    ends = iter(merge_spans(lasting))
    last = next(ends, None)
    for span in merge_spans(spans):
        while last is not None and last.end <= span.start:
            last = next(ends, None)
        is_lasting = last is not None and last.start < span.end
        yield Redaction(span.start, span.end, placeholder_of(span.label), None if is_lasting else span.label)


def blocked_error(
    finding: Finding, segments: Sequence[Segment], files: Sequence[ScannedFile] = (), *, place: str | None = None
) -> InvalidRequest:
    """Return the answer to a request that a rule does not let pass: at a place of the client's body, where that is
    known. It names the next step, never the finding."""
    if place is None and finding.segment is not None:
        place = segments[finding.segment].place
    elif place is None and finding.file is not None:
        place = files[finding.file].place
    why = f" ({finding.reason})" if finding.reason else ""
    return InvalidRequest(
        f"Blocked by the guardrail {finding.rule_name!r}{f' in {place}' if place else ''}{why}: "
        "remove the matched text, or ask an administrator of the organization to change the rule",
        code=BLOCKED,
        param=(place or "").partition("[")[0].partition(".")[0] or None,
    )


def client_path_of(body: bytes, chat_texts: ChatTexts, finding: Finding) -> str | None:
    """Return the finding's path in the client's body; None where it is not there, or the body is no JSON."""
    if finding.file is not None:
        return find_client_path(body, chat_texts.files_said[finding.file], 0, "")
    if finding.segment is None:
        return None
    text = chat_texts.texts[finding.segment]
    before = sum(one.said[:1] == text.said[:1] for one in chat_texts.texts[: finding.segment]) if text.said else 0
    span = next(iter(finding.spans), None)
    return find_client_path(body, text.said, before, "" if span is None else text.text[span.start : span.end])


def _read(compiled: CompiledGuardrails, chat: Chat, recall: ScanRecall) -> _Read:
    chat_texts = ChatTexts(chat, TASKS[chat.task].files_to_screen(chat))
    named = TASKS[chat.task].path_for_client or str
    segments = [
        Segment(ScannedText(one.text), one.role, named(one.path), one.is_earlier, one.parts_of)
        for one in chat_texts.texts
    ]
    files = [_file_of(one, where) for one, where in zip(chat_texts.files, chat_texts.file_places, strict=True)]
    return _Read(chat_texts, segments, files, engine.screen(compiled, segments, files, recall))


def _write_into(chat_texts: ChatTexts, redactions: Mapping[int, list[Redaction]], write: WritePlaceholder) -> None:
    # Messages come last: a further one changes no number.
    for index in sorted(redactions, key=lambda index: (_is_message(chat_texts.texts[index]), index)):
        if (redact := chat_texts.texts[index].redact) is not None:
            redact(redactions[index], write)


def _is_message(text: ChatText) -> bool:
    return text.path.startswith("messages[")


def _conversation_name(texts: Sequence[ChatText], session: str | None) -> str:
    """Return what all requests of a conversation share."""
    if session:
        return f"session:{session}"
    first = next((one.text for one in texts if one.role == "user" and _is_message(one)), "")
    return f"beginning:{first[:_MAX_BEGINNING]}"


def _pair(label: str, value: str) -> str:
    return f"{label}:{value}"


def _remove_file(chat_texts: ChatTexts, finding: Finding) -> None:
    remove = None if finding.file is None else chat_texts.file_places[finding.file].remove
    if remove is not None:
        remove(placeholder_of(removed_label(finding.rule_name)))


def act_as_possible(verdict: Verdict, chat_texts: ChatTexts) -> Verdict:
    """Return the verdict with the actions that its places allow.

    Signed thinking is never altered: findings there are warnings, as the model that wrote it has read them. Other
    findings that would have to be masked and cannot be, are blocked.
    """
    findings = tuple(_acted(one, chat_texts) for one in verdict.findings)
    blocked = verdict.blocked or next((one for one in findings if one.action == "block" and not one.observed), None)
    return replace(verdict, blocked=blocked, findings=findings)


def _acted(finding: Finding, chat_texts: ChatTexts) -> Finding:
    if not is_masked(finding):
        return finding
    if finding.segment is not None:
        text = chat_texts.texts[finding.segment]
        if text.is_signed:
            return replace(finding, action="warn")
        can_be_masked = text.redact is not None
    else:
        can_be_masked = finding.file is not None and chat_texts.file_places[finding.file].remove is not None
    return (
        finding
        if can_be_masked
        else replace(finding, action="block", reason=finding.reason or "it cannot be masked here")
    )


def _file_of(document: AttachedDocument, where: FilePlace) -> ScannedFile:
    return ScannedFile(
        name=document.name,
        declared_type=document.media_type,
        data=document.data,
        size=len(document.data or b""),
        address=document.address,
        place=document.path,
        unread=document.unread,
        role=where.role,
        is_earlier=where.is_earlier,
    )


# The label of all organizations' own rules in metrics.
_CUSTOM: Final = "custom"
# By the names alone: loading the rules takes as long as loading all else, and Celery's workers may need none.
begin_at_zero(FINDINGS, (*(f"{rules.SYSTEM}{name}" for name in rules.rule_ids()), _CUSTOM), ACTIONS_TAKEN)
begin_at_zero(OUTSIDE_CALLS, tuple(outside_types()), OUTCOMES)


def _name_of(finding: Finding) -> str:
    """Return a rule's name as a metric's label; those that organizations wrote have one together."""
    return finding.rule_id if finding.rule_id.startswith(rules.SYSTEM) else _CUSTOM


def _digest(content: str) -> str:
    return digest_of(f"matched:{content.encode('utf-8', 'replace').decode()}").hex()
