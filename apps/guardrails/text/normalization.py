"""Unicode normalization against evasion: case folding, NFKC, homoglyphs, invisible characters, white space.

In order: invisible characters go (tag characters become the ASCII
they spell, for models read them), NFKC, case folding, look-alike letters become Latin, white space becomes one space.

A Cyrillic or Greek letter is a look-alike only in company that gives it away: joined to a Latin letter, or in a text
without one letter of those alphabets that looks like no other. So Russian and Greek stay what they are.

Normalization is linear and runs no Python code for each character. In most texts only a few characters do more than
change their case: one pass finds these (`steady_characters`), and only they are composed. Offsets of the raw text are
computed in blocks, and only where they are asked for.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Mapping
from itertools import pairwise

import re2

from apps.guardrails.regex.re2_patterns import compile_re2, presence_test
from apps.guardrails.text.steady_characters import UNSTEADY_RUN, has_unquiet, has_unsteady, replace_fixed_forms
from apps.guardrails.text.unicode_tables import HOMOGLYPHS, INVISIBLE, STYLED, beyond_ascii, class_of

_HIDDEN = re.compile(f"[{INVISIBLE}]+")
TAG_CHARACTERS = {chr(code): chr(code - 0xE0000) for code in range(0xE0020, 0xE007F)}
# White space and invisible characters; the space of the tag characters is one too.
_GAP = re.compile(rf"[\s{INVISIBLE}\U000e0020]")
_NOT_BLANK = re.compile(f"[{INVISIBLE}]")
# Replacements of `replace_fixed_forms` with three characters and with none; and blanks that become one.
_UNEVEN = re.compile(r"[\u2026\ufe0f]|\s\s")
_ASCII_PIECE = re.compile(r"\s+|\S")
_LOOKALIKE = "".join(map(chr, HOMOGLYPHS))
_ALIKE = re.compile(f"[{_LOOKALIKE}]+")
_FANCY = re.compile(f"[{''.join(map(chr, STYLED))}]+")
# Letters of those alphabets that are taken for no Latin ones.
_GENUINE = frozenset(chr(code) for code in (*range(0x370, 0x530), *range(0x531, 0x588)) if code not in HOMOGLYPHS)
_MIXED = re.compile(f"(?<![a-z{_LOOKALIKE}])(?:[a-z]++[{_LOOKALIKE}]|[{_LOOKALIKE}]++[a-z])[a-z{_LOOKALIKE}]*+")
# Marks that pile up on one letter: normalizing is quadratic in their number, and no language needs more (UAX 15, 13).
# So many are rare enough to look closer: an expression for all of them has twenty thousand positions.
_MAX_MARKS, _MANY_MARKS = 30, 4
_BLOCK = 512
# One run of unsteady characters in so many bytes is composed by itself; where there are more, the whole text is.
_BYTES_A_RUN = 1000
_UTF8 = ("utf-8", "surrogatepass")


@functools.cache
def _piled_marks() -> re.Pattern[str]:
    mark = class_of([chr(code) for code in range(0x300, 0x1E950) if unicodedata.combining(chr(code))])
    return re.compile(f"({mark}{{{_MAX_MARKS}}}){mark}+")


@functools.cache
def _fancy_runs() -> re2._Regexp:
    return compile_re2(f"{class_of(sorted(map(chr, STYLED)))}+")


@functools.cache
def _mixed_runs() -> re2._Regexp:
    return compile_re2(f"[a-z{_LOOKALIKE}]*(?:[a-z][{_LOOKALIKE}]|[{_LOOKALIKE}][a-z])[a-z{_LOOKALIKE}]*")


@functools.cache
def _second_halves() -> frozenset[str]:
    """Return the second halves of composed characters; with combining marks, what belongs to the one before it."""
    # Nothing composed of two stands among the ideographs and syllables of East Asia.
    codes = (*range(0xC0, 0x3100), *range(0xF900, 0x17000))
    decompositions = (unicodedata.decomposition(chr(code)).split() for code in codes)
    halves = (halves[1] for halves in decompositions if len(halves) == 2 and not halves[0].startswith("<"))
    jamo = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))
    return frozenset({chr(int(half, 16)) for half in halves} | {chr(code) for code in jamo})


_has_piled = presence_test(rf"\pM{{{_MANY_MARKS}}}")
_has_hidden = presence_test(f"[{INVISIBLE}]")
_has_tag = presence_test("[\U000e0020-\U000e007e]")
_has_mixed = presence_test(f"[a-z][{_LOOKALIKE}]|[{_LOOKALIKE}][a-z]")


class NormalizedText:
    """The way back from a normalized text to what it was made of."""

    def __init__(self, raw: str, text: str) -> None:
        """Take a text and what it was normalized to."""
        self._raw = raw
        self.text = text

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the smallest part of the raw text that holds all that became `text[start:end]`; empty if that is."""
        if end <= start:
            return (at := self._characters_of(start)[0]), at
        return self._characters_of(start)[0], self._characters_of(end - 1)[1]

    def _characters_of(self, offset: int) -> tuple[int, int]:
        """Return the part of the raw text that became the character at `offset`."""
        if self._is_even:
            return offset, offset + 1
        block = max(bisect_right(self._folded_starts, offset) - 1, 0)
        if block not in self._walked:
            end = self._raw_starts[block + 1] if block + 1 < len(self._raw_starts) else len(self._raw)
            self._walked[block] = _map_offsets(self._raw, self._raw_starts[block], end)
        folded, raw = self._walked[block]
        within = offset - self._folded_starts[block]
        piece = max(bisect_right(folded, within, 0, len(folded) - 1) - 1, 0)
        return raw[piece], raw[piece + 1]

    @functools.cached_property
    def _is_even(self) -> bool:
        """Whether every character became one: in ASCII nothing but runs of blanks becomes less."""
        return self._raw.isascii() and len(self._raw) == len(self.text)

    @functools.cached_property
    def _walked(self) -> dict[int, tuple[list[int], list[int]]]:
        return {}

    @functools.cached_property
    def _raw_starts(self) -> list[int]:
        starts, raw = [0], self._raw
        while (at := starts[-1] + _BLOCK) < len(raw):
            while at < len(raw) and not _stands_alone(raw[at]):
                at += 1
            starts.append(at)
        return starts

    @functools.cached_property
    def _folded_starts(self) -> list[int]:
        starts, ends = [0], [*self._raw_starts[1:], len(self._raw)]
        for start, end in zip(self._raw_starts, ends, strict=True):
            piece = self._raw[start:end]
            # For ASCII, normalizing is the faster test.
            is_even = not piece.isascii() and _is_even(piece)
            size = end - start if is_even else len(_normalize_except_lookalikes(piece))
            starts.append(starts[-1] + size)
        return starts[:-1]


