"""The search box of the log in a real browser: suggestions that follow the typed text, and the lists behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.axe import assert_accessible
from tests.browser.test_every_page import problems, visit
from tests.logs.entries import entry, write
from tests.support.cast import World, make_key
from tests.support.chromium import PROGRAM, Browser, chromium
from tests.support.console_client import page

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
]
SUGGESTED = "[...document.querySelectorAll('.suggestions a')].map((one) => one.textContent).join('|')"


def write_into_box(browser: Browser, text: str) -> None:
    browser.run("document.getElementById('log-text').focus()")
    browser.run("document.getElementById('log-text').value = ''")
    browser.ask("Input.insertText", text=text)


def test_suggestions_follow_what_is_typed(world: World, live_server: Any, tmp_path: Path) -> None:
    key = make_key(world.olivia, world.project).key
    write(entry(key, used_model="falcon-7b", session_id="falcon-run"), entry(key, used_model="owl"))
    with chromium(tmp_path) as browser:
        visit(browser, live_server.url, world.olivia)
        browser.open(live_server.url + page(world.acme, "logs"))
        write_into_box(browser, "falc")
        browser.wait(f"{SUGGESTED} === 'Model falcon-7b|Session falcon-run'")
        assert_accessible(browser)
        write_into_box(browser, "ow")
        browser.wait(f"{SUGGESTED} === 'Model owl'")
        browser.click(".suggestions a")
        browser.wait("location.search === '?model=owl' && document.querySelectorAll('.cards tbody tr').length === 1")
        assert problems(browser) == []
