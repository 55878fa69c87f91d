"""A text with what was found in it masked.

Knows spans and placeholders. Must never know a rule.
"""

from __future__ import annotations

from collections.abc import Iterable

from apps.guardrails.findings.scan_types import Span


def placeholder_of(label: str) -> str:
    """Return what stands in the place of what was found: `[EMAIL_REDACTED]`."""
    return f"[{label}_REDACTED]" if label else "[REDACTED]"


def mask(raw: str, spans: Iterable[Span]) -> str:
    """Return the text with a placeholder for every span; spans that overlap are one, named after its longest."""
    pieces, at = [], 0
    for span in merge_spans(spans):
        pieces += [raw[at : span.start], placeholder_of(span.label)]
        at = span.end
    return "".join([*pieces, raw[at:]])


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return spans that do not overlap, from left to right; touching ones stay apart.

    What was one with others is named after the longest of them, of equally long ones after the first.
    """
    whole: list[Span] = []
    longest = 0
    # Sorting is stable: what is given first stays first among equals.
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
