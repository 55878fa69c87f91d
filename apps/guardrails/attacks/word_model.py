"""Word model: how much a text reads like an attack, by its words and pairs of words (a linear model).

Knows the weights beside this file, which `python -m bench.attack_model` makes. Must never know a rule, or who speaks.
The time is that of one look at each word of `LONGEST` characters, however long the text is.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

# Characters of a normalized text that are read at one go: more is another text.
LONGEST = 1500
# Weights are kept as whole thousandths.
SCALE = 1000
# One character of what is written without spaces, a word with the marks of India's scripts, or a sign.
_UNSPACED = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_UNSPACED}]|(?:[^\W_{_UNSPACED}]|[\u0900-\u0dff])+|[^\w\s]")
_PATH = Path(__file__).with_suffix(".tsv")
# Digits that stand for letters, read so in words that have letters too ("1gn0re").
_LETTERS = str.maketrans("01345789", "oieastbg")
# Stands for the word between two.
_BETWEEN = " _ "
_BIAS, _THRESHOLD, _GUARDED = "<bias>", "<threshold>", "<guarded>"


class WordModel(NamedTuple):
    """Weights in thousandths; a text whose score is above the threshold reads like an attack.

    `guarded` is the threshold where a program keeps something from its users: attacks are likelier there.
    """

    weights: Mapping[str, int]
    bias: int
    threshold: int
    guarded: int = 0

    def score(self, normalized: str) -> float:
        """Return the score of a normalized text, in thousandths; 0 for a text without words."""
        features = features_of(normalized)
        if not features:
            return 0.0
        weight_of = self.weights.get
        return self.bias + sum(weight_of(feature, 0) for feature in features) / math.sqrt(len(features))

    def is_attack(self, normalized: str, *, guarded: bool = False) -> bool:
        """Tell whether a normalized text reads like an attack, in general or where something is kept from users."""
        return self.score(normalized) > (self.guarded if guarded else self.threshold)

    def written(self) -> str:
        """Return the model as its file holds it."""
        lines = [f"{_BIAS}\t{self.bias}", f"{_THRESHOLD}\t{self.threshold}", f"{_GUARDED}\t{self.guarded}"]
        lines += [f"{feature}\t{weight}" for feature, weight in sorted(self.weights.items()) if weight]
        return "\n".join(lines) + "\n"


def features_of(normalized: str) -> set[str]:
    """Return the words and signs of a text, each two that follow one another, and each two with one between them."""
    words = [
        word if word.isalpha() or word.isdecimal() else word.translate(_LETTERS) for word in _WORD.findall(normalized)
    ]
    return {*words, *map(" ".join, pairwise(words)), *map(_BETWEEN.join, zip(words, words[2:], strict=False))}


@functools.cache
def word_model() -> WordModel:
    """Return the model of the product."""
    lines = (line.split("\t") for line in _PATH.read_text(encoding="utf-8").splitlines())
    weights = {feature: int(weight) for feature, weight in lines}
    numbers = {"bias": _BIAS, "threshold": _THRESHOLD, "guarded": _GUARDED}
    return WordModel(weights, **{field: weights.pop(name) for field, name in numbers.items()})