def normalize(raw: str) -> str:
    """Return the normalized text."""
    return normalize_utf8(raw, raw.encode(*_UTF8)).decode(*_UTF8)


def normalized_forms(word: str) -> set[str]:
    """Return the forms of a word in a normalized text: whether its look-alikes are mapped depends on its neighbors."""
    plain = _normalize_except_lookalikes(word)
    return {plain, _map_homoglyphs(plain.encode(*_UTF8)).decode(*_UTF8)}


def normalize_keeping_case(raw: str) -> str:
    """Return the text normalized but for its case: what tells "US" from "us" wherever something hides in it."""
    return collapse_whitespace(_composed(raw)).decode(*_UTF8)


def normalize_utf8(raw: str, utf8: bytes) -> bytes:
    """Return the normalized text in UTF-8, made of a text and its UTF-8."""
    if raw.isascii():
        return collapse_whitespace(utf8.lower())
    composed = _compose_runs(utf8)
    if composed is None:
        composed = _composed(raw)
    if not has_unquiet(composed):
        return collapse_whitespace(composed.lower())
    return collapse_whitespace(_map_homoglyphs(composed.decode(*_UTF8).casefold().encode(*_UTF8)))


def _normalize_except_lookalikes(piece: str) -> str:
    """Normalize all but look-alikes, whose mapping changes no length."""
    return collapse_whitespace(_composed(piece).decode(*_UTF8).casefold().encode(*_UTF8)).decode(*_UTF8)


def _compose_runs(utf8: bytes) -> bytes | None:
    """Do what `_composed` does, each run of unsteady characters by itself; None where there are many of them."""
    utf8 = replace_fixed_forms(utf8)
    if not has_unsteady(utf8):
        return utf8
    pieces, done, left = [], 0, len(utf8) // _BYTES_A_RUN
    for run in UNSTEADY_RUN.finditer(utf8):
        if left < 0:
            return None
        pieces += [utf8[done : run.start()], _composed(run[0].decode(*_UTF8))]
        done, left = run.end(), left - 1
    return b"".join([*pieces, utf8[done:]]) if pieces else utf8


def _composed(piece: str) -> bytes:
    """Return NFKC without invisible characters, and without white space beyond ASCII."""
    return spaces_in_ascii(unicodedata.normalize("NFKC", _strip_invisible(piece)).encode(*_UTF8))


def _strip_invisible(piece: str) -> str:
    if piece.isascii():
        return piece
    utf8 = piece.encode(*_UTF8)
    if _has_tag(utf8):
        # A table of just the characters there are: looking one up never fails, which would cost the most.
        piece = piece.translate({ord(one): TAG_CHARACTERS.get(one, one) for one in set(piece)})
        utf8 = piece.encode(*_UTF8)
    if _has_hidden(utf8):
        piece = _HIDDEN.sub("", piece)
        utf8 = piece.encode(*_UTF8)
    return _piled_marks().sub(r"\1", piece) if _has_piled(utf8) else piece


def _map_homoglyphs(utf8: bytes) -> bytes:
    if utf8.isascii():
        return utf8
    there = beyond_ascii(utf8)
    if not there.isdisjoint(map(chr, STYLED)):
        utf8 = _translate_runs(_FANCY, _fancy_runs(), STYLED, utf8)
    if there.isdisjoint(_LOOKALIKE):
        return utf8
    genuine = not there.isdisjoint(_GENUINE)
    if genuine and not _has_mixed(utf8):
        return utf8
    if genuine:
        return _translate_runs(_MIXED, _mixed_runs(), HOMOGLYPHS, utf8)
    return _translate_all(_ALIKE, HOMOGLYPHS, utf8)


