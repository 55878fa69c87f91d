"""Charts: numbers as the page's script draws them, and as the table beside the chart tells them.

Knows shapes of charts. Must never query, nor know what is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

Value = Decimal | int | float
# Series that can be told apart; what is beyond them is one more, of all others.
MOST_SERIES: Final = 7
OTHERS: Final = "others"


def stack_by_day(days: Sequence[date], values: Mapping[date, Mapping[str, Value]], *, unit: str = "") -> dict[str, Any]:
    """Return a chart for `parts/chart.html`: a bar a day, its parts by name, the largest names first and what is beyond
    them together; `unit` is USD or a word after numbers."""
    totals: dict[str, Value] = {}
    for parts in values.values():
        for name, value in parts.items():
            totals[name] = totals.get(name, 0) + value  # type: ignore[operator]  # all of a chart are of one kind
    largest = sorted(totals, key=lambda name: (-totals[name], name))
    # One more would be a series of one.
    shown = largest if len(largest) <= MOST_SERIES + 1 else largest[:MOST_SERIES]
    series: dict[str, list[Value]] = {name: [values.get(day, {}).get(name, 0) for day in days] for name in shown}
    if len(shown) < len(largest):
        rest = largest[len(shown) :]
        series[OTHERS] = [sum(values.get(day, {}).get(name, 0) for name in rest) for day in days]
    return {
        "labels": [day.isoformat() for day in days],
        "unit": unit,
        "series": [{"name": name, "values": [float(value) for value in values]} for name, values in series.items()],
    }
