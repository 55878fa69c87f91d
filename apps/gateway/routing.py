"""Which candidate first, and why: a pure ranking.

Prices decide among candidates; a provider that the client named comes first and the others stand by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.gateway.candidates import Candidate, Candidates

# A typical request reads four times what it writes.
_PROMPT_SHARE = 0.8
# USD per million tokens below which prices are alike: keeps the shares finite beside free offers.
_NEGLIGIBLE = 0.01


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates in the order they will be tried, and the choice explained as clients and logs see it."""

    candidates: tuple[Candidate, ...]
    explanation: dict[str, Any]


def rank(candidates: Candidates, *, no_fallback: bool) -> Ranking:
    """Return who is tried in which order. With `no_fallback` there is one candidate."""
    requested = candidates.requested_provider
    scores = {one.provider_id: score for one, score in _scores(candidates.fitting)}
    ordered = sorted(
        candidates.fitting,
        key=lambda one: (one.provider_id != requested, -scores[one.provider_id], one.provider_id),
    )
    if requested is None:
        # Weight 0 takes a provider out of automatic routing, unless nothing else is left.
        ordered = [one for one in ordered if scores[one.provider_id] > 0] or ordered
    first = ordered[0]
    if requested is not None:
        reason = "direct-provider-specified"
    elif len(ordered) == 1:
        reason = "single-provider-available"
    else:
        reason = "weighted-score"
    explanation = {
        "availableProviders": [one.provider_id for one in ordered],
        "selectedProvider": first.provider_id,
        "selectionReason": reason,
        "providerScores": [
            {"providerId": one.provider_id, "score": round(scores[one.provider_id], 4), "price": _price(one)}
            for one in ordered
        ],
    }
    return Ranking((first,) if no_fallback else tuple(ordered), explanation)


def _scores(fitting: Sequence[Candidate]) -> list[tuple[Candidate, float]]:
    """Return scores from 0 to 1, the cheapest 1, lowered by the priority weights of provider and mapping."""
    cheapest = min(_price(one) for one in fitting)
    return [
        (
            one,
            (cheapest + _NEGLIGIBLE) / (_price(one) + _NEGLIGIBLE) * one.offer.priority * one.offer.provider.priority,
        )
        for one in fitting
    ]


def _price(one: Candidate) -> float:
    """Return USD per million tokens of a typical request."""
    return round(float(one.input_price or 0) * _PROMPT_SHARE + float(one.output_price or 0) * (1 - _PROMPT_SHARE), 6)
