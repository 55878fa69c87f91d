"""Every page of the console and every open one: accessible, light, narrow enough for phones, in the reader's numbers.

The pages are those of the route table (`console_pages`), filled and empty. `CONSOLE_PICTURES` names a folder that gets
a picture of each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from apps.console.browser_session import COOKIE
from apps.organizations.credentials.sessions import start_session
from apps.organizations.models import Organization, User
from tests.browser import console_pages
from tests.browser.axe import ALL_LOOKS, LOOKS, NARROW, WIDE, look, screenshot, violations
from tests.support.cast import World
from tests.support.chromium import PROGRAM, Browser, chromium
from tests.support.console_client import Visitor
from tests.support.landmarks import repeated_landmarks
from tests.support.mcp_stand_in import StandIn, _mcp_server, mcp_server
from tests.support.payments import _stub, stripe
from tests.support.shipped_catalog import stock
from tests.support.stripe_stub import StripeStub

__all__ = ["_mcp_server", "_stub", "mcp_server", "stripe"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.stack]
in_a_browser = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium")
PICTURES = os.environ.get("CONSOLE_PICTURES")
# Tests of pages one by one; each has a share of them.
SHARES = 6
# Bytes of a page with all that it loads, as they are sent.
MAX_BYTES = 160_000
# Pixels of one line of the bar above a page.
MAX_BAR_HEIGHT = 60
# Texts with English numbers, except text quoted as a machine writes it and text that the script wrote itself.
_ENGLISH_NUMBERS = r"""
    (() => {
        const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        const english = /\$\d|\d,\d{3}(?!\d)|(?<![\w.:\/-])\d+\.\d+(?![\w.-])|\d%/;
        const aside = 'code, pre, script, style, textarea, option, data[data-shown], h1, .details';
        while (walker.nextNode()) {
            const text = walker.currentNode;
            const quoted = text.parentElement.closest(aside);
            if (!quoted && english.test(text.textContent)) found.push(text.textContent.trim().slice(0, 80));
        }
        return found;
    })()
"""
_BYTES = """
    (async () => {
        const entries = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
        return entries.reduce((sum, one) => sum + one.encodedBodySize, 0);
    })()
