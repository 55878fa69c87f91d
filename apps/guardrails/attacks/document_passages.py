"""Passages of a document and what the document model counts in them: words, pairs of words, meanings, and where they
stand.

Knows what a passage is, and what counts. Must never know a weight, a rule, or who speaks. A passage is a sentence, or a
part of one that is long. What it means is read in one language, that of most of its words.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, combinations, groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

from apps.guardrails.attacks.document_meanings import RUN, entries_in, language_of, meanings_of

# Words of a passage at most: what has no end is cut. A long run of letters is several.
LONGEST = 40
_LONG_WORD, _A_WORD = 16, 6
# Where characters and words, each as `_A_WORD` of them, are fewer, there cannot be too many.
_SHORT = LONGEST * _A_WORD
# Marks that sit on letters are parts of words in the scripts of South Asia and Thailand. An underscore is none: a blank
# takes its place before words are looked for.
_LETTER = r"[\w\u0300-\u036f\u064b-\u0655\u0900-\u0963\u0966-\u0dff\u0e00-\u0e7f]"
_TOKEN = re.compile(rf"{_LETTER}+(?:['\u2019-]{_LETTER}+)*|[^\w\s]")
_ASCII_TOKEN = re.compile(r"[a-zA-Z0-9]+(?:['-][a-zA-Z0-9]+)*|[^\w\s]")
# What ends a passage; a stop only where a blank, a quotation mark or a script without blanks follows.
_ALWAYS = r"|<>{}\[\]#\u3002\u0964\u061f"
_ENDS = re.compile(rf"[{_ALWAYS}.!?;](?:(?<=[{_ALWAYS}])|(?=[ \"')\u00bb]|[^\x00-\x7f]))")
# Letters of a word at most that are its beginning.
STEM = 5
# Meanings that are about who reads and what is answered: where a document has them elsewhere too, it is about models.
_ABOUT_MODELS = frozenset({"ai", "agent", "answer", "rules", "system", "summary"})
_MUCH = 0.15
# Meanings that are about who reads.
_READERS = frozenset({"ai", "agent"})
# Meanings of a passage that are looked at two by two.
MOST_CONCEPTS = 14


class Passage(NamedTuple):
    """A part of a normalized text, from `start` to `end`, and what counts in it: nothing if no word means anything."""

    start: int
    end: int
    language: str
    features: tuple[str, ...]


# Where a sentence begins and ends, and the words and signs of a passage: of the whole sentence, or, where that was cut,
# of a part of it, which is followed by the next.
Part = tuple[int, int, list[str]]


class Kind(NamedTuple):
    """What matters of a passage to the others: its language, whether it is about models, and about who reads."""

    language: str
    models: bool
    readers: bool


class Reading(NamedTuple):
    """What the words of a passage mean, in their order, and each meaning once, by name."""

    kind: Kind
    meanings: tuple[str, ...]
    concepts: tuple[str, ...]


class Surroundings(NamedTuple):
    """What matters of a document to a passage: the language of most passages, and how many are about models."""

    language: str
    models: int
    passages: int

    @classmethod
    def of(cls, kinds: Sequence[Kind], passages: int) -> Surroundings:
        """Return what matters of so many passages; `kinds` are those of the ones that mean something."""
        languages = Counter(kind.language for kind in kinds).most_common(1)
        return cls(languages[0][0] if languages else "", sum(kind.models for kind in kinds), passages)

    def features_of(self, kind: Kind) -> tuple[str, ...]:
        """Return what counts in a passage of this kind for it stands here."""
        elsewhere = (self.models - kind.models) / max(1, self.passages - 1)
        much = "much" if elsewhere > _MUCH else "some" if elsewhere else "none"
        found = (
            f"models:{much}" if kind.models else "",
            f"readers:{much}" if kind.readers else "",
            "language:other" if kind.language != self.language else "",
        )
        return tuple(filter(None, found))


def passages_of(normalized: str, most: int | None = None) -> list[Passage]:
    """Return the passages of a normalized text, from left to right; `most` of them at most."""
    parts = split_passages(normalized, most)
    readings = [read_meanings(entries) if (entries := entries_in(part[2])) else None for part in parts]
    around = Surroundings.of([reading.kind for reading in readings if reading is not None], len(parts))
    return [
        Passage(*place, "", ())
        if reading is None
        else Passage(*place, reading.kind.language, tuple(_features_of(part[2], reading, around)))
        for part, place, reading in zip(parts, places_of(normalized, parts), readings, strict=True)
    ]


def split_passages(normalized: str, most: int | None = None) -> list[Part]:
    """Return the passages of a normalized text, from left to right; `most` of them at most."""
    plain, size = _plain(normalized), len(normalized)
    ends = [sign.end() for sign in _ENDS.finditer(normalized)]
    ends.append(size)
    pieces = map(plain.__getitem__, map(slice, chain((0,), ends), ends))
    found = map((_ASCII_TOKEN if plain.isascii() else _TOKEN).findall, pieces)
    parts: list[Part] = []
    start = 0
    before: list[str] = []
    for end, words in zip(ends, found, strict=True):
        if before:
            words = before + words
        count = len(words)
        if count < 2 and end < size:
            before = words  # a sign alone begins what follows
            continue
        if count * _A_WORD + end - start < _SHORT or _size_of(words) < LONGEST:
            parts.append((start, end, words))
        else:
            parts += ((start, end, cut) for cut in _cut(words))
        start, before = end, []
    if parts and not parts[-1][2]:
        parts.pop()
    return parts[:most]


def places_of(normalized: str, parts: Sequence[Part]) -> list[tuple[int, int]]:
    """Return where passages of a text begin and end: those of a sentence that was cut, where their words do."""
    plain = _plain(normalized)
    places: list[tuple[int, int]] = []
    for (at, end), of in groupby(parts, key=itemgetter(0, 1)):
        start = at
        for _, _, words in of:
            for word in words:
                at = plain.find(word, at) + len(word)
            places.append((start, at))
            start = at
        if _size_of(words) < LONGEST:
            places[-1] = (places[-1][0], end)
    return places


def _plain(normalized: str) -> str:
    return normalized.replace("_", " ")


def _size_of(words: Sequence[str]) -> int:
    if max(map(len, words), default=0) <= _LONG_WORD:
        return len(words)
    return sum(1 if len(word) <= _LONG_WORD else len(word) // _A_WORD for word in words)


def _cut(words: Sequence[str]) -> Iterator[list[str]]:
    """Yield the parts of a passage that has more words than one may."""
    part: list[str] = []
    left = LONGEST
    for word in words:
        part.append(word)
        left -= 1 if len(word) <= _LONG_WORD else len(word) // _A_WORD
        if left <= 0:
            yield part
            part, left = [], LONGEST
    if part:
        yield part


def read_meanings(entries: Sequence[int]) -> Reading | None:
    """Return what words mean that are these entries of the table, of which there is one at least; None for nothing."""
    language = language_of(entries)
    meanings = meanings_of(entries, language)
    if not meanings:
        return None
    concepts = frozenset(meanings)
    kind = Kind(language, not concepts.isdisjoint(_ABOUT_MODELS), not concepts.isdisjoint(_READERS))
    return Reading(kind, tuple(meanings), tuple(sorted(concepts)))


def runs_in(words: Iterable[str]) -> Iterator[str]:
    """Yield each run of letters that is written without blanks, once."""
    yield from dict.fromkeys(run for word in words if not word.isascii() for run in RUN.findall(word))


def _features_of(words: Sequence[str], reading: Reading, around: Surroundings) -> Iterator[str]:
    """Yield what counts in a passage. `document_scores` adds up what it weighs, and says the same in other words."""
    different = dict.fromkeys(words)
    yield from different
    yield from dict.fromkeys(map(" ".join, pairwise(words)))
    yield from dict.fromkeys(f"{word[:STEM]}~" for word in different if len(word) > STEM + 1)
    for run in runs_in(different):
        yield from dict.fromkeys(map("".join, pairwise(run)))
    _, meanings, concepts = reading
    yield from (f"@{one}" for one in concepts)
    yield from dict.fromkeys(f"@{one}>{other}" for one, other in pairwise(meanings))
    yield from dict.fromkeys(f"@{one}>>{other}" for one, other in zip(meanings, meanings[2:], strict=False))
    yield from (f"@{one}&{other}" for one, other in combinations(concepts[:MOST_CONCEPTS], 2))
    yield f"^{meanings[0]}"
    yield from around.features_of(reading.kind)
