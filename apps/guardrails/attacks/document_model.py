"""Document model: how much a passage of a document reads like an order to the model that reads it (a linear model).

Knows the weights beside this file, which `python -m bench.document_model` makes. Must never know a rule, or who speaks.
A few passages that follow one another are looked at together, for an order may take more than a sentence; the document
around them counts for nothing, however long and harmless it is. The time grows with the length of what is read.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from apps.guardrails.attacks.document_passages import Passage, places_of
from apps.guardrails.attacks.document_scores import PassageScorer, ScoredText

# Weights are kept as whole hundredths.
SCALE = 100
# Passages at most that are one order.
MOST_PASSAGES = 3
# A stretch counts as if it had at least so many features, as two sentences have: a few words alone say little.
LEAST_FEATURES = 80
# Passages that are read of a text: more than any but a list of signs has, so that nobody makes it take long.
MOST_READ = 2000
# A document of fewer passages is short. The best of many stretches scores higher than the best of a few, in harmless
# documents too: so either kind has a threshold of its own.
SHORT = 25
_PATH = Path(__file__).with_suffix(".tsv")
_BIAS, _SHORT_THRESHOLD, _THRESHOLD = "<bias>", "<short_threshold>", "<threshold>"


class Stretch(NamedTuple):
    """Some passages that follow one another, by their places in the document, and their score in hundredths."""

    score: float
    first: int
    after: int


class Thresholds(NamedTuple):
    """Scores above which a stretch reads like an order, in documents that are short and in others."""

    short: int
    other: int

    def of(self, passages: int) -> int:
        """Return the threshold of a document of so many passages."""
        return self.short if passages < SHORT else self.other


class DocumentModel(NamedTuple):
    """Weights, bias and thresholds, all in hundredths."""

    weights: Mapping[str, int]
    bias: int
    thresholds: Thresholds = Thresholds(0, 0)

    def stretches(self, passages: Sequence[Passage]) -> Iterator[Stretch]:
        """Yield every stretch of passages, the longer after the shorter."""
        weight_of = self.weights.get
        sums = [0, *accumulate(sum(weight_of(one, 0) for one in passage.features) for passage in passages)]
        counts = [0, *accumulate(len(passage.features) for passage in passages)]
        for size in range(1, min(MOST_PASSAGES, len(passages)) + 1):
            for first in range(len(passages) - size + 1):
                after = first + size
                worth = (sums[after] - sums[first]) * share_of(counts[after] - counts[first])
                yield Stretch(self.bias + worth, first, after)

    def written(self) -> str:
        """Return the model as its file holds it."""
        lines = [f"{_BIAS}\t{self.bias}"]
        lines += [f"{_SHORT_THRESHOLD}\t{self.thresholds.short}", f"{_THRESHOLD}\t{self.thresholds.other}"]
        lines += [f"{feature}\t{weight}" for feature, weight in sorted(self.weights.items()) if weight]
        return "\n".join(lines) + "\n"


def share_of(features: int) -> float:
    """Return by how much each of so many features counts, so that long stretches count as much as short ones."""
    return 1 / math.sqrt(max(features, LEAST_FEATURES))


class OrderFinder:
    """A model made ready to look for orders in texts."""

    def __init__(self, weights: Iterable[tuple[str, int]], bias: int, thresholds: Thresholds) -> None:
        """Take what a `DocumentModel` holds."""
        self._scorer = PassageScorer(weights)
        self._bias, self._thresholds = bias, thresholds

    @classmethod
    def of(cls, model: DocumentModel) -> OrderFinder:
        """Return what finds orders with a model."""
        return cls(model.weights.items(), model.bias, model.thresholds)

    def orders(self, normalized: str) -> list[tuple[int, int]]:
        """Return where a normalized text reads like an order, the best of stretches that overlap."""
        text = self._scorer.read(normalized, MOST_READ)
        best: list[Stretch] = []
        taken: set[int] = set()
        for one in sorted(self._stretches_above(text), key=lambda stretch: -stretch.score):
            if taken.isdisjoint(range(one.first, one.after)):
                taken.update(range(one.first, one.after))
                best.append(one)
        places = places_of(normalized, text.parts) if best else []
        return sorted((places[one.first][0], places[one.after - 1][1]) for one in best)

    def _stretches_above(self, text: ScoredText) -> Iterator[Stretch]:
        """Yield the stretches above the threshold, the longer after the shorter."""
        threshold = self._thresholds.of(len(text.parts))
        worth_of = functools.cache(functools.partial(self._scorer.worth_of, text))
        bounds = [0, *accumulate(text.bounds)]
        for size in range(1, min(MOST_PASSAGES, len(text.parts)) + 1):
            most = list(map(operator.sub, bounds[size:], bounds))
            if self._most(max(most)) <= threshold:
                continue
            for first, bound in enumerate(most):
                if self._most(bound) > threshold:
                    worth = [worth_of(place) for place in range(first, first + size)]
                    score = self._score(sum(one.weight for one in worth), sum(one.features for one in worth))
                    if score > threshold:
                        yield Stretch(score, first, first + size)

    def _most(self, bound: int) -> float:
        """Return the highest score that a stretch may have that weighs so much at most."""
        return self._score(max(bound, 0), 0)

    def _score(self, weight: int, features: int) -> float:
        return self._bias + weight * share_of(features)


def read_model() -> DocumentModel:
    """Return the model of the product as its file holds it."""
    bias, thresholds, weights = _read_file()
    return DocumentModel(dict(weights), bias, thresholds)


@functools.cache
def order_finder() -> OrderFinder:
    """Return what finds orders with the model of the product."""
    bias, thresholds, weights = _read_file()
    return OrderFinder(weights, bias, thresholds)


def _read_file() -> tuple[int, Thresholds, Iterator[tuple[str, int]]]:
    lines = (line.split("\t") for line in _PATH.read_text(encoding="utf-8").split("\n") if line)
    weights = ((feature, int(weight)) for feature, weight in lines)
    (_, bias), (_, short), (_, other) = next(weights), next(weights), next(weights)
    return bias, Thresholds(short, other), weights
