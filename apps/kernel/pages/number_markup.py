"""Number markup: marks numbers in a text as `<data>` elements, which the page's script writes in the reader's locale.

Readers without scripts see the English text. Pure.
"""

from __future__ import annotations

import re

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

# A number as `number_formats` and template filters write it: `12,345`, `-$0.00000135`, `1.25%`; not inside a name such
# as `gpt-5`, a date or a version.
_NUMBER = re.compile(r"(?<![\w.:/-])-?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?%?(?![\w:/-]|[.,]\d)")


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
    return format_html('<data value="{}" data-number="{}">{}</data>', re.sub("[$,%]", "", number), unit, number)
