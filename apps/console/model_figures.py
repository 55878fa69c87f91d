"""Figures of models for pages: performance by provider, price history, the organization's own usage, cache savings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from django.db import DatabaseError
from django.utils.translation import gettext

from apps.catalog.models import PriceChange
from apps.catalog.offers import Offer
from apps.catalog.price_history import find_model_changes, steps_of
from apps.catalog.price_words import name_of
from apps.console.model_cards import ModelCard
from apps.kernel.money import ZERO
from apps.kernel.pages.number_formats import percent
from apps.kernel.postgres import replica
from apps.logs.performance import Performance, ProviderPerformance, read_performance
from apps.logs.traffic import TrafficWindow
from apps.logs.usage import ModelUsage

# Price changes that a page shows, and how far back.
MAX_CHANGES: Final = 40
PRICE_HISTORY: Final = timedelta(days=365)
# Providers in a chart, by the colors there are.
MAX_LINES: Final = 7
# Calls in a period below which a provider's median is not compared with those of others.
MIN_COMPARED_CALLS: Final = 20
# Width and height of the price chart in its own units.
_WIDTH, _HEIGHT = 600, 120
_GOOD, _FAIR = 0.99, 0.95
_TO_SIX_DIGITS = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class UptimeBar:
    """A part of a period in the strip of a provider: its place, its CSS class, and its words."""

    place: int
    style: str
    words: str


@dataclass(frozen=True, slots=True)
class ProviderFigures:
    """A provider's performance in a period, as a page shows it."""

    provider: str
    name: str
    total: Performance
    bars: list[UptimeBar]
    # The lowest uptime of the bars with calls, in words.
    lowest: str


def read_figures(
    models: Collection[str], window: TrafficWindow, now: datetime
) -> Mapping[str, Mapping[str, ProviderPerformance]] | None:
    """Return the performance of models by model and provider; None while the database is not available."""
    try:
        return replica.read(lambda using: read_performance(models, window, now, using))
    except DatabaseError:
        return None


def provider_figures(
    card: ModelCard, found: Mapping[str, ProviderPerformance], window: TrafficWindow, now: datetime
) -> list[ProviderFigures]:
    """Return the performance of the card's providers, those with the most calls first; others are left out."""
    first = window.first(now)
    figures = [
        _figures_of(offer, found[offer.provider.id], window, first)
        for offer in card.offers
        if offer.provider.id in found
    ]
    return sorted(figures, key=lambda one: (-_calls(one.total), one.provider))


def _figures_of(offer: Offer, found: ProviderPerformance, window: TrafficWindow, first: datetime) -> ProviderFigures:
    bars = []
    for place in range(window.bars):
        starts = first + place * window.bar
        uptime = found.bars[starts].uptime if starts in found.bars else None
        bars.append(UptimeBar(place, _style(uptime), f"{starts:%Y-%m-%d %H:%M} UTC: {_percent(uptime)}"))
    known = [bar.uptime for bar in found.bars.values() if bar.uptime is not None]
    return ProviderFigures(
        offer.provider.id, offer.provider.name, found.total, bars, _percent(min(known, default=None))
    )


def _style(uptime: float | None) -> str:
    if uptime is None:
        return "no-calls"
    return "up" if uptime >= _GOOD else "unsteady" if uptime >= _FAIR else "down"


def _percent(uptime: float | None) -> str:
    """Return an uptime in words for attributes, in which the page's script writes no numbers."""
    if uptime is None:
        return gettext("no calls")
    return gettext("{number}%").format(number=percent(100 * uptime).removesuffix("%"))


def _calls(one: Performance) -> int:
    return one.succeeded + one.failed


@dataclass(frozen=True, slots=True)
class BestFigure:
    """The best value among providers, and the name of its provider."""

    value: float
    provider: str


@dataclass(frozen=True, slots=True)
class BestFigures:
    """The best uptime, median time to the first token (ms) and median speed (tokens a second) of a model's providers;
    None where nothing is known."""

    uptime: BestFigure | None
    first_token: BestFigure | None
    speed: BestFigure | None


def best_figures(figures: Sequence[ProviderFigures]) -> BestFigures:
    """Return the best figures; providers with few calls count only where no other has more."""
    many = [one for one in figures if _calls(one.total) >= MIN_COMPARED_CALLS] or figures
    uptimes = [BestFigure(one.total.uptime, one.name) for one in many if one.total.uptime is not None]
    waits = [BestFigure(one.total.first_token, one.name) for one in many if one.total.first_token is not None]
    speeds = [BestFigure(one.total.speed, one.name) for one in many if one.total.speed is not None]
    return BestFigures(
        max(uptimes, key=lambda one: one.value, default=None),
        min(waits, key=lambda one: one.value, default=None),
        max(speeds, key=lambda one: one.value, default=None),
    )


@dataclass(frozen=True, slots=True)
class PriceLine:
    """The line of a provider in the price chart: SVG points, and its lowest and highest price."""

    provider: str
    points: str
    lowest: Decimal
    highest: Decimal


@dataclass(frozen=True, slots=True)
class PriceHistory:
    """The price changes of a model, newest first, and a chart of one price where it has changed.

    A change is its moment, its provider, and the steps of each price; `is_first` for the first prices there.
    """

    changes: list[dict[str, Any]]
    label: str
    lines: list[PriceLine]
    begins_at: datetime | None
    width: int = _WIDTH
    height: int = _HEIGHT


