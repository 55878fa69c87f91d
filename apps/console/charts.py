"""Chart data: the numbers that the page's script draws, and the table beside the chart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

Value = Decimal | int | float
# Series with distinct colors; the rest are added up into one more.
MAX_SERIES: Final = 7
OTHERS: Final = "others"


def stack_by_day(days: Sequence[date], values: Mapping[date, Mapping[str, Value]], *, unit: str = "") -> dict[str, Any]:
    """Return a stacked bar chart for `parts/chart.html`: one bar a day, series by name, the largest first, small ones
    added up; `unit` is USD or a word that follows the numbers."""
    totals: dict[str, Value] = {}
    for parts in values.values():
        for name, value in parts.items():
            totals[name] = totals.get(name, 0) + value  # type: ignore[operator]  # all of a chart are of one kind
    largest = sorted(totals, key=lambda name: (-totals[name], name))
    # "Others" with a single member would hide its name.
    shown = largest if len(largest) <= MAX_SERIES + 1 else largest[:MAX_SERIES]
    series: dict[str, list[Value]] = {name: [values.get(day, {}).get(name, 0) for day in days] for name in shown}
    if len(shown) < len(largest):
        rest = largest[len(shown) :]
        series[OTHERS] = [sum(values.get(day, {}).get(name, 0) for name in rest) for day in days]
    return {
        "labels": [day.isoformat() for day in days],
        "unit": unit,
        "series": [{"name": name, "values": [float(value) for value in values]} for name, values in series.items()],
    }
