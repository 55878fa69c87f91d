"""A text without what hides a word: one case, one form of every letter, nothing invisible, single spaces.

Knows Unicode. Must never know what is looked for. In order: invisible characters go (tag characters become the ASCII
they spell, for models read them), NFKC, case folding, look-alike letters become Latin, white space becomes one space.

A Cyrillic or Greek letter is a look-alike only in company that gives it away: joined to a Latin letter, or in a text
without one letter of those alphabets that looks like no other. So Russian and Greek stay what they are.

Folding is linear and costs no Python work a character. The way back is worked out in blocks, only where it is asked.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable
from itertools import pairwise

import re2

_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e001f\U000e007f-\U000e0fff"
)
_HIDDEN = re.compile(f"[{_INVISIBLE}]+")
TAG_CHARACTERS = {chr(code): chr(code - 0xE0000) for code in range(0xE0020, 0xE007F)}
# White space and what is not there; the space of the tag characters is one too.
_GAP = re.compile(rf"[\s{_INVISIBLE}\U000e0020]")
_NOT_BLANK = re.compile(f"[{_INVISIBLE}]")
_ASCII_PIECE = re.compile(r"\s+|\S")
_HOMOGLYPHS = str.maketrans(
    # Cyrillic, Greek, Armenian; also letters that only look alike in capitals, which folding has made small.
    "авеѕіјкмнорстухһԁԛԝѵӏ" + "αβεζηικμνορτυχωγϲϳ" + "օսոհցզյ",
    "abesijkmhopctyxhdqwvl" + "abeznikuvoptuxwycj" + "ounhgqj",
)
_LOOKALIKE = "".join(map(chr, _HOMOGLYPHS))
# Forms of Latin letters that NFKC leaves alone, and that no language writes with.
_STYLED = str.maketrans(
    "ıɑɡɩᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘꞯʀꜱᴛᴜᴠᴡʏᴢ" + "".join(map(chr, (*range(0x1F150, 0x1F16A), *range(0x1F170, 0x1F18A)))),
    "iagiabcdefghijklmnopqrstuvwyz" + "abcdefghijklmnopqrstuvwxyz" * 2,
)
_ALIKE = re.compile(f"[{_LOOKALIKE}]+")
_FANCY = re.compile(f"[{''.join(map(chr, _STYLED))}]+")
# Letters of those alphabets that are taken for no Latin ones.
_GENUINE = [chr(code) for code in (*range(0x370, 0x530), *range(0x531, 0x588)) if code not in _HOMOGLYPHS]
_MIXED = re.compile(f"(?<![a-z{_LOOKALIKE}])(?:[a-z]++[{_LOOKALIKE}]|[{_LOOKALIKE}]++[a-z])[a-z{_LOOKALIKE}]*+")
# Marks that pile up on one letter: normalizing takes the square of their number, and nobody writes more (UAX 15, 13).
_MOST_MARKS = 30
_COMBINING = [chr(code) for code in range(0x300, 0x1E950) if unicodedata.combining(chr(code))]
# The second halves of composed characters; with combining marks, what belongs to the character before it.
_SECONDS = {
    chr(int(halves[1], 16))
    for halves in (unicodedata.decomposition(chr(code)).split() for code in range(0xC0, 0x17000))
    if len(halves) == 2 and not halves[0].startswith("<")
} | {chr(code) for code in (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))}
_BLOCK = 512


def _class_of(characters: list[str]) -> str:
    ranges: list[list[int]] = []
    for code in map(ord, characters):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges) + "]"


_PILED = re.compile(f"({_class_of(_COMBINING)}{{{_MOST_MARKS}}}){_class_of(_COMBINING)}+")


def _presence_test(pattern: str) -> Callable[[str], bool]:
    """Return what tells whether a text has any of it, some twenty times faster than `re` does."""
    options = re2.Options()
    options.log_errors = False
    search = re2.compile(pattern, options).search
    return lambda piece: search(piece.encode("utf-8", "surrogatepass")) is not None


_has_piled = _presence_test(rf"\pM{{{_MOST_MARKS + 1}}}")
_has_hidden = _presence_test(f"[{_INVISIBLE}]")
_has_tag = _presence_test("[\U000e0020-\U000e007e]")
_has_fancy = _presence_test(_class_of(sorted(map(chr, _STYLED))))
_has_alike = _presence_test(_class_of(sorted(_LOOKALIKE)))
_has_genuine = _presence_test(_class_of(_GENUINE))
_has_mixed = _presence_test(f"[a-z][{_LOOKALIKE}]|[{_LOOKALIKE}][a-z]")


class NormalizedText:
    """A folded text, and the way back to what it was made of."""

    def __init__(self, raw: str) -> None:
        self._raw = raw
        self.text = normalize(raw)

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
            starts.append(starts[-1] + len(_normalize_except_lookalikes(self._raw[start:end])))
        return starts[:-1]


def normalize(raw: str) -> str:
    """Return the folded text."""
    if raw.isascii():
        return _collapse_whitespace(raw.lower())
    return _map_homoglyphs(_normalize_except_lookalikes(raw))


def normalized_forms(word: str) -> set[str]:
    """Return every form that a word can take in a folded text: whether its look-alikes count depends on the company."""
    return {_map_homoglyphs(_normalize_except_lookalikes(word)), _normalize_except_lookalikes(word)}


def normalize_keeping_case(raw: str) -> str:
    """Return the text folded but for its case: what tells "US" from "us" wherever something hides in it."""
    return _collapse_whitespace(unicodedata.normalize("NFKC", _strip_invisible(raw)))


def _normalize_except_lookalikes(piece: str) -> str:
    """Fold all but look-alikes, which change no length."""
    return _collapse_whitespace(unicodedata.normalize("NFKC", _strip_invisible(piece)).casefold())


def _strip_invisible(piece: str) -> str:
    if piece.isascii():
        return piece
    if _has_tag(piece):
        # A table of just the characters there are: looking one up never fails, which would cost the most.
        piece = piece.translate({ord(one): TAG_CHARACTERS.get(one, one) for one in set(piece)})
    if _has_hidden(piece):
        piece = _HIDDEN.sub("", piece)
    return _PILED.sub(r"\1", piece) if _has_piled(piece) else piece


def _collapse_whitespace(piece: str) -> str:
    joined = " ".join(piece.split())
    if not joined:
        return " " if piece else ""
    return f"{' ' * piece[0].isspace()}{joined}{' ' * piece[-1].isspace()}"


def _map_homoglyphs(piece: str) -> str:
    if piece.isascii():
        return piece
    if _has_fancy(piece):
        piece = _FANCY.sub(lambda run: run[0].translate(_STYLED), piece)
    if not _has_alike(piece):
        return piece
    genuine = _has_genuine(piece)
    if genuine and not _has_mixed(piece):
        return piece
    return (_MIXED if genuine else _ALIKE).sub(lambda run: run[0].translate(_HOMOGLYPHS), piece)


@functools.lru_cache(maxsize=8192)
def _combines_with_previous(character: str) -> bool:
    """Tell whether a character may become one with the character before it."""
    first = unicodedata.normalize("NFKD", character)[0]
    return unicodedata.combining(first) > 0 or first in _SECONDS


@functools.lru_cache(maxsize=8192)
def _begins_blank(character: str) -> bool:
    """Tell whether a character becomes a space and more, as spacing accents do: a space before it is one with that."""
    return unicodedata.normalize("NFKC", character)[0].isspace()


def _stands_alone(character: str) -> bool:
    if character.isascii():
        return not character.isspace()
    return not (_GAP.match(character) or _combines_with_previous(character) or _begins_blank(character))


def _map_offsets(raw: str, start: int, end: int) -> tuple[list[int], list[int]]:
    """Cut `raw[start:end]` where each piece folds alone; return where pieces begin, folded and raw, and the ends."""
    if raw.isascii() or raw[start:end].isascii():
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
