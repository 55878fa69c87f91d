"""The name that a misspelled one probably means: the nearest by edits, as its length allows, with little work."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from apps.kernel import near_names
from apps.kernel.near_names import NearNames

NAMES = NearNames(
    ["gpt-5", "gpt-5-mini", "gpt-4o", "gpt-4o-mini", "claude-opus-4-5", "claude-opus-4-6", "claude-sonnet-4-5", "o3"]
)


@pytest.mark.parametrize(
    ("wanted", "near"),
    [
        ("gpt5", ["gpt-5"]),
        ("GPT-5", ["gpt-5"]),
        ("gtp-5", ["gpt-5"]),
        ("gpt-5-mni", ["gpt-5-mini"]),
        ("gpt-4o-mini-", ["gpt-4o-mini"]),
        ("claude-opus-4.5", ["claude-opus-4-5"]),
        ("claude-opus-4-7", ["claude-opus-4-5", "claude-opus-4-6"]),
        ("claude-sonet-4-5", ["claude-sonnet-4-5"]),
        ("clade-sonnet-45", ["claude-sonnet-4-5"]),
        ("o4", ["o3"]),
        ("threads", []),
        ("llama-3", []),
        ("claude", []),
        ("o", []),
        ("", []),
        ("x" * 64, []),
        ("gpt-5" * 20, []),
    ],
)
def test_the_nearest_are_found_and_nothing_that_is_far(wanted: str, near: list[str]) -> None:
    assert NAMES.find(wanted) == near


def test_at_most_three_are_told() -> None:
    assert NearNames(f"model-{letter}" for letter in "fedcba").find("model-x") == ["model-a", "model-b", "model-c"]


def test_what_is_ignored_does_not_make_more_edits_possible() -> None:
    paths = NearNames(["/v1/files", "/v1/models"])
    assert paths.find("/v1/file", ignored=4) == ["/v1/files"]
    assert paths.find("/v1/mills", ignored=4) == []
    assert paths.find("/v1/mills") == ["/v1/files"]


def compared(names: NearNames, wanted: str) -> int:
    """Return how many names a search compares."""
    count = 0

    def watch(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is near_names._distance.__code__

    sys.setprofile(watch)
    try:
        names.find(wanted)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("wanted", ["model-aaaa-0001", "edoml-1000", "m" * 64, "model-999x-" * 5])
def test_few_of_very_many_names_are_compared(wanted: str) -> None:
    names = NearNames(f"model-{number:04}-{number % 7}" for number in range(2_000))
    assert compared(names, wanted) <= 12


def test_a_name_that_comes_again_is_not_compared_again() -> None:
    names = NearNames(["gpt-5", "gpt-5-mini"])
    assert [compared(names, "gpt5"), compared(names, "gpt5")] == [1, 0]
    found = names.find("gpt5")
    # A caller may change the list that it got.
    found.clear()
    assert names.find("gpt5") == ["gpt-5"]
    assert [names.find("/v1/gpt5", ignored=4), names.find("/v1/gpt5", ignored=0)] == [[], []]


def test_few_answers_are_kept() -> None:
    names = NearNames(["gpt-5"])
    for number in range(1_000):
        assert names.find(f"model-{number}") == []
    assert len(names._kept) <= 256
