"""RE2 patterns of the system rules: lazy ones take bounded memory, and sets find what single patterns do."""

from __future__ import annotations

import pytest
import re2

from apps.guardrails.regex import re2_patterns
from apps.guardrails.regex.re2_patterns import (
    OFTEN,
    RARELY,
    STATELESS,
    LazyPattern,
    PatternFilter,
    RecentPatterns,
    compile_re2,
    lazy_pattern,
)


def test_a_limit_grows_with_the_pattern_between_its_bounds() -> None:
    assert [RARELY.of(positions) for positions in (10, 200, 1000, 5000)] == [32_768, 51_200, 131_072, 550_000]
    assert [OFTEN.of(positions) for positions in (10, 200, 1000, 5000)] == [32_768, 204_800, 589_824, 750_000]


def test_a_pattern_counts_its_program_and_the_states_that_its_limit_allows() -> None:
    positions = re2.compile("recent[0-9]").programsize
    assert LazyPattern("recent[0-9]", STATELESS).max_bytes == 1024 + 24 * positions
    assert LazyPattern("recent[0-9]").max_bytes == 1024 + 24 * positions + 32_768 * 2 // 3


def test_spans_of_a_match_begin_where_they_should() -> None:
    pattern = LazyPattern("a(b+)(c)?", STATELESS)
    assert pattern.spans_at(b"xabbc", 1, 5) == [(1, 5), (2, 4), (4, 5)]
    assert pattern.spans_at(b"xabbc", 1, 4) == [(1, 4), (2, 4), (-1, -1)]
    assert pattern.spans_at(b"xabbc", 0, 5) == []


def test_recent_patterns_drop_what_was_not_used_for_longest() -> None:
    lazy = [LazyPattern(f"recent{number}") for number in range(9)]
    recent = RecentPatterns(8 * lazy[0].max_bytes)
    first, second = [recent.compiled(one) for one in lazy[:8]][:2]
    assert recent.compiled(lazy[0]) is first
    recent.compiled(lazy[8])
    assert list(recent._kept) == [*lazy[2:8], lazy[0], lazy[8]]
    assert recent.compiled(lazy[0]) is first
    assert recent.compiled(lazy[1]) is not second
    assert recent.compiled(lazy[1]).search(b"a recent1") is not None


def test_recent_patterns_never_take_more_than_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    recent = RecentPatterns(200_000)
    monkeypatch.setattr(re2_patterns, "_recent", recent)
    monkeypatch.setattr(re2_patterns, "_recent_stateless", recent)
    patterns = [
        LazyPattern(f"many{number}[a-z]{{{number}}}", limit) for number in range(40) for limit in (RARELY, STATELESS)
    ]
    for lazy in patterns * 2:
        assert lazy.compiled.pattern == lazy.pattern
        assert sum(one.max_bytes for one in recent._kept) <= 200_000


def test_patterns_with_states_never_displace_those_without(monkeypatch: pytest.MonkeyPatch) -> None:
    small, searching = LazyPattern("(stateless)", STATELESS), [LazyPattern(f"searching{number}") for number in range(3)]
    recent = RecentPatterns(searching[0].max_bytes)
    monkeypatch.setattr(re2_patterns, "_recent", recent)
    monkeypatch.setattr(re2_patterns, "_recent_stateless", RecentPatterns(small.max_bytes))
    first = small.compiled
    for lazy in searching:
        assert lazy.compiled.pattern == lazy.pattern
    assert list(recent._kept) == [searching[2]]
    assert small.compiled is first


def test_a_pattern_of_many_texts_is_never_dropped() -> None:
    lazy = lazy_pattern("of[ ]many[ ]texts", OFTEN)
    assert lazy.compiled is compile_re2("of[ ]many[ ]texts", OFTEN)
    assert lazy.compiled.options.max_mem == OFTEN.of(re2.compile("of[ ]many[ ]texts").programsize)


def test_a_filter_finds_what_its_patterns_find_one_by_one() -> None:
    # With a literal and without, equal ones, and enough positions for several sets.
    patterns = [
        "secret[0-9]",
        r"\d\d-\d\d",
        r"(?i)[a-f]{3}\b",
        r"\d\d-\d\d",
        "(?m)^[x-z]{2}$",
        "[0-9]{400}",
        "[m-p]{300}",
    ]
    narrowed = PatternFilter(patterns)
    texts = ["secret1", "12-34 abc", "abcd", "a\nxyz\nzy\nb", "7" * 400, "7" * 399, "mno" * 100, "", "é12-34"]
    for text in texts:
        utf8 = text.encode()
        assert narrowed.matching(utf8) == [
            index for index, pattern in enumerate(patterns) if re2.search(pattern.encode(), utf8) is not None
        ]
    assert len(narrowed._sets) == 2
