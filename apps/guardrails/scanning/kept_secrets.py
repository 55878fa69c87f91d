"""Kept secrets: texts that a request's instructions tell the model to keep. Rules then recognize questions for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from apps.guardrails.findings.scan_types import INSTRUCTING_ROLES, Segment
from apps.guardrails.findings.text_chunks import split_into_chunks
from apps.guardrails.rules import SystemRule


def kept_by_operator(rules: Iterable[SystemRule], segments: Sequence[Segment]) -> frozenset[str]:
    """Return what all rules read in what a program's instructions say; of long ones, in the first chunk."""
    readers = [rule.read_operator for rule in rules if rule.read_operator is not None]
    instructions = [segment for segment in segments if readers and segment.role in INSTRUCTING_ROLES]
    kept: set[str] = set()
    for segment in instructions:
        first = next(split_into_chunks(segment.text)).text
        kept = kept.union(*(read_operator(first) for read_operator in readers))
    return frozenset(kept)
