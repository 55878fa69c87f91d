"""Memory budget of organizations' own rules: compiled matchers within a number of bytes, and compiled again at need.

A process keeps the rules of many organizations in force, and each matcher takes up to `MAX_TYPE_BYTES`. The matchers
that were not used for longest go; only the texts of their rules stay.
"""

from __future__ import annotations

import weakref
from functools import partial
from itertools import count
from typing import Final

import msgspec

from apps.guardrails.custom import Matcher
from apps.guardrails.rule_thread import on_rule_thread
from apps.guardrails.scanning.engine import FindMatcher

# Bytes that the compiled rules of all organizations take at most in a process; one organization's always fit.
MAX_BYTES: Final = 72_000_000


class _Kept(msgspec.Struct):
    """A compiled matcher and when it was last used, as the number of uses before."""

    matcher: Matcher
    used: int


class _HeldMatcher:
    """A matcher that is compiled when it is needed."""

    __slots__ = ("__weakref__", "_budget", "_compile")

    def __init__(self, budget: MatcherBudget, compile_matcher: FindMatcher) -> None:
        self._budget = budget
        self._compile = compile_matcher

    def __call__(self) -> Matcher:
        return self._budget.find(id(self), self._compile)


class MatcherBudget:
    """Compiled matchers by their holder. Safe on several threads: two may compile the same one."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._uses = count()
        self._kept: dict[int, _Kept] = {}

    @property
    def used_bytes(self) -> int:
        """The bytes that the compiled matchers take at most."""
        return sum(kept.matcher.max_bytes for kept in list(self._kept.values()))

    def hold(self, compile_matcher: FindMatcher) -> FindMatcher:
        """Compile a matcher and return a function that returns it, compiled again if it had to go. Raises BadConfig."""
        held = _HeldMatcher(self, compile_matcher)
        held()
        weakref.finalize(held, self._kept.pop, id(held), None).atexit = False
        return held

    def find(self, holder: int, compile_matcher: FindMatcher) -> Matcher:
        """Return a holder's matcher. Compiling happens on the thread for rules, and the caller waits for it."""
        kept = self._kept.get(holder)
        if kept is None:
            return on_rule_thread(partial(self._compile, holder, compile_matcher))
        kept.used = next(self._uses)
        return kept.matcher

    def _compile(self, holder: int, compile_matcher: FindMatcher) -> Matcher:
        kept = self._kept.get(holder)
        if kept is not None:
            # For another who asked at the same time.
            return kept.matcher
        matcher = compile_matcher()
        self._make_room(matcher.max_bytes)
        self._kept[holder] = _Kept(matcher, next(self._uses))
        return matcher

    def _make_room(self, needed: int) -> None:
        """Drop the matchers that were not used for longest, until the new one fits or is alone."""
        # A copy: another thread may change the matchers meanwhile.
        everything = list(self._kept.items())
        left = sum(kept.matcher.max_bytes for _, kept in everything) + needed
        for holder, kept in sorted(everything, key=lambda item: item[1].used):
            if left <= self._max_bytes:
                break
            self._kept.pop(holder, None)
            left -= kept.matcher.max_bytes
