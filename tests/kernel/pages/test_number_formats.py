"""Numbers of texts, marked for the page's script."""

from __future__ import annotations

import pytest

from apps.kernel.pages.number_formats import mark_numbers, percent


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$0.00000135", '<data value="0.00000135" data-number="USD">$0.00000135</data>'),
        ("-$1,234.50", '<data value="-1234.50" data-number="USD">-$1,234.50</data>'),
        ("<$0.01", '<data value="0.01" data-number="USD">&lt;$0.01</data>'),
        ("+$0.02", '<data value="0.02" data-number="USD">+$0.02</data>'),
        ("(+200%)", '(<data value="200" data-number="percent">+200%</data>)'),
        ("\N{MINUS SIGN}5 s", '<data value="5" data-number="">\N{MINUS SIGN}5</data> s'),
        ("80\N{NO-BREAK SPACE}%", '<data value="80" data-number="percent">80\N{NO-BREAK SPACE}%</data>'),
        ("99.5%", '<data value="99.5" data-number="percent">99.5%</data>'),
        (
            "12,345 in, 7 <b>out</b>",
            '<data value="12345" data-number="">12,345</data> in, '
            '<data value="7" data-number="">7</data> &lt;b&gt;out&lt;/b&gt;',
        ),
        ("1.25 s", '<data value="1.25" data-number="">1.25</data> s'),
        ("gpt-5 on 2026-11-24 at 14:05, version 17.2.1", "gpt-5 on 2026-11-24 at 14:05, version 17.2.1"),
        ("\N{EN DASH}", "\N{EN DASH}"),
    ],
)
def test_numbers_are_marked_with_every_digit_and_names_are_left_alone(text: str, expected: str) -> None:
    assert mark_numbers(text) == expected


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0%"),
        (0.004, "<0.01%"),
        (0.04, "0.04%"),
        (18.18, "18.2%"),
        (50, "50%"),
        (98.97, "99%"),
        (99.87, "99.87%"),
        (99.995, ">99.99%"),
        (100, "100%"),
        (1234.56, "1,234.6%"),
    ],
)
def test_a_percentage_has_one_form_and_never_rounds_to_all_or_nothing(number: float, expected: str) -> None:
    assert percent(number) == expected
