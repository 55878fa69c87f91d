"""Parse tree of RE2 patterns, as far as the rules use their syntax: characters, groups, alternatives, repetitions."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import Final, NamedTuple

import re2

_REPEAT = re.compile(r"(?:[*+?]|\{(\d+)(?:(,)(\d*))?\})\??")
_GROUP = re.compile(r"\((?:\?(?:P?<\w+>|([a-zA-Z-]*)([:)])))?")
_ESCAPE = re.compile(r"\\(?:x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|[pP]\{\^?\w+\}|[pP]\w|.)", re.DOTALL)
_CLASS_NAME = re.compile(r"\[:\^?\w+:\]")
_NO_WIDTH = frozenset("bBAzZ")
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}
_ASCII: Final = "".join(map(chr, range(128)))
_DIGIT = re.compile(r"\\d|\[(?:[0-9](?:-[0-9])?)+\]|[0-9]")


class Character(NamedTuple):
    """One character: one of `letters` as they are written, or a class of others (None). `source` matches just it."""

    source: str
    letters: tuple[str, ...] | None
    ignores_case: bool


class Sequence(NamedTuple):
    """Parts that follow one another; none for what has no width, such as a word boundary."""

    parts: tuple[Node, ...]


class Boundary(Sequence):
    """The beginning or the end of a word, which has no width."""


class Alternatives(NamedTuple):
    """Alternatives."""

    parts: tuple[Node, ...]


class Repeat(NamedTuple):
    """A part that is repeated; `most` is None where nothing bounds it."""

    part: Node
    least: int
    most: int | None


Node = Character | Sequence | Alternatives | Repeat


def parse(pattern: str) -> Node:
    """Return the tree of a pattern that RE2 accepts. Raises ValueError for syntax that no rule uses."""
    reader = _Reader(pattern)
    tree, _ = reader.read_alternatives(ignores_case=False)
    if reader.at != len(pattern):
        raise ValueError(f"A group ends that has not begun: {pattern[: reader.at][-80:]}")
    return tree


def lengths_of(node: Node) -> tuple[int, float]:
    """Return how many characters a match has at least and at most; infinity where nothing bounds it."""
    match node:
        case Character():
            return 1, 1
        case Repeat(part, least, most):
            shortest, longest = lengths_of(part)
            return least * shortest, math.inf if most is None else most * longest
        case Sequence(parts):
            lengths = list(map(lengths_of, parts))
            return sum(short for short, _ in lengths), sum(long for _, long in lengths)
        case Alternatives(parts):
            lengths = list(map(lengths_of, parts))
            return min(short for short, _ in lengths), max(long for _, long in lengths)


def needs_digit(node: Node) -> bool:
    """Tell whether every match contains a digit of ASCII."""
    return _needs(node, lambda source: _DIGIT.fullmatch(source) is not None)


def needs_more_than_ascii(node: Node) -> bool:
    """Tell whether every match contains a character that is not in ASCII."""
    return _needs(node, _is_beyond_ascii)


def _needs(node: Node, is_needed: Callable[[str], bool]) -> bool:
    match node:
        case Character(source):
            return is_needed(source)
        case Sequence(parts):
            return any(_needs(part, is_needed) for part in parts)
        case Alternatives(parts):
            return all(_needs(part, is_needed) for part in parts)
        case Repeat(part, least, _):
            return least > 0 and _needs(part, is_needed)


@functools.cache
def _is_beyond_ascii(source: str) -> bool:
    # A letter beyond ASCII may be one of ASCII in the other case.
    return re2.compile(f"(?is){source}").search(_ASCII) is None


def blanks_of(node: Node) -> frozenset[bytes]:
    """Return the white space of ASCII that a match may contain."""
    match node:
        case Character(source):
            return _blanks_of(source)
        case Sequence(parts) | Alternatives(parts):
            return frozenset[bytes]().union(*map(blanks_of, parts))
        case Repeat(part):
            return blanks_of(part)


@functools.cache
def _blanks_of(source: str) -> frozenset[bytes]:
    return frozenset(re2.compile(f"(?s){source}".encode()).findall(b"\t\n\v\f\r "))


class _Reader:
    """Reads a pattern from left to right; `at` is the place of the next character.

    `(?i)` holds from its place to the end of its group, alternatives included, so every method takes and returns it.
    """

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self.at = 0

    def read_alternatives(self, *, ignores_case: bool) -> tuple[Node, bool]:
        """Read up to the end of the group."""
        parts: list[Node] = []
        while True:
            part, ignores_case = self._read_sequence(ignores_case=ignores_case)
            parts.append(part)
            if not self._pattern.startswith("|", self.at):
                return (parts[0] if len(parts) == 1 else Alternatives(tuple(parts))), ignores_case
            self.at += 1

    def _read_sequence(self, *, ignores_case: bool) -> tuple[Node, bool]:
        parts: list[Node] = []
        while self.at < len(self._pattern) and self._pattern[self.at] not in "|)":
            if self._pattern[self.at] == "(":
                part, ignores_case = self._read_group(ignores_case=ignores_case)
            else:
                part = self._read_character(ignores_case=ignores_case)
            while repeat := _REPEAT.match(self._pattern, self.at):
                self.at = repeat.end()
                part = Repeat(part, *_bounds_of(repeat))
            parts.append(part)
        return Sequence(tuple(parts)), ignores_case

    def _read_group(self, *, ignores_case: bool) -> tuple[Node, bool]:
        opening = _GROUP.match(self._pattern, self.at)
        if opening is None:
            raise ValueError(f"Not a group: {self._pattern[self.at : self.at + 20]}")
        self.at = opening.end()
        flags = opening[1] or ""
        inside = "i" not in flags.partition("-")[2] if "i" in flags else ignores_case
        if opening[2] == ")":
            return Sequence(()), inside
        node, _ = self.read_alternatives(ignores_case=inside)
        self.at += 1
        return node, ignores_case

    def _read_character(self, *, ignores_case: bool) -> Node:
        start = self.at
        letter = self._pattern[start]
        letters: list[str | None]
        if letter == "[":
            letters = self._read_class()
        elif letter == "\\":
            if self._pattern[start + 1] in _NO_WIDTH:
                self.at += 2
                return Boundary(()) if self._pattern[start + 1] == "b" else Sequence(())
            letters = [self._read_escape()]
        else:
            self.at += 1
            if letter in "^$":
                return Sequence(())
            letters = [None if letter == "." else letter]
        known = tuple(one for one in letters if one is not None)
        return Character(
            self._pattern[start : self.at], known if len(known) == len(letters) else None, ignores_case=ignores_case
        )

    def _read_escape(self) -> str | None:
        """Return the character of an escape; None for a class."""
        escape = _ESCAPE.match(self._pattern, self.at)
        if escape is None:
            raise ValueError(f"Not an escape: {self._pattern[self.at : self.at + 20]}")
        self.at = escape.end()
        code = escape[1] or escape[2]
        if code:
            return chr(int(code, 16))
        letter = escape[0][1]
        return _CONTROLS.get(letter) if letter.isalnum() else letter

    def _read_class(self) -> list[str | None]:
        """Return the characters of a class in brackets; None for a range, for a class within, or for all others."""
        self.at += 1
        is_negated = self._pattern.startswith("^", self.at)
        self.at += is_negated
        letters: list[str | None] = []
        # A bracket right at the beginning is one of the characters.
        while not letters or self._pattern[self.at] != "]":
            if name := _CLASS_NAME.match(self._pattern, self.at):
                self.at = name.end()
                letters.append(None)
            elif self._pattern[self.at] == "\\":
                letters.append(self._read_escape())
            else:
                letters.append(self._pattern[self.at])
                self.at += 1
            if self._pattern[self.at] == "-" and self._pattern[self.at + 1] != "]":
                letters.append(None)
                self.at += 1
        self.at += 1
        return [None] if is_negated else letters


def _bounds_of(repeat: re.Match[str]) -> tuple[int, int | None]:
    if repeat[1] is None:
        sign = repeat[0][0]
        return int(sign == "+"), 1 if sign == "?" else None
    least = int(repeat[1])
    if repeat[2] is None:
        return least, least
    return least, int(repeat[3]) if repeat[3] else None
