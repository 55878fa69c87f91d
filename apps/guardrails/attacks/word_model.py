"""Word model: how much a text reads like an attack, by its words and pairs of words (a linear model).

Knows the weights beside this file, which `python -m bench.attack_model` makes. Must never know a rule, or who speaks.
A long text is read in windows, of which at most `MOST_WINDOWS` from its beginning, and the one at its end.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

# Characters of a normalized text that are read at one go: in more, an attack would be lost.
WINDOW = 700
MOST_WINDOWS = 6
# Weights are kept as whole thousandths.
SCALE = 1000
# One character of what is written without spaces, a word with the marks of India's scripts, or a sign.
_UNSPACED = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_UNSPACED}]|(?:[^\W_{_UNSPACED}]|[\u0900-\u0dff])+|[^\w\s]")
_PATH = Path(__file__).with_suffix(".tsv")
# Digits that stand for letters, read so in words that have letters too ("1gn0re").
_LETTERS = str.maketrans("01345789", "oieastbg")
# Letters that words of one stem share; what follows is their form.
_BEGINNING = 5
# Stands for the word between two.
_BETWEEN = " _ "
_NUMBERS = ("<bias>", "<threshold>", "<guarded>")


Pair = tuple[int, int]
# Orders that replace what a program was told or get it out, and frames in which it would have no limits.
KINDS = ("orders", "frames")


class WordModel(NamedTuple):
    """For each of `KINDS`: weights in thousandths; a text whose score is above the threshold reads like an attack.

    `guarded` is the threshold where a program keeps something from its users: attacks are likelier there.
    """

    weights: Mapping[str, Pair]
    biases: Pair
    thresholds: Pair = (0, 0)
    guarded: Pair = (0, 0)

    def scores(self, normalized: str) -> tuple[float, float]:
        """Return the scores of a normalized text, in thousandths; 0 for a text without words."""
        return self.scores_of(features_of(normalized))

    def scores_of(self, features: Collection[str]) -> tuple[float, float]:
        """Return the scores of a text with these features."""
        if not features:
            return 0.0, 0.0
        found = list(filter(None, map(self.weights.get, features)))
        share = 1 / math.sqrt(len(features))
        orders, frames = (sum(weight[kind] for weight in found) * share for kind in (0, 1))
        return self.biases[0] + orders, self.biases[1] + frames

    def is_attack(self, normalized: str, *, guarded: bool = False) -> bool:
        """Tell whether a normalized text reads like an attack, in general or where something is kept from users."""
        least = self.guarded if guarded else self.thresholds
        return any(map(operator.gt, self.scores(normalized), least))

    def written(self) -> str:
        """Return the model as its file holds it."""
        numbers = zip(_NUMBERS, (self.biases, self.thresholds, self.guarded), strict=True)
        return "".join(
            f"{name}\t{orders}\t{frames}\n" for name, (orders, frames) in (*numbers, *sorted(self.weights.items()))
        )


def windows_of(size: int) -> list[tuple[int, int]]:
    """Return the windows in which a normalized text of this size is read."""
    if size <= WINDOW:
        return [(0, size)]
    starts = range(0, min(size - WINDOW // 2, MOST_WINDOWS * WINDOW), WINDOW)
    return [*((start, min(size, start + WINDOW)) for start in starts), (size - WINDOW, size)]


def features_of(normalized: str) -> set[str]:
    """Return the words and signs of a text, their beginnings, each two that follow, and each two with one between."""
    words = [
        word if word.isalpha() or word.isdecimal() else word.translate(_LETTERS) for word in _WORD.findall(normalized)
    ]
    beginnings = {word[:_BEGINNING] + "*" for word in words if len(word) > _BEGINNING and word.isalpha()}
    pairs = map(" ".join, pairwise(words))
    return {*words, *beginnings, *pairs, *map(_BETWEEN.join, zip(words, words[2:], strict=False))}


@functools.cache
def word_model() -> WordModel:
    """Return the model of the product."""
    lines = (line.split("\t") for line in _PATH.read_text(encoding="utf-8").splitlines())
    weights = {feature: (int(orders), int(frames)) for feature, orders, frames in lines}
    biases, thresholds, guarded = map(weights.pop, _NUMBERS)
    return WordModel(weights, biases, thresholds, guarded)
