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
    PatternCache,
    PatternFilter,
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


def test_a_cache_drops_what_was_used_least_and_former_favorites_in_time() -> None:
    favorite, *others = [LazyPattern(f"cached{number}") for number in range(8)]
    cache = PatternCache(3 * favorite.max_bytes)
    first, *_ = [cache.compiled(favorite) for _ in range(3)]
    dropped = cache.compiled(others[0])
    for lazy in others[1:3]:
        cache.compiled(lazy)
    assert list(cache._kept) == [favorite, others[1], others[2]]
    assert cache.compiled(favorite) is first
    assert cache.compiled(others[0]) is not dropped
    assert cache.compiled(others[0]).search(b"a cached1") is not None
    assert list(cache._kept) == [favorite, others[2], others[0]]
    # Later patterns start from the score of the last that went, so that four uses long ago are worth less each time.
    for lazy in others[3:7] * 2:
        cache.compiled(lazy)
    assert favorite not in cache._kept


def test_a_cache_never_takes_more_than_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PatternCache(200_000)
    monkeypatch.setattr(re2_patterns, "_cache", cache)
    monkeypatch.setattr(re2_patterns, "_stateless_cache", cache)
    patterns = [
        LazyPattern(f"many{number}[a-z]{{{number}}}", limit) for number in range(40) for limit in (RARELY, STATELESS)
    ]
    for lazy in patterns * 2:
        assert lazy.compiled.pattern == lazy.pattern
        assert sum(one.max_bytes for one in cache._kept) <= 200_000


def test_patterns_with_states_never_displace_those_without(monkeypatch: pytest.MonkeyPatch) -> None:
    small, searching = LazyPattern("(stateless)", STATELESS), [LazyPattern(f"searching{number}") for number in range(3)]
    cache = PatternCache(searching[0].max_bytes)
    monkeypatch.setattr(re2_patterns, "_cache", cache)
    monkeypatch.setattr(re2_patterns, "_stateless_cache", PatternCache(small.max_bytes))
    first = small.compiled
    for lazy in searching:
        assert lazy.compiled.pattern == lazy.pattern
    assert list(cache._kept) == [searching[2]]
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
