"""Template tags and filters: form fields, amounts, times, charts."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join, json_script
from django.utils.safestring import SafeString
from django.utils.translation import gettext

from apps.alerts.models import AlertRule
from apps.alerts.sentences import in_reader_language
from apps.billing.models import Transaction, describe_payment
from apps.console.forms import ONCE, Form
from apps.console.labels import CAPABILITY_LABELS, SCRIPT_TEXTS
from apps.kernel.money import plain
from apps.kernel.pages import number_formats as as_text
from apps.kernel.pages.languages import gettext_lazy, translated
from apps.kernel.pages.number_formats import mark_numbers
from apps.limits.models import Limit

register = template.Library()
_CENT = Decimal("0.01")
_WORDS_OF_TRANSACTIONS = {
    "credit_topup": gettext_lazy("Top-up"),
    "credit_refund": gettext_lazy("Refund"),
    "credit_gift": gettext_lazy("Gift"),
}
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
def counted(text: str | None, counts: str) -> str | SafeString:
    """Format an amount of a limit, as its state has it: USD as `short_usd` does, or a whole number."""
    if text is None:
        return gettext("unknown")
    return short_usd(Decimal(text)) if counts == Limit.Counts.USD else mark_numbers(text)


@register.filter
def cents(value: Decimal | None) -> str:
    """Format USD rounded to cents; less than a cent as `<$0.01`."""
    if value is None:
        return _NOTHING
    return mark_numbers("<$0.01" if 0 < value < _CENT else f"{'-' if value < 0 else ''}${abs(value):,.2f}")


@register.filter
def what_it_was(row: Transaction) -> str:
    """Describe a transaction."""
    return _WORDS_OF_TRANSACTIONS.get(row.type) or translated(row.get_type_display().capitalize())


@register.filter
def payment_words(description: str) -> str:
    """Write the stored description of a transaction in the reader's language."""
    return describe_payment(description)


@register.filter
def words(value: object) -> str:
    """Write a value that the API has, or a label of a choice, in the reader's language (`apps.console.labels`)."""
    return translated(str(value))


@register.filter
def capability(name: str) -> str:
    """Write the name of a capability of an own server's model in the reader's language."""
    return translated(CAPABILITY_LABELS.get(name, name))


@register.filter
def capabilities(names: Iterable[str] | None) -> str:
    """Write the names of capabilities in the reader's language."""
    return ", ".join(map(capability, names or ()))


@register.filter
def alert_words(text: object) -> str:
    """Write a text of an alert, or an alert rule, in the reader's language."""
    return in_reader_language(str(text))


@register.filter
def naming(text: object, row: object) -> str:
    """Put the name of a row, or the words of an alert rule, into a text: `Remove the log sink {name}?`."""
    return format_html(str(text), name=row_words(row))


@register.filter
def row_words(row: object) -> str | SafeString:
    """Write the name of a row as it is, and the words of an alert rule with their numbers marked."""
    written = alert_words(row)
    return mark_numbers(written) if isinstance(row, AlertRule) else written


@register.simple_tag
def script_texts() -> SafeString:
    """Write the texts of scripts in the reader's language, for console/language.js."""
    return json_script({text: gettext(text) for text in SCRIPT_TEXTS if gettext(text) != text}, "script-texts")


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
    named = {0: gettext("today"), 1: gettext("yesterday")}
    return named.get((datetime.now(UTC).date() - day).days, day.isoformat())


@register.filter
def sparkline(counts: Sequence[int]) -> SafeString:
    """Draw a bar for each count, the last of which is today's; the counts are its name for screen readers."""
    most = max([1, *counts])
    bars = [(index, max(24 * count / most, 2), "" if count else "none") for index, count in enumerate(counts)]
    return format_html(
        '<svg class="sparkline" viewBox="0 0 {} 24" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>',
        len(counts),
        gettext("Requests of each of the last {days} days: {counts}").format(
            days=len(counts), counts=", ".join(map(str, counts))
        ),
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
    return _NOTHING if value is None else percent(100 * value)


@register.filter
def percent(value: float) -> SafeString:
    """Format a percentage."""
    return mark_numbers(as_text.percent(value))


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
def when(moment: datetime | str | None) -> str | SafeString:
    """Write a moment (a text is ISO 8601) in UTC; the page's script converts it to the reader's zone and language."""
    if moment is None:
        return _NOTHING
    utc = (datetime.fromisoformat(moment) if isinstance(moment, str) else moment).astimezone(UTC)
    return format_html(
        '<time datetime="{}">{}</time>', utc.isoformat(timespec="seconds"), utc.strftime("%Y-%m-%d %H:%M UTC")
    )