def _translate_runs(pattern: re.Pattern[str], same: re2._Regexp, table: Mapping[int, str | int], utf8: bytes) -> bytes:
    """Translate the matches of a pattern; `same` matches the same, and is ten times as fast for rare matches."""
    pieces, done, left = [], 0, len(utf8) // _BYTES_A_RUN
    for run in same.finditer(utf8):
        if left < 0:
            return _translate_all(pattern, table, utf8)
        pieces += [utf8[done : run.start()], run[0].decode(*_UTF8).translate(table).encode(*_UTF8)]
        done, left = run.end(), left - 1
    return b"".join([*pieces, utf8[done:]])


def _translate_all(pattern: re.Pattern[str], table: Mapping[int, str | int], utf8: bytes) -> bytes:
    return pattern.sub(lambda run: run[0].translate(table), utf8.decode(*_UTF8)).encode(*_UTF8)


@functools.lru_cache(maxsize=4096)
def _combines_with_previous(character: str) -> bool:
    """Tell whether a character may become one with the character before it."""
    first = unicodedata.normalize("NFKD", character)[0]
    return unicodedata.combining(first) > 0 or first in _second_halves()


@functools.lru_cache(maxsize=4096)
def _begins_blank(character: str) -> bool:
    """Tell whether a character becomes a space and more, as spacing accents do: a space before it is one with that."""
    return unicodedata.normalize("NFKC", character)[0].isspace()


def _stands_alone(character: str) -> bool:
    if character.isascii():
        return not character.isspace()
    return not (_GAP.match(character) or _combines_with_previous(character) or _begins_blank(character))


def _is_even(piece: str) -> bool:
    """Tell whether every character becomes one by itself; may say no where each does."""
    if _UNEVEN.search(piece) or len(piece.casefold()) > len(piece):
        return False
    return piece.isascii() or not has_unsteady(replace_fixed_forms(piece.encode(*_UTF8)))


def _map_offsets(raw: str, start: int, end: int) -> tuple[list[int], list[int]]:
    """Cut `raw[start:end]` where each piece folds alone; return where pieces begin, folded and raw, and the ends."""
    piece = raw[start:end]
    if _is_even(piece):
        return list(range(end - start + 1)), list(range(start, end + 1))
    if piece.isascii():
        places = [*(piece.start() for piece in _ASCII_PIECE.finditer(raw, start, end)), end]
        return list(range(len(places))), places
    cuts = [start]
    in_gap, blank = bool(_GAP.match(raw[start])) if start < end else False, False
    for at in range(start, end):
        character = raw[at]
        if _GAP.match(character):
            if not in_gap:
                cuts.append(at)
                in_gap, blank = True, False
            blank = blank or not _NOT_BLANK.match(character)
        elif not character.isascii() and _combines_with_previous(character):
            # A mark behind something invisible still sits on the letter before that.
            if in_gap and not blank and len(cuts) > 1:
                cuts.pop()
                in_gap = False
        elif blank and in_gap and not character.isascii() and _begins_blank(character):
            in_gap = False
        else:
            cuts.append(at)
            in_gap = False
    raw_cuts = [*dict.fromkeys(cuts), end]
    folded = [0]
    for first, last in pairwise(raw_cuts):
        folded.append(folded[-1] + len(_normalize_except_lookalikes(raw[first:last])))
    return folded, raw_cuts


# ASCII white space (`str.isspace`), and beyond ASCII the white space that NFKC leaves, in UTF-8.
_TO_SPACES = bytes(32 if chr(code).isascii() and chr(code).isspace() else code for code in range(256))
_BEYOND_ASCII = tuple(chr(code).encode() for code in (0x85, 0x1680, 0x2028, 0x2029))
# From one pair of spaces in so many bytes on, words are fewer than pieces between pairs.
_OFTEN = 12


def spaces_in_ascii(utf8: bytes) -> bytes:
    """Return a text that NFKC has composed with no other white space than ASCII's."""
    if not utf8.isascii():
        for blank in _BEYOND_ASCII:
            utf8 = utf8.replace(blank, b" ")
    return utf8


def collapse_whitespace(utf8: bytes) -> bytes:
    """Return a text that has no other white space than ASCII's with every run of it as one space."""
    spaced = utf8.translate(_TO_SPACES)
    pairs = spaced.count(b"  ")
    if not pairs:
        return spaced
    if pairs * _OFTEN > len(spaced):
        joined = b" ".join(spaced.split())
        if not joined:
            return b" "
        return b" " * (spaced[0] == 32) + joined + b" " * (spaced[-1] == 32)
    first, *rest = spaced.split(b"  ")
    joined = b" ".join([first, *filter(None, map(bytes.lstrip, rest))])
    return joined + b" " * (spaced[-1] == 32 and not joined.endswith(b" "))
