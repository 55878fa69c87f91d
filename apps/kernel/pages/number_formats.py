"""Number formats of pages: counts, amounts, shares and times as people read them, and marked numbers in texts.

Templates mark the numbers of a text with the filter `numbers` (`{% load numbers %}`).
"""

from __future__ import annotations

import re
from datetime import datetime
from decimal import Decimal

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import get_language_bidi

NOTHING = "\N{EN DASH}"


def count(number: float) -> str:
    """Return a count with thousands apart: `12,345`."""
    return f"{number:,.0f}"


def short_count(number: float) -> str:
    """Return a count of at most four digits: `12.3 M`."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            return f"{number / (1e3 if unit == 'k' else size):,.1f} {unit}"
    return count(number)


def usd(amount: Decimal) -> str:
    """Return an amount in USD, cents unless it is smaller than that: `$1,234.50`, `$0.000013`."""
    if amount and abs(amount) < Decimal("0.1"):
        digits = max(2, 1 - amount.adjusted())
        text = f"{abs(amount):.{digits}f}".rstrip("0")
    else:
        text = f"{abs(amount):,.2f}"
    return f"-${text}" if amount < 0 else f"${text}"


def exact_usd(amount: Decimal) -> str:
    """Return an amount in USD with all its digits, cents at least: `$1,234.50`, `$0.0000125`."""
    whole, _, fraction = f"{abs(amount):f}".partition(".")
    text = f"${int(whole):,}.{fraction.rstrip('0').ljust(2, '0')}"
    return f"-{text}" if amount < 0 else text


def rounded_usd(amount: Decimal) -> str:
    """Return an amount in USD with cents, below a dollar with four significant digits: `$1,234.57`, `$0.0008536`."""
    digits = 2 if not amount or abs(amount) >= 1 else max(2, 3 - amount.adjusted())
    whole, _, fraction = f"{abs(amount):.{digits}f}".partition(".")
    text = f"${int(whole):,}.{fraction.rstrip('0').ljust(2, '0')}"
    return f"-{text}" if amount < 0 else text


def share(part: float, whole: float) -> str:
    """Return a share in percent: `18.2%`; of nothing, a dash."""
    return percent(100 * part / whole) if whole else NOTHING


def percent(number: float) -> str:
    """Return a percentage: `100%`, `18.2%`; with a second digit near all and nothing, to which it never rounds:
    `99.87%`, `<0.01%`."""
    if 0 < number < 0.01:
        return "<0.01%"
    if 99.99 < number < 100:
        return ">99.99%"
    digits = 2 if number < 1 or 99 < number < 100 else 1
    return f"{number:,.{digits}f}".rstrip("0").rstrip(".") + "%"


def milliseconds(number: float | None) -> str:
    """Return a time given in milliseconds: `850 ms`, `1.25 s`, `2 min 5 s`."""
    if number is None:
        return NOTHING
    if number < 1_000:
        return _isolated(f"{number:.0f} ms")
    if number < 60_000:
        return _isolated(f"{number / 1000:.2f} s")
    return seconds(number / 1000)


def seconds(number: float) -> str:
    """Return a time given in seconds by its two largest units: `42 s`, `3 h 20 min`."""
    whole = round(number)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if whole >= size or (parts == [] and unit == "s"):
            parts.append(f"{whole // size} {unit}")
            whole %= size
        elif parts:
            break
        if len(parts) == 2:
            break
    return _isolated(" ".join(parts))


def _isolated(text: str) -> str:
    """Return a number with its unit so that a text from right to left does not turn them around."""
    return f"\N{LEFT-TO-RIGHT ISOLATE}{text}\N{POP DIRECTIONAL ISOLATE}" if get_language_bidi() else text


def moment(when: datetime) -> str:
    """Return a moment in UTC: `Nov 23, 14:05`."""
    return f"{when:%b} {when.day}, {when:%H:%M}"


# A number as `number_formats` and template filters write it: `12,345`, `-$0.00000135`, `<$0.01`, `1.25%`, in texts of
# other languages `1.25 %`; not inside a name such as `gpt-5`, a date or a version.
_NUMBER = re.compile(
    r"(?<![\w.:/-])[<>+\N{MINUS SIGN}]?-?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[ \xa0\u202f]?%)?(?![\w:/-]|[.,]\d)"
)


def mark_numbers(text: str) -> SafeString:
    """Return a text with its English numbers marked: `<data value="0.00000135" data-number="USD">$0.00000135</data>`.

    The value has the digits in the text. Other text is escaped.
    """
    parts: list[str] = []
    end = 0
    for found in _NUMBER.finditer(text):
        parts += [text[end : found.start()], _mark(found.group())]
        end = found.end()
    return format_html_join("", "{}", ((part,) for part in [*parts, text[end:]]))


def _mark(number: str) -> SafeString:
    unit = "USD" if "$" in number else "percent" if number.endswith("%") else ""
    return format_html('<data value="{}" data-number="{}">{}</data>', re.sub(r"[^\d.-]", "", number), unit, number)


register = template.Library()


@register.filter
def numbers(text: object) -> SafeString:
    """Mark the English numbers of a text, for the page's script to write them in the reader's locale."""
    return mark_numbers(str(text))
