"""Lists on a phone: a row is a card whose fields name their columns, no list is wider than the screen, and a full page
is not too long."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from apps.organizations.models import User
from tests.browser import console_pages
from tests.browser.axe import NARROW, assert_accessible, look
from tests.browser.operators import sign_in_operator, write_traffic
from tests.browser.test_every_admin_page import pages as admin_pages
from tests.browser.test_every_page import visit
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import World, make_key
from tests.support.chromium import PROGRAM, Browser, chromium
from tests.support.console_client import page
from tests.support.mcp_stand_in import StandIn, _mcp_server, mcp_server
from tests.support.payments import _stub, stripe
from tests.support.shipped_catalog import stock
from tests.support.stripe_stub import StripeStub

__all__ = ["_mcp_server", "_stub", "mcp_server", "stripe"]
pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
]
PHONE = (390, 844)
# Pixels of a page with 50 rows.
MAX_HEIGHT = 9_000
# Lists of the console.
LISTS = (
    *("overview", "logs", "refusals", "usage", "log_sinks", "keys", "key", "programs", "projects", "provider_keys"),
    *("provider_models", "mcp_servers", "mcp_server", "management_keys", "audit", "members", "billing"),
    *("transactions", "statement", "account", "organizations", "custom_rules", "violations"),
    *("limits", "team", "sessions", "alerts", "alert_rules", "alert_destinations"),
)
# How much wider than their room a page and its tables are, by what it is of.
_WIDER = """
    [document.documentElement, ...document.querySelectorAll('.table-wrap:has(> .cards)')]
        .map((one) => one.scrollWidth - one.clientWidth).filter((one) => one > 0)
"""
# Cells past the first that have neither a label nor anything to press.
_UNNAMED = """
    [...document.querySelectorAll('.cards tbody tr > td:not(:first-child)')]
        .filter((one) => one.offsetHeight && !one.dataset.label && !one.querySelector('a, button, form, .badge')
            && !one.matches('.whole')).map((one) => one.textContent.trim())
"""
# The labels that the first card shows.
_LABELS = """
    [...document.querySelectorAll('.cards tbody tr:first-child > [data-label]')]
        .map((one) => JSON.parse(getComputedStyle(one, '::before').content).trim())
"""


def on_phone(browser: Browser) -> None:
    look(browser, "light", NARROW)
    width, height = PHONE
    browser.ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True)


def test_no_list_is_wider_than_a_phone_and_every_field_is_named(
    world: World, stripe: StripeStub, mcp_server: StandIn, live_server: Any, tmp_path: Path
) -> None:
    ids = console_pages.fill(world, stripe, mcp_server)
    paths = {name: console_pages.path_of(name, ids) for name in LISTS if name in console_pages.pages()}
    found = {}
    with chromium(tmp_path) as browser:
        visit(browser, live_server.url, world.olivia)
        on_phone(browser)
        for name, path in {**paths, "models": "/models", "model": "/models/claude-sonnet-4-5"}.items():
            browser.open(live_server.url + path)
            found[name] = (browser.run(_WIDER), browser.run(_UNNAMED))
    assert found == {name: ([], []) for name in found}
    assert len(found) > 20


def test_fifty_requests_are_read_on_a_phone(world: World, live_server: Any, tmp_path: Path) -> None:
    key = make_key(world.olivia, world.project, "Web shop").key
    write(
        *(
            entry(
                key,
                id=id_at(ago(minutes=age)),
                content="Our rooibos, peppermint and fennel teas have no caffeine at all.",
                retention_level="retain",
                time_to_first_token=640,
                prompt_tokens=1_840,
                completion_tokens=312,
                cost=Decimal("0.000853612345"),
            )
            for age in range(51)
        )
    )
    with chromium(tmp_path) as browser:
        visit(browser, live_server.url, world.olivia)
        on_phone(browser)
        browser.open(live_server.url + page(world.acme, "logs"))
        assert browser.run("document.querySelectorAll('.cards tbody tr').length") == 50
        assert browser.run("document.documentElement.scrollHeight") < MAX_HEIGHT
        card = browser.text(".cards tbody tr")
        for part in ("gpt-5", "Our rooibos", "Web shop", "1,840", "312 out", "$0.0008536", "first 0.64"):
            assert part in card, part
        assert browser.run(_LABELS) == ["Answer", "Key", "Tokens", "Cost", "Seconds"]
        assert browser.run("getComputedStyle(document.querySelector('.cards thead')).position") == "absolute"
        assert_accessible(browser)


# How many different beginnings cells and their values have, in pixels; and whether no cell is beside another.
_COMPARED = """
    (() => {
        const cells = [...document.querySelectorAll('.comparison tbody td')], range = document.createRange();
        const begins = cells.map((td) => {
            range.selectNodeContents(td);
            return Math.round(Math.min(...[...range.getClientRects()].map((one) => one.left)));
        });
        const boxes = cells.map((td) => td.getBoundingClientRect());
        return [
            new Set(boxes.map((box) => Math.round(box.left))).size,
            new Set(begins).size,
            boxes.every((box, place) => !place || Math.ceil(box.top) >= Math.floor(boxes[place - 1].bottom)),
        ];
    })()
"""


def test_compared_models_stand_beneath_each_other_on_a_phone(db: None, live_server: Any, tmp_path: Path) -> None:
    stock()
    with chromium(tmp_path) as browser:
        on_phone(browser)
        browser.open(f"{live_server.url}/models/compare?model=gpt-5&model=claude-opus-4-5&model=gemini-2.5-pro")
        assert browser.run("document.querySelectorAll('.comparison tbody td').length") > 60
        assert browser.run(_COMPARED) == [1, 1, True]
        assert browser.run(_WIDER) == []
        assert_accessible(browser)


@pytest.mark.long
def test_no_list_of_operators_is_wider_than_a_phone(
    world: World, stripe: StripeStub, mcp_server: StandIn, live_server: Any, tmp_path: Path
) -> None:
    console_pages.fill(world, stripe, mcp_server)
    write_traffic(world, 12)
    found = {}
    with chromium(tmp_path) as browser:
        sign_in_operator(browser, live_server.url)
        on_phone(browser)
        lists = [path for path in admin_pages(User.objects.get(email="op@example.com")) if path.count("/") == 4]
        for path in lists:
            browser.open(live_server.url + path)
            wider = browser.run("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            found[path] = max(wider, 0)
    assert found == dict.fromkeys(lists, 0)
    assert len(lists) > 30
