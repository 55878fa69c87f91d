"""Checks that judge a candidate by its own text alone, whatever stands around it."""

from __future__ import annotations

from collections.abc import Callable

from apps.guardrails.matching.pattern_search import CandidateMatch, Check


def text_check(is_valid: Callable[[str], bool]) -> Check:
    """Return the check that accepts a candidate whose text is valid."""

    def check(candidate: CandidateMatch) -> CandidateMatch | None:
        return candidate if is_valid(candidate.text) else None

    return check
