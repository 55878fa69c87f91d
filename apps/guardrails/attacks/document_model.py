"""Document model: how much a passage of a document reads like an order to the model that reads it (a linear model).

Knows the weights beside this file, which `python -m bench.document_model` makes. Must never know a rule, or who speaks.
A few passages that follow one another are looked at together, for an order may take more than a sentence; the document
around them counts for nothing, however long and harmless it is. The time grows with the length of what is read.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from apps.guardrails.attacks.document_passages import Passage, passages_of

# Weights are kept as whole hundredths.
SCALE = 100
# Passages at most that are one order.
MOST_PASSAGES = 3
# A stretch counts as if it had at least so many features, as two sentences have: a few words alone say little.
LEAST_FEATURES = 80
# Passages that are read of a text: more than any but a list of signs has, so that nobody makes it take long.
MOST_READ = 2000
_PATH = Path(__file__).with_suffix(".tsv")
_BIAS, _THRESHOLD = "<bias>", "<threshold>"


class Stretch(NamedTuple):
    """Some passages that follow one another, by their places in the document, and their score in hundredths."""

    score: float
    first: int
    after: int


class DocumentModel(NamedTuple):
    """Weights in hundredths; a stretch whose score is above the threshold reads like an order."""

    weights: Mapping[str, int]
    bias: int
    threshold: int

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

    def orders(self, normalized: str) -> list[tuple[int, int]]:
        """Return where a normalized text reads like an order, the best of stretches that overlap."""
        passages = passages_of(normalized, MOST_READ)
        found = (one for one in self.stretches(passages) if one.score > self.threshold)
        places: list[tuple[int, int]] = []
        taken: set[int] = set()
        for one in sorted(found, key=lambda stretch: -stretch.score):
            if taken.isdisjoint(range(one.first, one.after)):
                taken.update(range(one.first, one.after))
                places.append((passages[one.first].start, passages[one.after - 1].end))
        return sorted(places)

    def written(self) -> str:
        """Return the model as its file holds it."""
        lines = [f"{_BIAS}\t{self.bias}", f"{_THRESHOLD}\t{self.threshold}"]
        lines += [f"{feature}\t{weight}" for feature, weight in sorted(self.weights.items()) if weight]
        return "\n".join(lines) + "\n"


def share_of(features: int) -> float:
    """Return by how much each of so many features counts, so that long stretches count as much as short ones."""
    return 1 / math.sqrt(max(features, LEAST_FEATURES))


@functools.cache
def document_model() -> DocumentModel:
    """Return the model of the product."""
    lines = (line.split("\t") for line in _PATH.read_text(encoding="utf-8").split("\n") if line)
    weights = {feature: int(weight) for feature, weight in lines}
    return DocumentModel(weights, weights.pop(_BIAS), weights.pop(_THRESHOLD))
