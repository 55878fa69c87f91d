"""Scores of the passages of a document by weights of what counts in them (`document_passages`), added up fast.

Knows weights. Must never know a threshold, a rule, or who speaks. A passage weighs what its features weigh, though none
is written out here. Most weigh far too little: at first only as much is added up as shows that (`ScoredText.bounds`),
and the rest where it may matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, combinations, pairwise
from sys import intern
from typing import NamedTuple

from apps.guardrails.attacks.document_meanings import WordMemo, entries_of_word, join_entries, mean_something
from apps.guardrails.attacks.document_passages import (
    MOST_CONCEPTS,
    STEM,
    Kind,
    Part,
    Surroundings,
    read_meanings,
    runs_in,
    split_passages,
)

# Meanings of so few words return often enough to be remembered.
_FEW, _READINGS_KEPT = 5, 20_000

_Pair = tuple[str, str]


class Worth(NamedTuple):
    """What a passage weighs, and how many features it has."""

    weight: int
    features: int


class _Meant(NamedTuple):
    """What the meanings of a passage weigh, and how many features they are."""

    kind: Kind
    weight: int
    features: int


NOTHING = Worth(0, 0)


class ScoredText(NamedTuple):
    """The passages of a text, and for each what it weighs at most."""

    parts: Sequence[Part]
    bounds: Sequence[int]
    around: Surroundings
    meant: Sequence[_Meant | None]


class PassageScorer:
    """Weights by kind of feature. Pairs are kept as pairs, so that nothing is joined to be looked up."""

    def __init__(self, weights: Iterable[tuple[str, int]]) -> None:
        """Take features with their weights."""
        # By feature: words and signs, what stands around a passage, and two letters of what is written without blanks.
        self._words: dict[str, int] = {}
        self._beginnings: dict[str, int] = {}
        self._pairs: dict[_Pair, int] = {}
        self._first: dict[str, int] = {}
        self._meanings: dict[str, int] = {}
        # Meanings by two: one and the next, one and the next but one, and any two.
        self._behind: dict[_Pair, int] = {}
        self._next_but_one: dict[_Pair, int] = {}
        self._together: dict[_Pair, int] = {}
        for feature, weight in weights:
            if " " in feature:
                one, two = feature.split(" ")
                # Each word is kept once, in however many pairs it is.
                self._pairs[intern(one), intern(two)] = weight
            elif feature[0] == "@" and feature != "@":
                self._take_meanings(feature[1:], weight)
            elif feature[0] == "^" and feature != "^":
                self._first[feature[1:]] = weight
            elif feature[-1] == "~" and feature != "~":
                self._beginnings[feature[:-1]] = weight
            else:
                self._words[intern(feature)] = weight
        self._positive_pairs = {pair: weight for pair, weight in self._pairs.items() if weight > 0}
        # Two letters of a run, of which a word may be made as well.
        self._positive_twos = {
            (word[0], word[1]): weight for word, weight in self._words.items() if weight > 0 and len(word) == 2
        }
        self._bounds = WordMemo(self._bound_of_word)
        self._known: dict[tuple[int, ...], _Meant] = {}

    def _take_meanings(self, feature: str, weight: int) -> None:
        for sign, weights in (("&", self._together), (">>", self._next_but_one), (">", self._behind)):
            one, found, two = feature.partition(sign)
            if found:
                weights[intern(one), intern(two)] = weight
                return
        self._meanings[feature] = weight

    def read(self, normalized: str, most: int) -> ScoredText:
        """Return the passages of a text, `most` of them at most, with what they weigh at most."""
        parts = split_passages(normalized, most)
        flatten, known = chain.from_iterable, self._known.get
        meant = [
            (known(entries) or self._meant_by(entries, part[2]))
            if (entries := tuple(flatten(map(entries_of_word, part[2]))))
            else None
            for part in parts
        ]
        around = Surroundings.of([one[0] for one in meant if one is not None], len(parts))
        extra: dict[Kind, int] = {}
        bound_of, pair_of = self._bounds.__getitem__, self._positive_pairs.get
        bounds = [0] * len(parts)
        for place, one in enumerate(meant):
            if one is not None:
                words, (kind, weight, _) = parts[place][2], one
                if kind not in extra:
                    extra[kind] = _total(map(self._words.get, around.features_of(kind)))
                pairs = sum(filter(None, map(pair_of, pairwise(words))))
                bounds[place] = weight + extra[kind] + pairs + sum(map(bound_of, set(words)))
        return ScoredText(parts, bounds, around, meant)

    def worth_of(self, text: ScoredText, place: int) -> Worth:
        """Return exactly what a passage of a text weighs, and how many features it has."""
        meant = text.meant[place]
        if meant is None:
            return NOTHING
        words = text.parts[place][2]
        different = set(words)
        beginnings = {word[:STEM] for word in different if len(word) > STEM + 1}
        pairs = set(pairwise(words))
        runs = [both for run in runs_in(different) for both in set(map("".join, pairwise(run)))]
        around = text.around.features_of(meant.kind)
        total = _total(map(self._words.get, chain(different, runs))) + _total(map(self._beginnings.get, beginnings))
        total += _total(map(self._pairs.get, pairs)) + _total(map(self._words.get, around)) + meant.weight
        return Worth(total, len(different) + len(beginnings) + len(pairs) + len(runs) + len(around) + meant.features)

    def _meant_by(self, entries: tuple[int, ...], words: Sequence[str]) -> _Meant | None:
        if not mean_something(entries):
            return None
        entries = join_entries(entries, words)
        reading = read_meanings(entries) if entries else None
        if reading is None:
            return None
        kind, meanings, concepts = reading
        behind, next_but_one = set(pairwise(meanings)), set(zip(meanings, meanings[2:], strict=False))
        two_by_two = concepts[:MOST_CONCEPTS]
        total = _total(map(self._meanings.get, concepts)) + self._first.get(meanings[0], 0)
        total += _total(map(self._behind.get, behind)) + _total(map(self._next_but_one.get, next_but_one))
        total += _total(map(self._together.get, combinations(two_by_two, 2)))
        twos = len(behind) + len(next_but_one) + len(two_by_two) * (len(two_by_two) - 1) // 2
        meant = _Meant(kind, total, len(concepts) + twos + 1)
        if len(entries) <= _FEW:
            if len(self._known) >= _READINGS_KEPT:
                self._known.clear()
            self._known[entries] = meant
        return meant

    def _bound_of_word(self, word: str) -> int:
        """Return what a word adds at most, with its beginning and what is written in it without blanks."""
        bound = self._words.get(word, 0)
        if len(word) > STEM + 1:
            bound += max(0, self._beginnings.get(word[:STEM], 0))
        if not word.isascii():
            bound += _total(map(self._positive_twos.get, pairwise(word)))
        return bound


def _total(weights: Iterable[int | None]) -> int:
    return sum(filter(None, weights))