"""


def visit(browser: Browser, url: str, user: User | None) -> None:
    """Be this visitor from now on."""
    browser.ask("Network.clearBrowserCookies")
    if user is not None:
        browser.ask("Network.setCookie", name=COOKIE, value=start_session(user), url=url)


def complaints(browser: Browser, address: str, name: str) -> Iterator[str]:
    """Open a page; yield what is wrong with it."""
    look(browser, "light", WIDE)
    browser.open(address)
    yield from complaints_of_shown_page(browser, name)


def complaints_of_shown_page(browser: Browser, name: str) -> Iterator[str]:
    """Yield what is wrong with the page that is shown."""
    # Wait until scripts have drawn their charts.
    browser.wait("!document.querySelector('[data-chart]') || document.querySelector('[data-chart] svg')")
    if (sent := browser.run(_BYTES)) > MAX_BYTES:
        yield f"{name}: {sent} bytes"
    browser.run("for (const one of document.querySelectorAll('main details')) one.open = true")
    for seen, found in violations(browser, LOOKS).items():
        yield from (f"{name}, {seen}: {one}" for one in found)
    look(browser, "light", NARROW)
    if (width := browser.run("document.documentElement.scrollWidth")) > NARROW[0]:
        yield f"{name}: {width} pixels wide on a phone"
    browser.run("document.querySelectorAll('.switcher > summary').forEach((one) => one.append(' of a long name'))")
    if (height := browser.run("document.querySelector('.topbar')?.offsetHeight ?? 0")) > MAX_BAR_HEIGHT:
        yield f"{name}: the bar above is {height} pixels high on a phone"
    for scheme, size in ALL_LOOKS if PICTURES else ():
        look(browser, scheme, size)
        width = "wide" if size == WIDE else "narrow"
        screenshot(browser, Path(str(PICTURES)) / f"{name}-{scheme}-{width}.png", full=True)


def problems(browser: Browser) -> list[str]:
    """Return what the browser complained about, but for its hints on forms with several passwords."""
    return [one for one in browser.problems if not one.startswith("[DOM]")]


def share(number: int, names: list[str]) -> list[str]:
    """Return this share of some names."""
    return names[number::SHARES]


def test_every_route_is_a_page_that_is_looked_at_or_none(world: World, stripe: StripeStub, mcp_server: StandIn) -> None:
    ids = console_pages.fill(world, stripe, mcp_server)
    olivia = Visitor(world.olivia)
    for name in console_pages.pages():
        answer = olivia.open(console_pages.path_of(name, ids))
        assert (answer.status_code, b"<h1>" in answer.content) == (200, True), name
        assert repeated_landmarks(answer.content.decode()) == [], name
    others = {"asked": "chat", "sink_id": "x", "destination_id": "x", "card_id": "x", "number": 0}
    for name in console_pages.NO_PAGE:
        answer = olivia.open(console_pages.path_of(name, ids, **others))
        is_page = not answer.streaming and answer.status_code == 200 and b"<h1>" in answer.content
        assert not is_page, name
    assert set(console_pages.routes()) > console_pages.NO_PAGE


def test_landmarks_of_one_role_and_name_are_found() -> None:
    keys = '<section aria-labelledby="keys"><h2 id="keys">API <em>keys</em></h2>%s</section>'
    assert repeated_landmarks(keys % '<div role="region" aria-label="api keys"></div>') == [("region", "api keys")]
    assert repeated_landmarks("<nav></nav><nav><br></nav>") == [("navigation", "")]
    # A group is no landmark, nor is a section without a name; other roles and hidden parts do not count.
    assert repeated_landmarks(keys % '<div role="group" aria-labelledby="keys"></div><section></section>') == []
    assert repeated_landmarks(keys % '<nav aria-label="API keys"></nav><div hidden><nav></nav></div><nav></nav>') == []


@in_a_browser
@pytest.mark.long
@pytest.mark.parametrize("number", range(SHARES))
def test_a_filled_page_is_good(
    number: int, world: World, stripe: StripeStub, mcp_server: StandIn, live_server: Any, tmp_path: Path
) -> None:
    ids = console_pages.fill(world, stripe, mcp_server)
    with chromium(tmp_path) as browser:
        visit(browser, live_server.url, world.olivia)
        found = [
            one
            for name in share(number, console_pages.pages())
            for one in complaints(browser, live_server.url + console_pages.path_of(name, ids), name)
        ]
        assert [*found, *problems(browser)] == []


@in_a_browser
@pytest.mark.long
def test_a_page_that_answers_a_form_is_good(
    world: World, stripe: StripeStub, mcp_server: StandIn, live_server: Any, tmp_path: Path
) -> None:
    ids = console_pages.fill(world, stripe, mcp_server)
    # Page, texts for its form, selectors to click, and an element of the answer.
    forms: list[tuple[str, dict[str, str], tuple[str, ...], str]] = [
        ("mcp_server", {}, ("form[action$='/look'] button",), "#tools ~ .table-wrap"),
        ("limits", {"[name=counts]": "requests", "[name=amount]": "1"}, ("[name=preview]",), "#preview ~ .table-wrap"),
        ("key", {}, ("[value=rotate]",), "#token"),
        ("management_keys", {"[name=name]": "Terraform"}, ("[name=scopes]", "main .form .primary"), "#token"),
    ]
    with chromium(tmp_path) as browser:
        visit(browser, live_server.url, world.olivia)
        found = []
        for name, fields, clicked, shown in forms:
            look(browser, "light", WIDE)
            browser.open(live_server.url + console_pages.path_of(name, ids))
            for selector, value in fields.items():
                browser.fill(selector, value)
            for selector in clicked:
                browser.click(selector)
            browser.wait(f"document.readyState === 'complete' && document.querySelector('{shown}')")
            found += complaints_of_shown_page(browser, f"{name}-sent")
        for name, model in (("own_server", "llama3.2:latest"), ("provider_models", "old-model")):
            address = f"{live_server.url}{console_pages.path_of(name, ids)}?model={model}"
            found += complaints(browser, address, f"{name}-chosen")
        assert [*found, *problems(browser)] == []


@in_a_browser
@pytest.mark.long
@pytest.mark.parametrize("number", range(SHARES))
def test_a_page_with_nothing_to_show_is_good(number: int, world: World, live_server: Any, tmp_path: Path) -> None:
    stock()
    ids = {"organization_id": Organization.objects.get(name="Elsewhere").id, "kind": "blocked_terms"}
    with chromium(tmp_path) as browser:
        visit(browser, live_server.url, world.sam)
        found = []
        for name in share(number, console_pages.pages()):
            try:
                path = console_pages.path_of(name, ids)
            except KeyError:
                continue
            found += complaints(browser, live_server.url + path, f"{name}-empty")
        assert [*found, *problems(browser)] == []


@in_a_browser
@pytest.mark.long
def test_a_page_outside_of_any_session_is_good(
    world: World, live_server: Any, tmp_path: Path, settings: Settings
) -> None:
    stock()
    pages = {
        "welcome": "/",
        "models": "/models",
        "models-found": "/models?q=claude",
        "models-none": "/models?q=nothing-like-it",
        "model": "/models/claude-sonnet-4-5",
        **{name: console_pages.path_of(name, {}) for name in console_pages.OUTSIDE},
        "not-found": "/app/nowhere",
        "verify-email": "/verify-email?token=x",
        "reset-password": "/reset-password?token=x",
        "change-email": "/change-email?token=x",
    }
    with chromium(tmp_path) as browser:
        visit(browser, live_server.url, None)
        found = [one for name, path in pages.items() for one in complaints(browser, live_server.url + path, name)]
        settings.SIGN_UP = "closed"
        found += complaints(browser, f"{live_server.url}/app/sign-up", "sign-up-closed")
        settings.SIGN_UP = "invite"
        found += complaints(browser, f"{live_server.url}/app/sign-up", "sign-up-by-invitation")
        visit(browser, live_server.url, world.olivia)
        found += complaints(browser, f"{live_server.url}/app/o/{world.elsewhere.id}/", "forbidden")
        assert found == []


@in_a_browser
@pytest.mark.long
@pytest.mark.parametrize(
    ("locale", "credits_left", "spent", "uptime"),
    [
        ("en-US", "$3,734.50", "$0.0008536", "99.87%"),
        ("de-DE", "3.734,50 $", "0,0008536 $", "99,87 %"),
        ("fr-FR", "3 734,50 $US", "0,0008536 $US", "99,87 %"),
    ],
)
def test_every_page_writes_numbers_as_its_reader_does(
    locale: str,
    credits_left: str,
    spent: str,
    uptime: str,
    world: World,
    stripe: StripeStub,
    mcp_server: StandIn,
    live_server: Any,
    tmp_path: Path,
) -> None:
    ids = console_pages.fill(world, stripe, mcp_server)
    pages = {name: console_pages.path_of(name, ids) for name in console_pages.pages()}
    pages |= {"models": "/models", "model": "/models/claude-sonnet-4-5", "welcome": "/"}
    found: dict[str, list[str]] = {}
    told: dict[str, str] = {}
    with chromium(tmp_path) as browser:
        browser.ask("Emulation.setLocaleOverride", locale=locale)
        visit(browser, live_server.url, world.olivia)
        for name, path in pages.items():
            browser.open(live_server.url + path)
            browser.wait("document.querySelectorAll('data[data-number]:not([data-shown])').length === 0")
            told[name] = " ".join(browser.text().split())
            if locale != "en-US" and (english := browser.run(_ENGLISH_NUMBERS)):
                found[name] = english
    assert found == {}
    assert credits_left in told["billing"]
    assert spent in told["one_log"]
    assert uptime in told["one_log"]
