"""Redaction (masking) of text: a placeholder replaces every span that a rule found."""

from __future__ import annotations

from collections.abc import Iterable

from apps.guardrails.findings.scan_types import MAX_SPANS, Span


def placeholder_of(label: str) -> str:
    """Return the placeholder of a finding that is not restored: `[EMAIL_REDACTED]`."""
    return f"[{label}_REDACTED]" if label else "[REDACTED]"


def numbered_placeholder(label: str, number: int) -> str:
    """Return the placeholder of the label's n-th value, counted from 1: `[EMAIL_1]`."""
    return f"[{label or 'REDACTED'}_{number}]"


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
    ordered = sorted(set(spans), key=lambda span: (span.start, -span.end))
    if len(ordered) > MAX_SPANS + 1:
        first = ordered[MAX_SPANS]
        end = max(span.end for span in ordered[MAX_SPANS:])
        ordered[MAX_SPANS:] = [Span(first.start, end, first.pattern, first.label)]
    return tuple(ordered)
