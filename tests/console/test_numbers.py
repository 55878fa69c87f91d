"""Numbers of pages: English on the server whatever the reader's language, marked for the page's script; files and forms
stay as machines read them."""

from __future__ import annotations

import re
from decimal import Decimal

import pytest
from django.conf import LazySettings
from django.utils.translation import override

from apps.console.forms import PASSWORD_RULES
from apps.console.templatetags.console import figure, percent, seconds, share
from apps.kernel.pages.number_formats import mark_numbers
from apps.kernel.pages.number_formats import milliseconds as milliseconds_as_text
from apps.logs.rollup import roll_up
from tests.house.translations import read_sources
from tests.logs.entries import entry, write
from tests.support.cast import World, make_key
from tests.support.console_client import Visitor, page, words

# Values that differ each time a page is shown.
_TOKENS = re.compile(r'name="(csrfmiddlewaretoken|once)" value="[^"]+"')


@pytest.mark.parametrize(
    ("milliseconds", "shown"), [(None, "–"), (0, "0.000"), (4, "0.004"), (99, "0.099"), (100, "0.10"), (2_430, "2.43")]
)
def test_short_times_are_not_rounded_away(milliseconds: int | None, shown: str) -> None:
    assert re.sub("<[^>]+>", "", seconds(milliseconds)) == shown


@pytest.mark.parametrize(
    ("language", "shown"),
    [
        ("en", ["850 ms", "1.25 s", "2 min 5 s"]),
        ("ar", ["\u2066850 ms\u2069", "\u20661.25 s\u2069", "\u20662 min 5 s\u2069"]),
    ],
)
def test_times_keep_their_order_in_a_text_from_right_to_left(language: str, shown: list[str]) -> None:
    with override(language):
        assert [milliseconds_as_text(one) for one in (850, 1_250, 125_000)] == shown


def test_texts_write_percentages_in_one_form() -> None:
    assert [text.singular for text in read_sources() if re.search(r"[\d}s] %(?!\()", text.singular)] == []
    assert (share(0.1818), percent(100)) == (mark_numbers("18.2%"), mark_numbers("100%"))


# Numbers for scripts, and fields of forms.
_MARKS = re.compile(r'<data [^>]*>[^<]*</data>|name="\w+" value="[^"]*"')


@pytest.mark.parametrize("language", ["de", "fr-CH, fr;q=0.9", "ar", "<script>"])
def test_files_fields_and_marks_do_not_depend_on_the_readers_language(world: World, language: str) -> None:
    key = make_key(world.olivia, world.project, "Shop", Decimal("12345.5")).key
    write(entry(key, used_model="gpt-5", cost=Decimal("1234.5678"), prompt_tokens=123_456))
    roll_up()
    olivia = Visitor(world.olivia)
    for path in ("", "keys", f"keys/{key.id}", "usage", "logs", "billing"):
        marks, others = (
            _MARKS.findall(_TOKENS.sub("", olivia.client.get(page(world.acme, path), headers=said).content.decode()))
            for said in ({"accept": "text/html"}, {"accept": "text/html", "accept-language": language})
        )
        # Another language may have them in another order, and a word for one.
        assert set(others) - set(marks) == set(), path
        assert others
    shown = olivia.client.get(
        page(world.acme, f"keys/{key.id}"), headers={"accept-language": language}
    ).content.decode()
    assert 'name="usageLimit" value="12345.5"' in shown
    assert '<data value="12345.50" data-number="USD">$12,345.50</data>' in shown
    exported = olivia.client.get(
        page(world.acme, "usage/export?by=model&format=csv"), headers={"accept-language": language}
    )
    [_, line] = b"".join(exported.streaming_content).decode().splitlines()
    assert ("1234.5678" in line, "123456" in line) == (True, True)


def test_a_figure_keeps_its_digits_and_what_is_none_stays() -> None:
    assert figure(0.9132) == mark_numbers("0.9132")
    assert figure(99.87, "%") == mark_numbers("99.87%")
    assert figure(1234) == mark_numbers("1,234")
    assert figure(1e-7) == mark_numbers("0.0000001")
    assert (figure(None), figure(True), figure("high")) == ("\N{EN DASH}", True, "high")


def test_a_help_that_names_a_part_in_angle_brackets_is_read_as_it_is(world: World) -> None:
    shown = Visitor(world.olivia).open(page(world.acme, "logs"))
    assert "x-gateway-<name>, without x-gateway-" in words(shown)


def test_the_rules_of_passwords_are_those_in_force(settings: LazySettings) -> None:
    names = [one["NAME"].rpartition(".")[2] for one in settings.AUTH_PASSWORD_VALIDATORS]
    assert names == [
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    ]
    assert "At least 8 characters" in PASSWORD_RULES
