"""Ranking: order candidates by price, uptime, speed and session affinity (rendezvous hashing). Pure.

A provider that the client named comes first and the others stand by. Current statistics and the random draw are given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from statistics import median
from typing import Any

import msgspec

from apps.billing.pricing import price_text
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.candidates import Candidates
from apps.gateway.routing.circuit_breaker import ProviderStats
from apps.gateway.token_estimate import estimate_usage
from apps.kernel.usage import Usage

# The weights of price, uptime, throughput and latency in a score; they add up to 1. Latency is that of the first token
# of a stream: without a stream it does not count, and the others have its share.
_WEIGHTS = (0.5, 0.3, 0.1, 0.1)
_UNSEEN_WEIGHTS = (*(weight / sum(_WEIGHTS[:3]) for weight in _WEIGHTS[:3]), 0.0)
# USD per million tokens below which prices are alike: keeps the shares finite beside free offers.
_NEGLIGIBLE = 0.01
# Percent of uptime: below it a provider comes last, and is passed over where it was named, while another is above; and
# what a score loses for, from none to all.
LOW_UPTIME, _WORST_UPTIME = 90.0, 80.0
# Share of requests that go to a candidate of which nothing fresh is known, if it is not much dearer.
EXPLORATION, _FRESH, _DEARER = 0.01, 5, 2.0
# A conversation stays with a provider, for its prompt cache, as long as that is about as good as the best.
_AFFINITY_MARGIN, _AFFINITY_UPTIME = 0.05, 85.0
# Milliseconds, and tokens a second, assumed where there are no figures.
_USUAL_LATENCY, _USUAL_THROUGHPUT = 1_000.0, 50.0

StatsLookup = Callable[[str], ProviderStats]


class RequestProfile(msgspec.Struct, frozen=True):
    """The request's properties that matter for ranking: its size in tokens, whether it streams, and its conversation.

    `random_draw`, from 0 to 1, decides which requests explore: those below `exploration`. `is_credential_usable` tells
    whether a credential, by its name, may be used now.
    """

    prompt_tokens: int
    answer_tokens: int
    # How many images are to be made.
    images: int = 0
    # At which the request asks to be served, empty for the usual one.
    service_tier: str = ""
    streaming: bool = False
    session: str | None = None
    random_draw: float = 1.0
    exploration: float = EXPLORATION
    is_credential_usable: Callable[[str], bool] = bool


class Ranking(msgspec.Struct, frozen=True):
    """Candidates in the order they will be tried, and the choice explained as clients and logs see it.

    `probe` tells that the first is tried to find out whether it works again.
    """

    candidates: tuple[Candidate, ...]
    explanation: dict[str, Any]
    probe: bool = False


class _Score(msgspec.Struct, frozen=True):
    """A mapping's figures. `price` is USD per million tokens of this request; `total` is weighted, 0 to 1."""

    candidate: Candidate
    stats: ProviderStats
    price: float
    total: float

    @property
    def low(self) -> bool:
        """Whether its uptime is low."""
        return self.stats.uptime < LOW_UPTIME


def rank(candidates: Candidates, profile: RequestProfile, stats_of: StatsLookup, *, no_fallback: bool) -> Ranking:
    """Return the order in which candidates are tried. `no_fallback` keeps one provider, with all its credentials."""
    requested = candidates.requested_provider
    if len(candidates.eligible) == 1:
        return _rank_single(candidates.eligible[0], requested, profile, stats_of)
    mappings = {one.mapping: one for one in candidates.eligible}
    scores = _scores(list(mappings.values()), profile, stats_of)
    # Weight 0 takes a provider out of routing, unless it was named or nothing else is left.
    scores = [one for one in scores if one.total > 0 or one.candidate.provider_id == requested] or scores
    first, reason = _choose_first(scores, requested, profile, no_fallback=no_fallback)
    rest = [score for score in scores if score is not first]
    # Candidates with a low uptime come late, those with an open circuit last: still better than none.
    rest.sort(key=lambda score: (score.stats.open, score.low, -score.total, score.candidate.mapping))
    ordered = [first, *rest]
    explanation: dict[str, Any] = {
        "availableProviders": [score.candidate.provider_id for score in ordered],
        "selectedProvider": first.candidate.provider_id,
        "selectionReason": reason,
        "providerScores": [_explain_score(score) for score in ordered],
    }
    if reason == "low-uptime-fallback":
        named = next(score for score in scores if score.candidate.provider_id == requested)
        explanation |= {"originalProvider": requested, "originalProviderUptime": _rounded(named.stats.uptime, 100)}
    tried = [first] if no_fallback else ordered
    ways = [way for score in tried for way in _order_credentials(candidates.eligible, score.candidate.mapping, profile)]
    return Ranking(tuple(ways), explanation, probe=first.stats.open and len(ways) > 1)


