"""Word model: how much a text reads like an attack, by its words and pairs of words (a linear model).

`python -m bench.attack_model` makes the weights beside this file.
A long text is read in windows, of which at most `MAX_WINDOWS` from its beginning, and the one at its end.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from sys import intern

# Characters of a normalized text that are read at one go: in more, an attack would be lost.
WINDOW = 700
MAX_WINDOWS = 6
# One character of a script without spaces, a word with the marks of India's scripts, or a sign.
_UNSPACED = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_UNSPACED}]|(?:[^\W_{_UNSPACED}]|[\u0900-\u0dff])+|[^\w\s]")
# The same words, where nothing is written without spaces; and the characters of ASCII that are no signs.
_SPACED_WORD = re.compile(r"[\w\u0900-\u0dff]+|[^\w\s]")
_NO_SIGNS = "".join(re.findall(r"[\w\s]", "".join(map(chr, range(128))))).encode()
_has_unspaced = re.compile(f"[{_UNSPACED}]").search
_PATH = Path(__file__).with_suffix(".tsv")
# Digits that stand for letters, read so in words that have letters too ("1gn0re").
_LETTERS = str.maketrans("01345789", "oieastbg")
_has_letter_digit = re.compile("[01345789]").search
# Letters that words of one stem share; what follows is their form.
BEGINNING = 5
# Stands for the word between two.
BETWEEN = " _ "
# Weights of both kinds are one number: the lower of so many bits, a number with a sign, is for orders.
_HALF = 40
_MIDDLE = 1 << _HALF - 1
Pair = tuple[int, int]
# The least score of an attack's words without pairs. In the project's own texts (`bench/attack_texts`) all 1,155
# windows above a threshold score 528 or more, and in garak, promptmap and PurpleLlama all 2,501 more than 400; two
# thirds of the windows of ordinary files score less.
_WORDS_LEAST = 400.0


class AttackFinder:
    """A model made ready to look for attacks: no pair is joined to be looked up, and both kinds are one sum."""

    def __init__(
        self,
        weights: Iterable[tuple[str, Pair]],
        biases: Pair,
        thresholds: Pair,
        guarded: Pair,
        words_least: float = -math.inf,
    ) -> None:
        """Take weights in thousandths, and for either kind a bias and thresholds.

        The kinds are orders that replace or reveal a program's instructions, and frames in which it would have no
        limits. A text whose score is above a threshold reads like an attack; `guarded` are those where a program keeps
        something from its users: attacks are likelier there. Elsewhere, a text whose words alone score less than
        `words_least` is none.
        """
        self._biases, self._thresholds, self._guarded = biases, thresholds, guarded
        self._words_least = words_least
        self._words: dict[str, int] = {}
        self._beginnings: dict[str, int] = {}
        self._pairs: dict[tuple[str, str], int] = {}
        self._around_one: dict[tuple[str, str], int] = {}
        for feature, (orders, frames) in weights:
            both = orders + (frames << _HALF)
            one, between, two = feature.partition(" ")
            if not between:
                if feature[-1] == "*" and feature != "*":
                    self._beginnings[feature[:-1]] = both
                else:
                    self._words[intern(feature)] = both
            # Each word is kept once, in however many pairs it is.
            elif two.startswith(BETWEEN[1:]):
                self._around_one[intern(one), intern(two[len(BETWEEN) - 1 :])] = both
            else:
                self._pairs[intern(one), intern(two)] = both

    def is_attack(self, normalized: str, *, guarded: bool = False) -> bool:
        """Tell whether a normalized text reads like an attack, in general or where something is kept from users."""
        if guarded:
            return any(map(operator.gt, self.scores(normalized), self._guarded))
        return any(map(operator.gt, self.scores(normalized, self._words_least), self._thresholds))

    def scores(self, normalized: str, words_least: float = -math.inf) -> tuple[float, float]:
        """Return the scores of a normalized text for either kind, in thousandths.

        0 for a text without words, and for one whose words alone, without pairs, score less than `words_least`.
        """
        words = _split(normalized)
        if not words:
            return 0.0, 0.0
        different = set(words)
        letters = _read_digits(different) if _has_letter_digit(normalized) else {}
        if letters:
            different = {letters.get(word, word) for word in different}
        beginnings = {word[:BEGINNING] for word in different if len(word) > BEGINNING and word.isalpha()}
        both = sum(filter(None, map(self._words.get, different)))
        both += sum(filter(None, map(self._beginnings.get, beginnings)))
        count = len(different) + len(beginnings)
        if max(_kinds_of(both)) < words_least * math.sqrt(count):
            return 0.0, 0.0
        words = [letters.get(word, word) for word in words] if letters else words
        pairs, around_one = set(pairwise(words)), set(zip(words, words[2:], strict=False))
        both += sum(filter(None, map(self._pairs.get, pairs)))
        both += sum(filter(None, map(self._around_one.get, around_one)))
        orders, frames = _kinds_of(both)
        share = 1 / math.sqrt(count + len(pairs) + len(around_one))
        return self._biases[0] + orders * share, self._biases[1] + frames * share


def _kinds_of(both: int) -> Pair:
    """Return the sums for either kind that are one number."""
    orders = (both + _MIDDLE) % (1 << _HALF) - _MIDDLE
    return orders, (both - orders) >> _HALF


def windows_of(size: int) -> list[tuple[int, int]]:
    """Return the windows in which a normalized text of this size is read."""
    if size <= WINDOW:
        return [(0, size)]
    starts = range(0, min(size - WINDOW // 2, MAX_WINDOWS * WINDOW), WINDOW)
    return [*((start, min(size, start + WINDOW)) for start in starts), (size - WINDOW, size)]


def words_of(normalized: str) -> list[str]:
    """Return the words and signs of a text, digits that stand for letters read so."""
    words = _split(normalized)
    letters = _read_digits(set(words))
    return [letters.get(word, word) for word in words]


def _split(normalized: str) -> list[str]:
    if normalized.isascii():
        # With blanks around signs, words split twice as fast as an expression finds them.
        for sign in map(chr, set(normalized.encode().translate(None, _NO_SIGNS))):
            normalized = normalized.replace(sign, f" {sign} ")
        return normalized.replace("_", " ").split()
    if _has_unspaced(normalized):
        return _WORD.findall(normalized)
    return _SPACED_WORD.findall(normalized.replace("_", " "))


def _read_digits(words: set[str]) -> dict[str, str]:
    """Return the words in which digits stand for letters, each with its letters."""
    return {
        word: word.translate(_LETTERS)
        for word in words
        if not (word.isalpha() or word.isdecimal()) and _has_letter_digit(word)
    }


@functools.cache
def attack_finder() -> AttackFinder:
    """Return what finds attacks with the model of the product."""
    numbers, weights = read_weights()
    return AttackFinder(weights, *numbers, _WORDS_LEAST)


def read_weights() -> tuple[tuple[Pair, Pair, Pair], Iterator[tuple[str, Pair]]]:
    """Return the biases, thresholds and guarded thresholds of the product's model, and its weights."""
    lines = (line.split("\t") for line in _PATH.read_text(encoding="utf-8").split("\n") if line)
    weights = ((feature, (int(orders), int(frames))) for feature, orders, frames in lines)
    (_, biases), (_, thresholds), (_, guarded) = next(weights), next(weights), next(weights)
    return (biases, thresholds, guarded), weights
