"""Learns the weights of the models: a linear support vector machine with a squared hinge loss.

Dual coordinate descent (Hsieh et al. 2008): one text at a time, in the order of one seed, until little changes.
Pure Python, and sums are exact (`fsum`): the same texts make the same weights, whatever the machine.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

_SEED, _ROUNDS, _ENOUGH = 1, 40, 0.02


class Point(NamedTuple):
    """One text: which of the weights it has, by how much each counts, and how much an error at it costs.

    A weight it has twice counts twice.
    """

    places: Sequence[int]
    share: float
    attack: bool
    cost: float


def learn_weights(points: Sequence[Point], size: int) -> tuple[list[float], float]:
    """Return `size` weights and the bias."""
    weights, bias = [0.0] * size, 0.0
    multipliers = [0.0] * len(points)
    squares = [sum(count * count for count in Counter(point.places).values()) for point in points]
    order, shuffler = list(range(len(points))), random.Random(_SEED)
    weight_at = weights.__getitem__
    for _ in range(_ROUNDS):
        shuffler.shuffle(order)
        worst = 0.0
        for index in order:
            places, share, attack, cost = points[index]
            sign = 1.0 if attack else -1.0
            before, slack = multipliers[index], 0.5 / cost
            slope = sign * (bias + share * math.fsum(map(weight_at, places))) - 1.0 + before * slack
            if not before and slope >= 0.0:
                continue
            worst = max(worst, abs(slope))
            after = max(0.0, before - slope / (1.0 + share * share * squares[index] + slack))
            multipliers[index] = after
            step = sign * (after - before)
            bias += step
            step *= share
            for place in places:
                weights[place] += step
        if worst < _ENOUGH:
            break
    return weights, bias
