"""Numbers in a page that reads from right to left keep their own order: a sign stands before its number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apps.kernel.pages.number_formats import mark_numbers
from tests.browser.test_every_page import visit
from tests.support.cast import World
from tests.support.chromium import PROGRAM, chromium
from tests.support.console_client import page

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
]
# The characters of each number as the page shows them, from left to right.
_SEEN = """
    [...document.querySelectorAll('#numbers data')].map((data) => {
        const range = document.createRange(), text = data.firstChild;
        const at = [...text.data].map((character, place) => {
            range.setStart(text, place);
            range.setEnd(text, place + 1);
            return [range.getBoundingClientRect().left, character];
        });
        return at.sort((one, other) => one[0] - other[0]).map((one) => one[1]).join('').replace(/\\s/g, ' ');
    })
"""


def test_a_sign_stays_before_its_number(world: World, live_server: Any, tmp_path: Path) -> None:
    world.olivia.language = "ar"
    world.olivia.save()
    written = ("$0.01", "<$0.01", "-$3.00", "+$0.02", "\N{MINUS SIGN}$0.02", "66.7%", ">99.99%", "-1,250", "1.25 s")
    shown = " | ".join(mark_numbers(one) for one in written)
    with chromium(tmp_path) as browser:
        visit(browser, live_server.url, world.olivia)
        browser.open(live_server.url + page(world.acme))
        assert browser.run("document.documentElement.dir") == "rtl"
        added = json.dumps(f"<p id=numbers>{shown}</p>")
        browser.run(f"document.querySelector('main').insertAdjacentHTML('beforeend', {added})")
        browser.run("document.querySelector('main').dispatchEvent(new Event('htmx:afterSwap', {bubbles: true}))")
        assert browser.run(_SEEN) == [
            "0.01 US$",
            "<0.01 US$",
            "-3.00 US$",
            "+0.02 US$",
            "\N{MINUS SIGN}0.02 US$",
            "66.7%",
            ">99.99%",
            "-1,250",
            "1.25",
        ]