def read_price_history(model_id: str, names: Mapping[str, str], now: datetime) -> PriceHistory | None:
    """Return the price history of a model at the providers in `names`; None while the database is not available."""
    try:
        changes = find_model_changes([model_id], now - PRICE_HISTORY, MAX_CHANGES)
    except DatabaseError:
        return None
    changes = [change for change in changes if change.provider in names]
    shown = [
        {
            "at": change.created_at,
            "provider": names[change.provider],
            "is_first": not change.old,
            "steps": list(steps_of(change)),
        }
        for change in changes
    ]
    label, lines = _chart(list(reversed(changes)), names, now)
    return PriceHistory(shown, label, lines, changes[-1].created_at if changes else None)


def _chart(changes: Sequence[PriceChange], names: Mapping[str, str], now: datetime) -> tuple[str, list[PriceLine]]:
    """Return the label of the charted price and the providers' lines; none where no such price has changed."""
    for price in ("output", "input"):
        series = {provider: _steps(changes, provider, price) for provider in names}
        series = {provider: steps for provider, steps in series.items() if steps}
        if any(len({amount for _, amount in steps}) > 1 for steps in series.values()):
            return name_of(price), _lines(series, names, changes[0].created_at, now)
    return "", []


def _steps(changes: Iterable[PriceChange], provider: str, price: str) -> list[tuple[datetime, Decimal]]:
    """Return the moments at which a price began, oldest first; the one before the first change began with it."""
    steps: list[tuple[datetime, Decimal]] = []
    for change in changes:
        if change.provider != provider:
            continue
        before, after = change.old.get(price), change.new.get(price)
        if not steps and isinstance(before, str):
            steps.append((change.created_at, Decimal(before)))
        if isinstance(after, str):
            steps.append((change.created_at, Decimal(after)))
    return steps


def _lines(
    series: Mapping[str, Sequence[tuple[datetime, Decimal]]],
    names: Mapping[str, str],
    begins: datetime,
    now: datetime,
) -> list[PriceLine]:
    largest = max(amount for steps in series.values() for _, amount in steps) or Decimal(1)
    span = max((now - begins).total_seconds(), 1)
    lines = []
    for provider, steps in sorted(series.items(), key=lambda item: -len(item[1]))[:MAX_LINES]:
        points: list[str] = []
        height = 0.0
        for number, (moment, amount) in enumerate(steps):
            # A first price before its change is drawn from the begin.
            is_before = number == 0 and len(steps) > 1 and steps[1][0] == moment
            across = 0.0 if is_before else _WIDTH * (moment - begins).total_seconds() / span
            points += [f"{across:.1f},{height:.1f}"] if points else []
            height = _HEIGHT - float(amount / largest) * (_HEIGHT - 4)
            points.append(f"{across:.1f},{height:.1f}")
        points.append(f"{_WIDTH},{height:.1f}")
        amounts = [amount for _, amount in steps]
        lines.append(PriceLine(names[provider], " ".join(points), min(amounts), max(amounts)))
    return lines


@dataclass(frozen=True, slots=True)
class OwnUsage:
    """An organization's usage of a model in a number of days; amounts in USD.

    `prompt_cache_savings` and `response_cache_savings` are estimates: what the input read from providers' prompt caches
    would have cost more at the present ratio of the two prices, and what answers of the response cache would have cost
    at the mean cost of the others.
    """

    requests: int = 0
    errors: int = 0
    cache_hits: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal = ZERO
    prompt_cache_savings: Decimal = ZERO
    response_cache_savings: Decimal = ZERO

    @property
    def cache_savings(self) -> Decimal:
        """Both savings."""
        return self.prompt_cache_savings + self.response_cache_savings


def own_usage(card: ModelCard, rows: Iterable[ModelUsage]) -> OwnUsage:
    """Return the usage of a card's model among the rows of an organization."""
    mine = [row for row in rows if row.model == card.model.id]
    return OwnUsage(
        requests=sum(row.requests for row in mine),
        errors=sum(row.errors for row in mine),
        cache_hits=sum(row.cache_hits for row in mine),
        input_tokens=sum(row.input_tokens for row in mine),
        output_tokens=sum(row.output_tokens for row in mine),
        cost=sum((row.cost for row in mine), ZERO),
        prompt_cache_savings=_prompt_cache_savings(card, mine),
        response_cache_savings=_response_cache_savings(mine),
    )


def _prompt_cache_savings(card: ModelCard, rows: Iterable[ModelUsage]) -> Decimal:
    """Return what cached input saved: its cost at the present ratio of the price of input to that of cached input."""
    ratios = {
        offer.provider.id: offer.prices.input / offer.prices.cached_input
        for offer in card.offers
        if offer.prices.input and offer.prices.cached_input
    }
    saved = sum(
        (row.cached_input_cost * (ratios[row.provider] - 1) for row in rows if row.provider in ratios),
        ZERO,
    )
    return max(saved, ZERO).quantize(_TO_SIX_DIGITS)


def _response_cache_savings(rows: Sequence[ModelUsage]) -> Decimal:
    """Return what answers of the response cache saved, at the mean cost of the other answers."""
    hits = sum(row.cache_hits for row in rows)
    paid = sum(row.requests - row.errors for row in rows) - hits
    cost = sum((row.cost for row in rows), ZERO)
    return (cost / paid * hits).quantize(_TO_SIX_DIGITS) if hits and paid > 0 else ZERO


def usage_by_day(rows: Iterable[ModelUsage], names: Mapping[str, str]) -> dict[Any, dict[str, Decimal]]:
    """Return the cost of each provider by day, for a chart."""
    by_day: defaultdict[Any, dict[str, Decimal]] = defaultdict(dict)
    for row in rows:
        name = names.get(row.provider, row.provider) or gettext("no provider")
        by_day[row.date][name] = by_day[row.date].get(name, ZERO) + row.cost
    return dict(by_day)
