"""Live updates in a real browser: new requests are counted and loaded, a hidden tab and the switch close the stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.axe import assert_accessible
from tests.browser.test_every_page import problems, visit
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import World, make_key
from tests.support.chromium import PROGRAM, Browser, chromium
from tests.support.console_client import page

pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
]
STATE = "document.querySelector('[data-live]').dataset.state"
LINK = "document.querySelector('[data-live-link]')"


def hide(browser: Browser, *, is_hidden: bool) -> None:
    """Be a tab behind another one, or in front again."""
    value = str(is_hidden).lower()
    browser.run(f"Object.defineProperty(document, 'hidden', {{value: {value}, configurable: true}})")
    browser.run("document.dispatchEvent(new Event('visibilitychange'))")


def test_new_requests_are_counted_and_loaded(world: World, live_server: Any, tmp_path: Path) -> None:
    key = make_key(world.olivia, world.project).key
    write(entry(key, id=id_at(ago(minutes=1)), used_model="first"))
    with chromium(tmp_path) as browser:
        visit(browser, live_server.url, world.olivia)
        browser.open(f"{live_server.url}{page(world.acme, 'logs')}?provider=openai")
        browser.wait(f"{STATE} === 'live'")
        assert browser.run(f"{LINK}.hidden") is True
        write(entry(key, used_model="second"), entry(key, used_provider="azure"))
        browser.wait(f"{LINK}.textContent === '1 new request'")
        write(entry(key, used_model="third"))
        browser.wait(f"{LINK}.textContent === '2 new requests'")
        assert_accessible(browser)
        browser.click("[data-live-link]")
        browser.wait("document.querySelectorAll('.cards tbody tr').length === 3")
        assert browser.run("location.search") == "?provider=openai"
        assert problems(browser) == []


def test_a_hidden_tab_and_the_switch_close_the_stream(world: World, live_server: Any, tmp_path: Path) -> None:
    key = make_key(world.olivia, world.project).key
    write(entry(key, id=id_at(ago(minutes=1))))
    with chromium(tmp_path) as browser:
        visit(browser, live_server.url, world.olivia)
        browser.open(live_server.url + page(world.acme))
        browser.wait(f"{STATE} === 'live'")
        hide(browser, is_hidden=True)
        browser.wait(f"{STATE} === 'paused'")
        hide(browser, is_hidden=False)
        browser.wait(f"{STATE} === 'live'")
        browser.click("[data-live-switch]")
        browser.wait(f"{STATE} === 'off'")
        browser.open(live_server.url + page(world.acme, "logs"))
        browser.wait(f"{STATE} === 'off'")
        assert browser.run("document.querySelector('[data-live-switch]').getAttribute('aria-pressed')") == "false"
        browser.click("[data-live-switch]")
        browser.wait(f"{STATE} === 'live'")
        assert problems(browser) == []
