"""Passages of a document and what the document model counts in them: words, pairs of words, meanings, and where they
stand.

Knows words of many languages and what they mean (the table beside this file). Must never know a weight, a rule, or who
speaks. A passage is a sentence, or a part of one that is long. What it means is read in one language, that of most of
its words: "die" is an article in one and a wish in another.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, islice, pairwise
from pathlib import Path
from typing import NamedTuple

from apps.guardrails.text.normalization import normalized_forms

# Words of a passage at most: what has no end is cut. A long run of letters is several.
LONGEST = 40
_LONG_WORD, _A_WORD = 16, 6
_TABLE = Path(__file__).with_name("document_concepts.toml")
# Marks that sit on letters are parts of words in the scripts of South Asia and Thailand.
_LETTER = r"(?:[^\W_]|[\u0300-\u036f\u064b-\u0655\u0900-\u0963\u0966-\u0dff\u0e00-\u0e7f])"
_TOKEN = re.compile(rf"{_LETTER}+(?:['\u2019-]{_LETTER}+)*|[^\w\s]")
# What ends a passage; a stop only where a blank, a quotation mark or a script without blanks follows.
_ENDS = re.compile(r"[|<>{}\[\]#\u3002\u0964\u061f]|[.!?;](?=[ \"')\u00bb]|[^\x00-\x7f])")
# A passage of so few characters has no more words than one may have.
_SHORT = 40
# Scripts without blanks: their words are looked for within runs of letters.
_RUN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]{2,}")
_STEM = 5
# Meanings that are about who reads and what is answered: where a document has them elsewhere too, it is about models.
_ABOUT_MODELS = frozenset({"ai", "agent", "answer", "rules", "system", "summary"})
_MUCH = 0.15
# Meanings that are about who reads.
_READERS = frozenset({"ai", "agent"})
# Meanings of a passage that are looked at two by two.
_MOST_CONCEPTS = 14


# Languages, each with a meaning.
_Meanings = tuple[tuple[str, str], ...]


class Passage(NamedTuple):
    """A part of a normalized text, from `start` to `end`, and what counts in it: nothing if no word means anything."""

    start: int
    end: int
    language: str
    features: tuple[str, ...]


class _Concepts(NamedTuple):
    """Meanings by word or two joined by `_`, and by the beginnings of words."""

    words: dict[str, _Meanings]
    beginnings: dict[str, _Meanings]
    # Words that mean something together with the one behind them.
    first_words: frozenset[str]
    longest: int
    within: re.Pattern[str]


def passages_of(normalized: str, most: int | None = None) -> list[Passage]:
    """Return the passages of a normalized text, from left to right; `most` of them at most."""
    parts = [_Part.read(*place) for place in islice(_split(normalized), most)]
    languages = Counter(part.language for part in parts if part.language)
    ours = languages.most_common(1)[0][0] if languages else ""
    speaking = sum(bool(part.concepts & _ABOUT_MODELS) for part in parts)
    return [part.passage(ours, speaking, len(parts)) for part in parts]


def _split(normalized: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield where a passage begins and ends, and its words and signs."""
    start = 0
    for end in (*(sign.end() for sign in _ENDS.finditer(normalized)), len(normalized)):
        words = _TOKEN.findall(normalized, start, end)
        if len(words) > 1 and end - start <= _SHORT:
            yield start, end, words
        elif len(words) > 1 or (words and end == len(normalized)):
            yield from _cut(normalized, start, end)
        elif end < len(normalized):
            continue  # a sign alone begins what follows
        start = end


