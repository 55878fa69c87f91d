"""Redaction (masking) of text: a placeholder replaces every span that a rule found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from apps.guardrails.findings.scan_types import MASKING_ACTIONS, MAX_SPANS, Finding, Segment, Span

# The label of a removed text begins so; the rule's name follows.
_REMOVED = "removed by policy: "
_MAX_RULE_NAME = 80
# Findings of these categories are cut out with the paragraph around them: a match is only the opening of an order.
_WIDENED = frozenset({"injection", "jailbreak"})
# Characters on either side of a match that are cut out with it at most.
_MAX_AROUND = 600
_BLANK_LINE = re.compile(r"\r?\n[ \t\r]*\n")


def placeholder_of(label: str) -> str:
    """Return the placeholder of a finding that is not restored: `[EMAIL_REDACTED]`, `[removed by policy: secrets]`."""
    if label.startswith(_REMOVED):
        return f"[{label}]"
    return f"[{label}_REDACTED]" if label else "[REDACTED]"


def numbered_placeholder(label: str, number: int) -> str:
    """Return the placeholder of the label's n-th value, counted from 1: `[EMAIL_1]`."""
    return f"[{label or 'REDACTED'}_{number}]"


def removed_label(rule_name: str) -> str:
    """Return the label of a span that a rule cuts out."""
    return _REMOVED + " ".join(rule_name.split())[:_MAX_RULE_NAME].lower()


def is_masked(finding: Finding) -> bool:
    """Tell whether a placeholder takes the place of a finding."""
    return finding.action in MASKING_ACTIONS and not finding.observed


def replaced_spans(finding: Finding, segment: Segment) -> Iterator[Span]:
    """Yield the stretches of a segment that a finding's placeholders take the place of."""
    if finding.action != "neutralize":
        yield from finding.spans
        return
    raw, label = segment.text.raw, removed_label(finding.rule_name)
    for span in finding.spans:
        places = [(span.start, span.end)]
        if finding.category in _WIDENED:
            parts = [(0, len(raw))] if segment.parts_of is None else segment.parts_of(span.start, span.end)
            places = [
                _paragraph_around(raw, max(low, span.start), min(high, span.end), low, high) for low, high in parts
            ] or places
        yield from (Span(start, end, span.pattern, label) for start, end in places)


def _paragraph_around(raw: str, start: int, end: int, low: int, high: int) -> tuple[int, int]:
    """Return the paragraph around a match, within bounds; of a long one whole lines, or whole words, around it."""
    first, last = max(low, start - _MAX_AROUND), min(high, end + _MAX_AROUND)
    blank_before = [found.end() for found in _BLANK_LINE.finditer(raw, first, start)]
    if blank_before:
        first = blank_before[-1]
    elif first > low:
        at = raw.find("\n", first, start) + 1 or raw.find(" ", first, start) + 1
        first = at or start
    if blank_after := _BLANK_LINE.search(raw, end, last):
        last = blank_after.start()
    elif last < high:
        at = raw.rfind("\n", end, last)
        at = raw.rfind(" ", end, last) if at < 0 else at
        last = end if at < 0 else at
    return first, last


def mask(raw: str, spans: Iterable[Span]) -> str:
    """Return the text with a placeholder for every span; spans that overlap are one, named after its longest."""
    pieces, at = [], 0
    for span in merge_spans(spans):
        pieces += [raw[at : span.start], placeholder_of(span.label)]
        at = span.end
    return "".join([*pieces, raw[at:]])


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return spans that do not overlap, from left to right; touching ones stay apart.

    Joined spans are named after the longest of them, the first of equally long ones.
    """
    whole: list[Span] = []
    longest = 0
    # Sorting is stable: the first given stays first among equals.
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if not whole or span.start >= whole[-1].end:
            whole.append(span)
            longest = span.end - span.start
            continue
        last, length = whole[-1], span.end - span.start
        named = span if length > longest else last
        longest = max(longest, length)
        whole[-1] = Span(last.start, max(last.end, span.end), named.pattern, named.label)
    return whole


def bounded(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the spans from left to right; past the most there may be, the rest as one."""
    ordered = sorted(dict.fromkeys(spans), key=lambda span: (span.start, -span.end))
    if len(ordered) > MAX_SPANS + 1:
        first = ordered[MAX_SPANS]
        end = max(span.end for span in ordered[MAX_SPANS:])
        ordered[MAX_SPANS:] = [Span(first.start, end, first.pattern, first.label)]
    return tuple(ordered)
