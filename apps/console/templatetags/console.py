"""Template tags and filters: form fields, amounts, times, charts."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.billing.models import Transaction
from apps.console.forms import ONCE, Form
from apps.kernel.money import plain
from apps.kernel.pages import number_formats as as_text
from apps.kernel.pages.number_formats import mark_numbers

register = template.Library()
_CENT = Decimal("0.01")
_WORDS_OF_TRANSACTIONS = {"credit_topup": "Top-up", "credit_refund": "Refund", "credit_gift": "Gift"}
# Milliseconds.
_TENTH = 100
# Shown for missing values: an en dash.
_NOTHING = "\N{EN DASH}"


@register.simple_tag
def once() -> SafeString:
    """Write the hidden field that makes a resubmitted form run once."""
    return format_html('<input type="hidden" name="{}" value="{}">', ONCE, secrets.token_urlsafe(16))


@register.inclusion_tag("console/parts/field.html")
def field(form: Form | None, name: str, label: str, **options: Any) -> dict[str, Any]:
    """Write a labelled field: `kind` (text, password, email, number, date, textarea, select, checkbox), `help`,
    `choices` as pairs of value and words, `id_suffix` where a page has the field twice, and attributes (`required`,
    `autocomplete`, `placeholder`, `maxlength`, `rows`, `inputmode`, `autofocus`).

    The field shows the submitted value, else `value`.
    """
    form = form or Form()
    sent = form.values.get(name)
    return {
        "kind": "text",
        **options,
        "name": name,
        "id": "-".join(filter(None, ("field", name.replace(".", "-"), options.get("id_suffix", "")))),
        "label": label,
        "value": options.get("value", "") if sent is None else sent,
        "error": form.errors.get(name, ""),
    }


@register.filter
def usd(value: Decimal | None) -> str:
    """Format USD with at least two decimals, and all digits that it has."""
    return _NOTHING if value is None else mark_numbers(as_text.exact_usd(value))


@register.filter
def short_usd(value: Decimal | None) -> str | SafeString:
    """Format USD to cents, below a dollar to four significant digits; the exact amount is the title."""
    if value is None:
        return _NOTHING
    exact, rounded = as_text.exact_usd(value), as_text.rounded_usd(value)
    return usd(value) if exact == rounded else format_html('<span title="{}">{}</span>', exact, mark_numbers(rounded))


@register.filter
def cents(value: Decimal | None) -> str:
    """Format USD rounded to cents; less than a cent as `<$0.01`."""
    if value is None:
        return _NOTHING
    return mark_numbers("<$0.01" if 0 < value < _CENT else f"{'-' if value < 0 else ''}${abs(value):,.2f}")


@register.filter
def what_it_was(row: Transaction) -> str:
    """Describe a transaction."""
    return _WORDS_OF_TRANSACTIONS.get(row.type) or row.get_type_display().capitalize()


@register.filter
def amount(value: Decimal | str | None) -> str:
    """Format USD for a form field: `12.5`."""
    return "" if value is None or isinstance(value, str) else plain(value)


@register.filter
def day(moment: datetime | None) -> str:
    """Format the day of a moment (UTC) for a date field."""
    return moment.astimezone(UTC).date().isoformat() if moment else ""


@register.filter
def day_words(day: date) -> str:
    """Write a day (UTC) of the past: `today`, `yesterday`, `2026-11-28`."""
    return {0: "today", 1: "yesterday"}.get((datetime.now(UTC).date() - day).days, day.isoformat())


@register.filter
def sparkline(counts: Sequence[int]) -> SafeString:
    """Draw a bar for each count, the last of which is today's; the counts are its name for screen readers."""
    most = max([1, *counts])
    bars = [(index, max(24 * count / most, 2), "" if count else "none") for index, count in enumerate(counts)]
    return format_html(
        '<svg class="sparkline" viewBox="0 0 {} 24" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>',
        len(counts),
        f"Requests of each of the last {len(counts)} days: {', '.join(map(str, counts))}",
        format_html_join(
            "",
            '<rect x="{}" y="{}" width="0.8" height="{}" class="{}"/>',
            ((index, round(24 - height, 2), round(height, 2), name) for index, height, name in bars),
        ),
    )


@register.filter
def is_past(moment: datetime) -> bool:
    """Return whether a moment is past."""
    return moment <= datetime.now(UTC)


@register.filter
def number(value: int | float | None) -> str:
    """Format a whole number with thousands separators."""
    return _NOTHING if value is None else mark_numbers(f"{value:,.0f}")


@register.filter
def figure(value: Any, unit: str = "") -> Any:
    """Format a number with all its digits; an empty text for None, and other values unchanged."""
    if value is None:
        return _NOTHING
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    return mark_numbers(f"{Decimal(str(value)):,f}{unit}")


@register.filter
def seconds(milliseconds: int | None) -> str:
    """Format milliseconds as seconds, to a hundredth; below a tenth of a second to a thousandth."""
    if milliseconds is None:
        return _NOTHING
    return mark_numbers(f"{milliseconds / 1000:,.{3 if milliseconds < _TENTH else 2}f}")


@register.filter
def lasted(milliseconds: int | None) -> SafeString:
    """Format a time given in milliseconds: `850 ms`, `1.25 s`, `2 min 5 s`."""
    return mark_numbers(as_text.milliseconds(milliseconds))


@register.filter
def share(value: float | None) -> str:
    """Format a share of one as percent."""
    return _NOTHING if value is None else mark_numbers(f"{value * 100:.1f}%")


@register.filter
def chart_rows(chart: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of the table beside a chart: for each label the value of each series, the last label first.

    Labels without values are left out, unless the chart has no values at all.
    """
    write = _charted_usd if chart["unit"] == "USD" else number
    rows = [
        {"label": label, "values": [series["values"][index] for series in chart["series"]]}
        for index, label in enumerate(chart["labels"])
    ]
    days = [row for row in rows if any(row["values"])] or rows
    return [{"label": row["label"], "values": [write(value) for value in row["values"]]} for row in reversed(days)]


def _charted_usd(value: float) -> str:
    """Format USD in a chart to six digits; amounts below 0.001 to four significant digits."""
    exact = Decimal(repr(value))
    return usd(round(exact, max(6, 3 - exact.adjusted())))


@register.filter
def when(moment: datetime | None) -> str | SafeString:
    """Write a moment in UTC; the page's script converts it to the reader's zone and language."""
    if moment is None:
        return _NOTHING
    utc = moment.astimezone(UTC)
    return format_html(
        '<time datetime="{}">{}</time>', utc.isoformat(timespec="seconds"), utc.strftime("%Y-%m-%d %H:%M UTC")
    )
