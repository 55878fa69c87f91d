"""Kept analysis of patterns: taken from the file as it was computed, and computed again where the file is no good."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from apps.guardrails.matching.signal_finder import literal_beginnings
from apps.guardrails.regex import kept_analysis
from apps.guardrails.regex.kept_analysis import analysis_kept, keep_results
from apps.guardrails.regex.required_literals import MatchReach, reach_of, required_literals

_PATTERNS = ("(?i)API[_-]?key *= *[0-9a-f]{32}", "x[0-9]+", r"\w+", "(?i)ß7|й7")
_CLAUSES = [{"api-key", "api_key", "apikey"}]


@pytest.fixture
def counted() -> tuple[Callable[[str], list[frozenset[str]]], list[str]]:
    """Give a kept function, and the patterns that it has computed."""
    computed: list[str] = []

    @keep_results
    def words(pattern: str) -> list[frozenset[str]]:
        computed.append(pattern)
        return [frozenset(pattern.split("|"))]

    return words, computed


@pytest.fixture(autouse=True)
def _may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)


def test_second_load_computes_nothing(tmp_path: Path, counted: tuple[Callable[[str], object], list[str]]) -> None:
    words, computed = counted
    file = tmp_path / "made" / "kept"
    for _ in range(2):
        with analysis_kept(file):
            assert [words("a|b"), words("c"), words("a|b")] == [[{"a", "b"}], [{"c"}], [{"a", "b"}]]
        assert computed == ["a|b", "c"]
    assert os.listdir(file.parent) == ["kept"]


def test_new_pattern_renews_the_file_and_drops_those_of_no_rule(
    tmp_path: Path, counted: tuple[Callable[[str], object], list[str]]
) -> None:
    words, computed = counted
    for pattern in ("old", "new", "new", "old"):
        with analysis_kept(tmp_path / "kept"):
            words(pattern)
    assert computed == ["old", "new", "old"]


def test_patterns_outside_of_the_rules_are_not_kept(
    tmp_path: Path, counted: tuple[Callable[[str], object], list[str]]
) -> None:
    words, computed = counted
    assert [words("a"), words("a")] == [[{"a"}], [{"a"}]]
    with analysis_kept(tmp_path / "kept"):
        pass
    assert computed == ["a", "a"]
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-1],
        lambda content: b"",
        lambda content: content.replace(b"\xa1a", b"\xa1\xff"),
        lambda content: content.replace(b"\x91\x91\xa1a", b"\x91\x91\xc3\xc0"),
    ],
)
def test_damaged_file_counts_as_absent(
    tmp_path: Path, counted: tuple[Callable[[str], object], list[str]], damage: Callable[[bytes], bytes]
) -> None:
    words, computed = counted
    file = tmp_path / "kept"
    with analysis_kept(file):
        words("a")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert file.read_bytes() != whole
    with analysis_kept(file):
        assert words("a") == [{"a"}]
    assert computed == ["a", "a"]
    assert file.read_bytes() == whole


def test_results_of_other_source_code_are_computed_again(
    tmp_path: Path, counted: tuple[Callable[[str], object], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    words, computed = counted
    for digest in ("one", "one", "two"):
        monkeypatch.setattr(kept_analysis, "_source_digest", lambda digest=digest: digest)
        with analysis_kept(tmp_path / "kept"):
            words("a")
    assert computed == ["a", "a"]


def test_read_only_folder_and_dont_write_bytecode_leave_no_file(
    tmp_path: Path, counted: tuple[Callable[[str], object], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    words, _ = counted
    (tmp_path / "file").touch()
    with analysis_kept(tmp_path / "file" / "kept"):
        assert words("a") == [{"a"}]
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    with analysis_kept(tmp_path / "kept"):
        assert words("a") == [{"a"}]
    assert os.listdir(tmp_path) == ["file"]


def test_kept_functions_return_from_the_file_what_they_compute(tmp_path: Path) -> None:
    file = tmp_path / "kept"

    def results() -> list[object]:
        return [*map(required_literals, _PATTERNS), *map(reach_of, _PATTERNS), literal_beginnings("(?:ab|cd)[xy]e?")]

    with analysis_kept(file):
        computed = results()
    content = msgspec.msgpack.decode(file.read_bytes())
    assert sorted(content["results"]) == ["literal_beginnings", "reach_of", "required_literals"]
    with analysis_kept(file):
        taken = results()
    assert taken == computed == results()
    assert [type(one) for one in taken] == [list] * 4 + [MatchReach, type(None), type(None), MatchReach, frozenset]
    assert taken[0] == _CLAUSES