def _cut(normalized: str, start: int, end: int) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the parts of a passage that may have more words than one may."""
    words: list[str] = []
    left = LONGEST
    for token in _TOKEN.finditer(normalized, start, end):
        words.append(token[0])
        size = len(token[0])
        left -= 1 if size <= _LONG_WORD else size // _A_WORD
        if left <= 0:
            yield start, token.end(), words
            start, words, left = token.end(), [], LONGEST
    if words:
        yield start, end, words


class _Part(NamedTuple):
    start: int
    end: int
    language: str
    words: Sequence[str]
    # What the words mean, in their order.
    meanings: Sequence[str]
    concepts: frozenset[str]

    @classmethod
    def read(cls, start: int, end: int, words: Sequence[str]) -> _Part:
        """Return a part of a text with what its words mean in the language of most of them."""
        found = _meanings_of(words)
        if not found:
            return cls(start, end, "", words, (), frozenset())
        votes: dict[str, int] = {}
        for place in found:
            for language in {one[0] for one in place} if len(place) > 1 else (place[0][0],):
                votes[language] = votes.get(language, 0) + 1
        language = max(votes, key=lambda name: (votes[name], name == "en", name))
        meanings = [meaning for place in found for tongue, meaning in place if tongue == language]
        return cls(start, end, language, words, meanings, frozenset(meanings))

    def passage(self, ours: str, speaking: int, count: int) -> Passage:
        """Return the passage; `ours` is the document's language, `speaking` how many of its parts are about models."""
        return Passage(self.start, self.end, self.language, tuple(self._features(ours, speaking, count)))

    def _features(self, ours: str, speaking: int, count: int) -> Iterator[str]:
        if not self.meanings:
            return
        words = dict.fromkeys(self.words)
        yield from words
        yield from dict.fromkeys(map(" ".join, pairwise(self.words)))
        yield from dict.fromkeys(f"{word[:_STEM]}~" for word in words if len(word) > _STEM + 1)
        for run in dict.fromkeys(run for word in words for run in _RUN.findall(word)):
            yield from dict.fromkeys(map("".join, pairwise(run)))
        meanings, concepts = self.meanings, sorted(self.concepts)
        yield from (f"@{one}" for one in concepts)
        yield from dict.fromkeys(f"@{one}>{other}" for one, other in pairwise(meanings))
        yield from dict.fromkeys(f"@{one}>>{other}" for one, other in zip(meanings, meanings[2:], strict=False))
        yield from (f"@{one}&{other}" for one, other in combinations(concepts[:_MOST_CONCEPTS], 2))
        yield f"^{meanings[0]}"
        mine = bool(self.concepts & _ABOUT_MODELS)
        elsewhere = (speaking - mine) / max(1, count - 1)
        much = "much" if elsewhere > _MUCH else "some" if elsewhere else "none"
        if mine:
            yield f"models:{much}"
        if self.concepts & _READERS:
            yield f"readers:{much}"
        if ours != self.language:
            yield "language:other"


def _meanings_of(words: Sequence[str]) -> list[_Meanings]:
    """Return what words mean, each with the word behind it where they mean something together."""
    first_words, together = _concepts().first_words, _concepts().words
    found: list[_Meanings] = []
    for place, word in enumerate(words):
        if word in first_words and (both := together.get("_".join(words[place : place + 2]))):
            found.append(both)
        elif alone := _meanings_alone(word):
            found += alone
    return found


@functools.lru_cache(maxsize=20_000)
def _meanings_alone(word: str) -> tuple[_Meanings, ...]:
    """Return what a word may mean: for each place in it that means something, its languages and meanings."""
    concepts = _concepts()
    if _RUN.search(word):
        return tuple(concepts.words[found] for found in concepts.within.findall(word))
    known = concepts.words.get(word)
    if known is not None:
        return (known,)
    for size in range(min(len(word), concepts.longest), 1, -1):
        known = concepts.beginnings.get(word[:size])
        if known is not None:
            return (known,)
    return ()


@functools.cache
def _concepts() -> _Concepts:
    words: defaultdict[str, dict[tuple[str, str], None]] = defaultdict(dict)
    beginnings: defaultdict[str, dict[tuple[str, str], None]] = defaultdict(dict)
    for language, meanings in tomllib.loads(_TABLE.read_text(encoding="utf-8")).items():
        for meaning, listed in meanings.items():
            for word in listed.split():
                for form in sorted(normalized_forms(word.removesuffix("~"))):
                    (beginnings if word.endswith("~") else words)[form][language, meaning] = None
    for form, of in beginnings.items():
        words[form].update(of)
    within = sorted((form for form in words if _RUN.fullmatch(form)), key=lambda form: (-len(form), form))
    return _Concepts(
        {form: tuple(of) for form, of in words.items()},
        {form: tuple(of) for form, of in beginnings.items()},
        frozenset(form.split("_")[0] for form in words if "_" in form),
        max(map(len, beginnings)),
        re.compile("|".join(map(re.escape, within))),
    )
