"""Secret detection: keys, tokens, passwords, private keys."""

from __future__ import annotations

from bisect import bisect_right

from apps.guardrails.findings.scan_types import ANSWER, TOOL_RESULT, RuleAction, RuleSettings, Span
from apps.guardrails.matching.pattern_search import PatternSearch
from apps.guardrails.regex.re2_patterns import compile_re2, lazy_pattern
from apps.guardrails.secret_formats import (
    assignments,
    encoded_keys,
    keys,
    logins,
    named_values,
    passwords,
    urls,
    vendors,
)
from apps.guardrails.text.scanned_text import ScannedText

ID = "secrets"
NAME = "Secrets"
SUMMARY = "API keys, tokens, passwords and private keys"
CATEGORY = "secrets"
DEFAULT_ENABLED = True
DEFAULT_ACTION: RuleAction = "block"
# Agents read settings, logs and sources, which are full of keys, and write them.
ROLE_ACTIONS: dict[str, RuleAction] = {TOOL_RESULT: "warn", ANSWER: "warn"}

# Kinds that the name beside a value gives away, not the value's own form; and signed tokens, which anyone can make.
_BY_NAME = frozenset(
    kind.name for module in (assignments, logins, named_values, passwords, urls) for kind in module.PATTERNS
) | {"jwt"}
_PRIVATE = "private_key"
_MADE_UP_IN_TESTS = _BY_NAME | {_PRIVATE}
# If two match the same characters, the first names them.
_SEARCH = PatternSearch(
    [
        kind
        for module in (keys, vendors, urls, logins, assignments, named_values, encoded_keys, passwords)
        for kind in module.PATTERNS
    ]
)
# Embedded pictures, sounds and fonts, in full lines: so much base64 has the form of some key by chance.
_MEDIA = compile_re2(
    r"data:(?:image|audio|video|font)/[\w.+-]{1,40};base64,\s{0,8}(?:[0-9A-Za-z+/]{60,}\s{1,8})*[0-9A-Za-z+/]*={0,2}"
)
# How tests begin in common languages and frameworks: imports, declarations, annotations.
_TEST_CODE = compile_re2(
    r"(?m)^[ \t]*(?:(?:async )?def test_\w|(?:import|from) (?:pytest|unittest|vitest)\b|import (?:static )?org\.junit\b"
    r"|(?:public |async |export )*function test\w|func Test\w+\(|TEST(?:_[FP])?\(|\"testing\"$"
    r"|(?:describe|it|test|context|specify)(?:\.\w+)?[ (]+[\"'`]"
    r"|@(?:Parameterized|Repeated)?Test\b|\[(?:Fact|Theory|TestMethod)\b|#\[(?:\w+::)*test\b|#\[cfg\(test\)\])"
    r"|\bclass \w+(?:Tests?\b| ?(?:extends |: |< |\()[\w:.\\]*Test(?:Case)?\b)|\bExUnit\.Case\b"
)
# How far behind such a beginning a value still belongs to it.
_TEST_REACH = 4096
# The path of a file of tests right before a private key, or before the block of code that it is in, as agents write it
# before a file's content: between them stand signs, numbers of lines, and the language of a block.
_TEST_FILE = lazy_pattern(
    r"(?i)(?:^|[/\\\s\"'`(<>=:])(?:(?:[\w.]+[_.-])?(?:tests?(?:[_.-][\w.-]+)?|fixtures?|testdata|mocks?|examples?|spec)|__(?:tests|fixtures|mocks)__)"
    r"[/\\](?:[\w.@-]+[/\\])*[\w.@-]+\W+(?:(?:pem|key|text|txt|plaintext|\d{1,5})\W+)*$"
)
_PATH_REACH, _BLOCK_REACH = 300, 16_384


def find(text: ScannedText, settings: RuleSettings) -> list[Span]:
    """Return every secret in a text, by place, none overlapping another."""
    spans = _SEARCH.find(text.ascii_folded)
    if settings.role != ANSWER:  # of a streamed answer only the latest characters can be seen
        spans = _without_made_up(text.raw, spans)
    if not spans or ";base64," not in text.raw:
        return spans
    media = [match.span() for match in _MEDIA.finditer(text.raw)]
    return [span for span in spans if not any(start <= span.start and span.end <= end for start, end in media)]


def _without_made_up(raw: str, spans: list[Span]) -> list[Span]:
    """Return the spans without values in the code of tests that only their names call secrets, and without private keys
    there and in the files of tests."""
    if all(span.pattern not in _MADE_UP_IN_TESTS for span in spans):
        return spans
    beginnings = [match.start() for match in _TEST_CODE.finditer(raw)]
    return [
        span
        for span in spans
        if span.pattern not in _MADE_UP_IN_TESTS
        or not (_is_behind(beginnings, span.start) or (span.pattern == _PRIVATE and _is_test_file(raw, span.start)))
    ]


def _is_test_file(raw: str, at: int) -> bool:
    """Tell whether the path of a file of tests stands right before a place, or before the block of code around it."""
    if _TEST_FILE.search(raw[max(0, at - _PATH_REACH) : at]):
        return True
    fence = raw.rfind("```", max(0, at - _BLOCK_REACH), at)
    return fence >= 0 and _TEST_FILE.search(raw[max(0, fence - _PATH_REACH) : fence]) is not None


def _is_behind(beginnings: list[int], at: int) -> bool:
    """Tell whether one of some places is right before another."""
    latest = bisect_right(beginnings, at) - 1
    return latest >= 0 and at - beginnings[latest] <= _TEST_REACH