def _rank_single(one: Candidate, requested: str | None, profile: RequestProfile, stats_of: StatsLookup) -> Ranking:
    """Rank the only candidate."""
    explanation: dict[str, Any] = {
        "availableProviders": [one.provider_id],
        "selectedProvider": one.provider_id,
        "selectionReason": "single-provider-available" if requested is None else "direct-provider-specified",
        "providerScores": [_explain_score(_score_single(one, profile, stats_of))],
    }
    return Ranking((one,), explanation)


def _choose_first(
    scores: Sequence[_Score], requested: str | None, profile: RequestProfile, *, no_fallback: bool
) -> tuple[_Score, str]:
    """Return which is tried first, and the reason."""
    if requested is not None:
        return _choose_named(scores, requested, no_fallback=no_fallback)
    if len(scores) == 1:
        return scores[0], "single-provider-available"
    if probed := next((score for score in scores if score.stats.open and score.stats.probe_due), None):
        return probed, "circuit-probe"
    working = _prefer_up([score for score in scores if not score.stats.open] or scores)
    best = min(working, key=lambda score: (-score.total, score.candidate.mapping))
    if profile.session is not None:
        loyal = [s for s in working if s.total >= best.total - _AFFINITY_MARGIN and s.stats.uptime >= _AFFINITY_UPTIME]
        if len(loyal) > 1:
            return max(
                loyal, key=lambda score: rendezvous_score(profile.session, score.candidate.mapping)
            ), "session-affinity"
    elif profile.random_draw < profile.exploration:
        unknown = [
            score
            for score in working
            if score is not best and score.stats.fresh_requests < _FRESH and score.price <= best.price * _DEARER
        ]
        if unknown:
            return unknown[int(profile.random_draw / profile.exploration * len(unknown))], "random-exploration"
    blind = all(score.stats.requests == 0 for score in working)
    return best, "price-only-no-metrics" if blind else "weighted-score"


def _choose_named(scores: Sequence[_Score], requested: str, *, no_fallback: bool) -> tuple[_Score, str]:
    """Return the provider that the client named, or the cheapest better one while its uptime is low."""
    named = next(score for score in scores if score.candidate.provider_id == requested)
    if named.stats.probe_due and len(scores) > 1 and not no_fallback:
        return named, "circuit-probe"
    if no_fallback or (named.stats.uptime >= LOW_UPTIME and not named.stats.open):
        return named, "direct-provider-specified"
    working = [score for score in scores if not score.stats.open]
    # A circuit opens before five minutes' figures show why: any working candidate is better then.
    better = _prefer_up([s for s in working if named.stats.open or s.stats.uptime > named.stats.uptime])
    if not better:
        return named, "direct-provider-specified"
    return min(better, key=lambda score: (score.price, -score.total, score.candidate.mapping)), "low-uptime-fallback"


def _prefer_up(scores: Sequence[_Score]) -> Sequence[_Score]:
    """Return the scores without low uptime, or all where every uptime is low."""
    return [score for score in scores if not score.low] or scores


