"""Texts crafted against the patterns of the guardrail rules: matches, near misses, and runs that need many states.

They are made from the patterns themselves, so that new rules are tried without a word here.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Sequence

import re2

from apps.guardrails.regex import pattern_tree

# Characters that classes are tried with, and how many of a class are used.
_TRIED = [chr(code) for code in (*range(9, 14), *range(32, 127), *range(0xA0, 0xD800, 29), *range(0xE000, 0x20000, 97))]
_TRIED += [chr(code) for code in (*range(0xE0020, 0xE0080), *range(0xFE00, 0xFE10), *range(0x300, 0x370))]
_MAX_MEMBERS = 60
_MAX_RUN = 40
_BLOCKS = (
    *((0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0xE80), (0x2000, 0x2C00)),
    *((0x3000, 0x3100), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFE00, 0x10000), (0x1D400, 0x1D800), (0x1F300, 0x1FA00)),
)
_BETWEEN = ("", "", " ", "\n", "-", "_", ".", ", ", "=", ": ", '"', "/", "\t", "\u200b", "é")


def crafted_text(patterns: Sequence[str], size: int, chosen: random.Random) -> str:
    """Return a text of about so many characters against some of the patterns."""
    make = chosen.choice((_of_many_patterns, _of_many_patterns, _of_one_pattern, _of_blocks, _of_few_characters))
    parts: list[str] = []
    length = 0
    for part in make(patterns, chosen):
        parts += [part, chosen.choice(_BETWEEN)]
        length += len(part) + 1
        if length >= size:
            break
    return "".join(parts)[: size * 2]


def _of_many_patterns(patterns: Sequence[str], chosen: random.Random) -> Iterator[str]:
    while True:
        yield near_miss(chosen.choice(patterns), chosen)


def _of_one_pattern(patterns: Sequence[str], chosen: random.Random) -> Iterator[str]:
    """Yield one pattern's matches and near misses: as many of its states as there are."""
    pattern = chosen.choice(patterns)
    while True:
        yield near_miss(pattern, chosen)


def _of_blocks(patterns: Sequence[str], chosen: random.Random) -> Iterator[str]:
    """Yield runs of random characters, each of one or two blocks of Unicode."""
    while True:
        blocks = chosen.sample(_BLOCKS, 2)
        yield "".join(chr(chosen.randrange(*chosen.choice(blocks))) for _ in range(chosen.randint(1, _MAX_RUN)))


def _of_few_characters(patterns: Sequence[str], chosen: random.Random) -> Iterator[str]:
    """Yield random mixes of a few characters of one match: what a bounded repetition keeps a state for each of."""
    while True:
        letters = matching_text(chosen.choice(patterns), chosen) or "a"
        few = chosen.choices(letters, k=chosen.randint(2, 4))
        yield "".join(chosen.choices(few, k=chosen.randint(10, 10 * _MAX_RUN)))


def near_miss(pattern: str, chosen: random.Random) -> str:
    """Return a match of a pattern, mostly with a fault: cut off, a character changed, a piece twice, in capitals."""
    text = matching_text(pattern, chosen)
    if not text:
        return text
    at = chosen.randrange(len(text))
    faults: tuple[Callable[[], str], ...] = (
        lambda: text,
        lambda: text[:at],
        lambda: text[at:],
        lambda: text[:at] + chosen.choice(_TRIED) + text[at + 1 :],
        lambda: text[:at] + text[at:] * 2,
        lambda: text[:at] + text[at:].swapcase(),
    )
    return chosen.choice(faults)()


def matching_text(pattern: str, chosen: random.Random) -> str:
    """Return a text that a pattern matches, but for what it wants around it."""
    return _written(_tree_of(pattern), chosen)


@functools.cache
def _tree_of(pattern: str) -> pattern_tree.Node:
    return pattern_tree.parse(pattern)


def _written(node: pattern_tree.Node, chosen: random.Random) -> str:
    match node:
        case pattern_tree.Character(source, letters, ignores_case):
            members = letters or _members_of(source)
            letter = chosen.choice(members) if members else ""
            return letter.upper() if ignores_case and chosen.random() < 0.2 else letter
        case pattern_tree.Sequence(parts):
            return "".join(_written(part, chosen) for part in parts)
        case pattern_tree.Alternatives(parts):
            return _written(chosen.choice(parts), chosen)
        case pattern_tree.Repeat(part, least, most):
            longest = least + _MAX_RUN if most is None else min(most, least + _MAX_RUN)
            times = least if chosen.random() < 0.3 else chosen.randint(least, longest)
            return "".join(_written(part, chosen) for _ in range(min(times, 10 * _MAX_RUN)))


@functools.cache
def _members_of(source: str) -> list[str]:
    """Return some characters of a class."""
    expression = re2.compile(f"(?s){source}")
    members = [one for one in _TRIED if expression.fullmatch(one.encode()) is not None]
    return members if len(members) <= _MAX_MEMBERS else random.Random(0).sample(members, _MAX_MEMBERS)
