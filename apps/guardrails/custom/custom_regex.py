"""Custom rule type `custom_regex`: texts that match a regular expression of the organization.

Valid expressions are RE2's, of bounded size, and do not match the empty text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import re2

from apps.guardrails.custom import BadConfig, fields_of
from apps.guardrails.findings.scan_types import MAX_SPANS, UNFINISHED, Span
from apps.guardrails.regex.re2_matcher import (
    MAX_PROGRAM_SIZE,
    PatternGroup,
    TimeBudget,
    compile_expression,
    program_size,
)
from apps.guardrails.text.scanned_text import ScannedText

TYPE, FIELD = "custom_regex", "pattern"
LABEL = "PATTERN"
MAX_PATTERN_LENGTH = 1000
# The positions of all expressions of an organization; twenty are usual for one.
MAX_POSITIONS = 20_000
# Characters of an expression that a violation shows.
_SHOWN = 200
# An expression with an empty match in one of these matches between all letters.
_PROBES = ("", "a", " ", "a a", "1", "_", "-", "\n", "é", "中")
_LAYOUT = str.maketrans("\n\t", "  ")
_ONE_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\C")


def read_config(config: object) -> dict[str, Any]:
    """Return `{pattern}`. Raises BadConfig with RE2's own words where it does not take the expression."""
    pattern = fields_of(config).get("pattern")
    if not isinstance(pattern, str) or not 0 < len(pattern) <= MAX_PATTERN_LENGTH:
        raise BadConfig("pattern", f"Must be a regular expression of 1 to {MAX_PATTERN_LENGTH} characters")
    compile_pattern(pattern, "pattern")
    return {"pattern": pattern}


def compile_rules(configs: Sequence[dict[str, Any]]) -> ExpressionMatcher:
    """Return the matcher of all rules; a rule's index is its place in `configs`."""
    patterns = [config["pattern"] for config in configs]
    return ExpressionMatcher(
        [OwnedExpression(index, pattern, pattern) for index, pattern in enumerate(patterns)], "pattern", LABEL
    )


def compile_pattern(pattern: str, path: str) -> re2._Regexp:
    """Return the expression. Raises BadConfig naming `path`."""
    if not pattern.translate(_LAYOUT).isprintable():
        raise BadConfig(path, "Must not contain control characters; write them as escapes")
    if _ONE_BYTE.search(pattern):
        raise BadConfig(path, r"invalid escape sequence: \C (it would cut characters apart)")
    try:
        expression = compile_expression(pattern)
    except re2.error as error:
        raise BadConfig(path, _words_of(error)) from error
    if program_size(expression) > MAX_PROGRAM_SIZE:
        raise BadConfig(
            path, f"The expression is too large: with all repetitions, more than {MAX_PROGRAM_SIZE} positions"
        )
    for probe in _PROBES:
        if any(found.start() == found.end() for found in expression.finditer(probe)):
            raise BadConfig(path, "The expression must not match the empty text")
    return expression


class OwnedExpression(NamedTuple):
    """An expression of the rule at `owner`, reported as `name`."""

    owner: int
    name: str
    pattern: str


class ExpressionMatcher:
    """Expressions of many rules."""

    def __init__(self, owned: Sequence[OwnedExpression], path: str, label: str) -> None:
        """Raises BadConfig where they are too large together."""
        self._owned = owned
        self._label = label
        compiled = [compile_pattern(one.pattern, path) for one in owned]
        if sum(map(program_size, compiled)) > MAX_POSITIONS:
            raise BadConfig(path, f"All expressions together have more than {MAX_POSITIONS} positions")
        self._group = PatternGroup(compiled)

    @property
    def max_bytes(self) -> int:
        """Bytes that it takes at most."""
        return self._group.max_bytes

    def find(self, text: ScannedText, budget: TimeBudget) -> Iterator[tuple[int, Span]]:
        """Yield every match: a rule's index and the span."""
        for match in self._group.find(text.utf8, MAX_SPANS, budget):
            owner, name, _ = self._owned[match.expression]
            start, end = text.byte_origin(match.start, match.end)
            yield owner, Span(start, end, name[:_SHOWN] if match.searched else UNFINISHED, self._label)


def _words_of(error: re2.error) -> str:
    words = error.args[0] if error.args else "The expression does not compile"
    return words.decode("utf-8", "replace") if isinstance(words, bytes) else str(words)