def _scores(mappings: Sequence[Candidate], profile: RequestProfile, stats_of: StatsLookup) -> list[_Score]:
    """Return scores from 0 to 1, lowered by the priority weights of provider and mapping."""
    if len(mappings) == 1:
        return [_score_single(mappings[0], profile, stats_of)]
    for_price, for_uptime, for_speed, for_latency = _WEIGHTS if profile.streaming else _UNSEEN_WEIGHTS
    known = [(one, stats_of(one.mapping), _price_of(one, profile)) for one in mappings]
    cheapest = min(price for _, _, price in known)
    usual_latency = _usual([stats.latency for _, stats, _ in known], _USUAL_LATENCY)
    usual_speed = _usual([stats.throughput for _, stats, _ in known], _USUAL_THROUGHPUT)
    quickest = min(stats.latency or usual_latency for _, stats, _ in known)
    fastest = max(stats.throughput or usual_speed for _, stats, _ in known)
    scores = []
    for one, stats, price in known:
        plain = (
            for_price * (cheapest + _NEGLIGIBLE) / (price + _NEGLIGIBLE)
            + for_uptime * _health_of(stats)
            + for_speed * (stats.throughput or usual_speed) / fastest
            + for_latency * (quickest / (stats.latency or usual_latency) if quickest else 1.0)
        )
        scores.append(_Score(one, stats, price, plain * one.offer.priority * one.offer.provider.priority))
    return scores


def _score_single(one: Candidate, profile: RequestProfile, stats_of: StatsLookup) -> _Score:
    """Return the score of the only mapping: no other is cheaper or quicker."""
    for_price, for_uptime, for_speed, for_latency = _WEIGHTS if profile.streaming else _UNSEEN_WEIGHTS
    stats = stats_of(one.mapping)
    plain = for_price + for_uptime * _health_of(stats) + for_speed + for_latency
    return _Score(one, stats, _price_of(one, profile), plain * one.offer.priority * one.offer.provider.priority)


def _health_of(stats: ProviderStats) -> float:
    """Return an uptime's share of its weight, 0 to 1."""
    return min(max((stats.uptime - _WORST_UPTIME) / (100 - _WORST_UPTIME), 0.0), 1.0)


def _order_credentials(fitting: Iterable[Candidate], mapping: str, profile: RequestProfile) -> list[Candidate]:
    """Return a mapping's candidates, one a credential: usable ones first, spread by conversation or random draw."""
    ways = [one for one in fitting if one.mapping == mapping]
    if len(ways) == 1:
        return ways
    salt = profile.session or str(profile.random_draw)
    return sorted(
        ways,
        key=lambda one: (
            not profile.is_credential_usable(one.credential.name),
            -rendezvous_score(salt, one.credential.name),
        ),
    )


def rendezvous_score(one: str | None, other: str) -> int:
    """Return the rendezvous hash of two names: the highest for a key stays the highest while others come and go."""
    return int.from_bytes(blake2b(f"{one}\0{other}".encode(), digest_size=8).digest())


def _price_of(one: Candidate, profile: RequestProfile) -> float:
    """Return USD per million tokens of a request of this size; its images count as what they cost."""
    read, written, card = profile.prompt_tokens, profile.answer_tokens, one.offer.prices
    if profile.images:
        total = one.cost_of(estimate_usage(read, 0, profile.images, card)).total
    elif profile.service_tier:
        total = one.cost_of(Usage(input=read, output=written, service_tier=profile.service_tier)).total
    else:
        total = price_text(read, written, card, one.discount)
    return _rounded(float(total) / max(read + written, 1) * 1e6, 1_000_000)


def _rounded(value: float, parts: int) -> float:
    """Return a figure of zero or more to so many parts of one; `round` goes through text, and is four times slower."""
    return int(value * parts + 0.5) / parts


def _usual(values: Sequence[float | None], otherwise: float) -> float:
    """Return what stands for the values that are missing: the median of the others, if there are any of either."""
    known = [value for value in values if value]
    return median(known) if known and len(known) < len(values) else otherwise


def _explain_score(score: _Score) -> dict[str, Any]:
    figures = score.stats
    line = {
        "providerId": score.candidate.provider_id,
        "score": _rounded(score.total, 10_000),
        "price": score.price,
        "uptime": _rounded(figures.uptime, 100),
        "latency": None if figures.latency is None else _rounded(figures.latency, 10),
        "throughput": None if figures.throughput is None else _rounded(figures.throughput, 10),
    }
    return {**line, "circuit": "open"} if figures.open else line
