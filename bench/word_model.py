"""Word model in the form in which it is trained and compared: its weights by feature, with each feature written out."""
# alone: training and the tests of the form that the product searches with share it

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import NamedTuple

from apps.guardrails.attacks.word_model import BEGINNING, BETWEEN, AttackFinder, Pair, read_weights, words_of

# Weights are kept as whole thousandths.
SCALE = 1000
_NUMBERS = ("<bias>", "<threshold>", "<guarded>")
# Orders that replace or reveal a program's instructions, and frames in which it would have no limits.
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

    def finder(self) -> AttackFinder:
        """Return what finds attacks with this model in the product."""
        return AttackFinder(self.weights.items(), self.biases, self.thresholds, self.guarded)

    def written(self) -> str:
        """Return the model as its file holds it."""
        numbers = zip(_NUMBERS, (self.biases, self.thresholds, self.guarded), strict=True)
        return "".join(
            f"{name}\t{orders}\t{frames}\n" for name, (orders, frames) in (*numbers, *sorted(self.weights.items()))
        )


def features_of(normalized: str) -> set[str]:
    """Return the words and signs of a text, their beginnings, each two that follow, and each two with one between."""
    words = words_of(normalized)
    beginnings = {word[:BEGINNING] + "*" for word in words if len(word) > BEGINNING and word.isalpha()}
    pairs = map(" ".join, pairwise(words))
    return {*words, *beginnings, *pairs, *map(BETWEEN.join, zip(words, words[2:], strict=False))}


def read_model() -> WordModel:
    """Return the model of the product as its file holds it."""
    numbers, weights = read_weights()
    return WordModel(dict(weights), *numbers)
