"""Scan of one text by all rules in force, chunk by chunk; remembered findings are not searched again."""
# alone: the scan of one text; the engine decides which texts, and what the findings mean

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

from apps.guardrails.custom import Matcher
from apps.guardrails.findings.scan_types import USER, RuleSettings, Span
from apps.guardrails.findings.text_chunks import TextChunk, split_into_chunks
from apps.guardrails.regex.re2_matcher import TimeBudget
from apps.guardrails.rules import SystemRule
from apps.guardrails.scanning.scan_memory import FoundSpan, ScanRecall
from apps.guardrails.text.scanned_text import ScannedText

Rule = TypeVar("Rule")


class ScanTerms(NamedTuple):
    """How the texts of one request, or of one answer, are scanned."""

    # Time budget of customers' expressions.
    budget: TimeBudget
    answer: bool = False
    recall: ScanRecall | None = None
    # Whose text it is, which decides which rules are in force (`Segment.speaker`).
    speaker: str = USER


def find_in_text(
    system: Sequence[tuple[Rule, SystemRule]],
    custom: Sequence[tuple[Matcher, Sequence[Rule]]],
    text: ScannedText,
    settings: RuleSettings,
    terms: ScanTerms,
) -> Iterator[tuple[Rule, Span]]:
    """Yield what rules find in a text, spans of the whole text."""
    digest, known = (b"", None) if terms.recall is None else terms.recall.look(text, settings, terms.speaker)
    new: list[FoundSpan] = []
    for chunk in split_into_chunks(text) if known is None or custom else ():
        if known is None:
            new += _by_system_rules([rule for _, rule in system], chunk, settings, answer=terms.answer)
        # The time of system rules does not count.
        with terms.budget:
            for matcher, rules in custom:
                found = ((rules[own], chunk.to_text_span(span)) for own, span in matcher.find(chunk.text, terms.budget))
                yield from ((rule, span) for rule, span in found if span is not None)
    if terms.recall is not None and known is None:
        terms.recall.keep(digest, tuple(new))
    yield from ((system[rule][0], span) for rule, span in (new if known is None else known))


def _by_system_rules(
    rules: Sequence[SystemRule], chunk: TextChunk, settings: RuleSettings, *, answer: bool
) -> Iterator[FoundSpan]:
    for place, rule in enumerate(rules):
        if rule.find is not None and rule.reads(settings.role) and (rule.applies_to_answers or not answer):
            placed = map(chunk.to_text_span, rule.find(chunk.text, settings))
            yield from (FoundSpan(place, span) for span in placed if span is not None)
