"""The admin in a real browser under a policy without `unsafe-eval`: every page is quiet, and what moves still moves."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.urls import reverse

from apps.organizations.models import User
from tests.browser import console_pages
from tests.browser.axe import NARROW, WIDE, look
from tests.browser.operators import sign_in_operator, write_traffic
from tests.browser.test_every_admin_page import pages
from tests.support.cast import World
from tests.support.chromium import PROGRAM, Browser, chromium
from tests.support.mcp_stand_in import StandIn, _mcp_server, mcp_server
from tests.support.payments import _stub, stripe
from tests.support.stripe_stub import StripeStub

__all__ = ["_mcp_server", "_stub", "mcp_server", "stripe"]
ALPINE = "0d18d7f8d7910e2e0212f0f056b12f50bebc3abb7d88d2f7c7cb4c336fe4519a"
browser_test = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
    pytest.mark.long,
]


def test_alpine_is_the_file_that_npm_has() -> None:
    file = settings.BASE_DIR / "gateway_project/static/admin_site/alpine-csp-3.17.4.min.js"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == ALPINE


def shown(browser: Browser, selector: str) -> bool:
    """Return whether an element is to be seen."""
    return bool(browser.run(f"document.querySelector({selector!r})?.checkVisibility() ?? false"))


def press(browser: Browser, key: str, code: int, modifiers: int = 0) -> None:
    """Press and release a key; modifier 2 is Control."""
    for kind in ("keyDown", "keyUp"):
        browser.ask(
            "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, modifiers=modifiers, code=key
        )


class TestInABrowser:
    pytestmark = browser_test

    def test_every_page_is_quiet(
        self, world: World, stripe: StripeStub, mcp_server: StandIn, live_server: Any, tmp_path: Path
    ) -> None:
        console_pages.fill(world, stripe, mcp_server)
        write_traffic(world, 12)
        with chromium(tmp_path) as browser:
            sign_in_operator(browser, live_server.url)
            found = []
            paths = ["/admin/", *pages(User.objects.get(email="op@example.com"))]
            for path in paths:
                browser.open(live_server.url + path)
                browser.wait("window.Alpine?.version === '3.17.4' && !document.querySelector('html[x-cloak]')")
                found += [f"{path}: {one}" for one in browser.problems if not one.startswith(("[DOM]", "Autofocus"))]
                browser.problems.clear()
            assert "\n".join(found) == ""
            assert len(paths) > 40

    def test_what_moves_still_moves(
        self, world: World, stripe: StripeStub, mcp_server: StandIn, live_server: Any, tmp_path: Path
    ) -> None:
        console_pages.fill(world, stripe, mcp_server)
        write_traffic(world, 12)
        with chromium(tmp_path) as browser:
            sign_in_operator(browser, live_server.url)
            look(browser, "light", WIDE)
            for page, part in (
                ("", self._dashboard),
                ("guardrails/customrule/", self._list),
                ("guardrails/customrule/add/", self._form),
                ("catalog/provider/openai/change/", self._action),
            ):
                browser.open(f"{live_server.url}/admin/{page}")
                browser.wait("window.Alpine && !document.querySelector('html[x-cloak]')")
                part(browser)
            assert [one for one in browser.problems if not one.startswith(("[DOM]", "Autofocus"))] == []

    def _dashboard(self, browser: Browser) -> None:
        browser.wait("Object.keys(Chart.instances).length === 4")
        self._account_and_theme(browser)
        self._navigation(browser)
        self._search(browser)
        self._commands(browser)

    def _account_and_theme(self, browser: Browser) -> None:
        menu, opener = "nav[aria-label='Account']", "button[aria-haspopup='true'][aria-expanded]"
        assert not shown(browser, menu)
        browser.click(opener)
        browser.wait(f'document.querySelector("{menu}").checkVisibility()')
        for theme, dark in (("dark", True), ("light", False)):
            browser.click(f"[x-on\\:click=\"switchTheme('{theme}')\"]")
            browser.wait(f"document.documentElement.classList.contains('dark') === {str(dark).lower()}")
            browser.wait(f"localStorage.getItem('adminTheme') === '\"{theme}\"'")
        browser.click("main h1")
        browser.wait(f'!document.querySelector("{menu}").checkVisibility()')

    def _navigation(self, browser: Browser) -> None:
        button = "[aria-label='Show or hide navigation']"
        assert shown(browser, "#nav-sidebar-apps")
        browser.click(button)
        browser.wait("!document.querySelector('#nav-sidebar-apps').checkVisibility()")
        browser.wait("localStorage.getItem('sidebarDesktopOpen') === '0'")
        browser.ask("Page.reload")
        browser.wait("window.Alpine && document.readyState === 'complete' && !document.querySelector('html[x-cloak]')")
        browser.wait("!document.querySelector('#nav-sidebar-apps').checkVisibility()")
        browser.click(button)
        browser.wait("document.querySelector('#nav-sidebar-apps').checkVisibility()")
        look(browser, "light", NARROW)
        browser.wait("!document.querySelector('#nav-sidebar-apps').checkVisibility()")
        browser.click("[aria-label='Open navigation']")
        browser.wait("document.querySelector('#nav-sidebar-apps').checkVisibility()")
        browser.click("[aria-label='Close navigation']")
        browser.wait("!document.querySelector('#nav-sidebar-apps').checkVisibility()")
        look(browser, "light", WIDE)

    def _search(self, browser: Browser) -> None:
        field = "#nav-filter"
        press(browser, "t", 84)
        browser.wait(f"document.activeElement.matches('{field}')")
        browser.ask("Input.insertText", text="Invoices")
        press(browser, "Shift", 16)
        browser.wait("document.querySelectorAll('#search-results a').length > 0")
        browser.wait("document.querySelector('#search-results').checkVisibility()")
        press(browser, "ArrowDown", 40)
        browser.wait("document.querySelector('#search-results a').classList.contains('bg-base-100')")
        press(browser, "Escape", 27)
        browser.wait(f"document.querySelector('{field}').value === ''")
        browser.wait("!document.querySelector('#search-results').checkVisibility()")
        press(browser, "Escape", 27)
        browser.wait(f"!document.activeElement.matches('{field}')")

    def _commands(self, browser: Browser) -> None:
        press(browser, "k", 75, modifiers=2)
        browser.wait("document.activeElement.matches('#search-input-command')")
        browser.ask("Input.insertText", text="Invoices")
        press(browser, "Shift", 16)
        browser.wait("document.querySelectorAll('#command-results-list li').length > 0")
        press(browser, "ArrowDown", 40)
        browser.wait("document.querySelector('#command-results-list li .active, #command-results-list li.active')")
        press(browser, "Escape", 27)
        press(browser, "Escape", 27)
        browser.wait("!document.querySelector('#search-input-command').checkVisibility()")

        # Enter opens the marked entry.
        browser.run("document.querySelector('#nav-filter').focus()")
        browser.ask("Input.insertText", text="Invoices")
        press(browser, "Shift", 16)
        browser.wait("document.querySelectorAll('#search-results a').length > 0")
        press(browser, "ArrowDown", 40)
        press(browser, "Enter", 13)
        browser.wait("location.pathname === '/admin/billing/invoice/' && document.readyState === 'complete'")

    def _list(self, browser: Browser) -> None:
        browser.click("[x-on\\:click='filterOpen = true']")
        browser.wait("document.querySelector('#changelist-filter').checkVisibility()")
        press(browser, "Escape", 27)
        browser.wait("!document.querySelector('#changelist-filter').checkVisibility()")
        press(browser, "/", 191)
        browser.wait("document.activeElement.matches('#searchbar')")

    def _form(self, browser: Browser) -> None:
        form, action = "#customrule_form", reverse("admin:guardrails_customrule_add")
        browser.wait(f"document.querySelector('{form}').getAttribute('action') === '{action}'")
        for type_, seen, hidden in (("custom_regex", "pattern", "terms"), ("blocked_terms", "terms", "pattern")):
            browser.run(f"document.querySelector('#id_type').value = '{type_}'")
            browser.run("document.querySelector('#id_type').dispatchEvent(new Event('change', {bubbles: true}))")
            browser.wait(f"document.querySelector('#id_{seen}').checkVisibility()")
            assert not shown(browser, f"#id_{hidden}")
        # The related row's menu, which is moved to the end of the page and anchored to its button.
        menu = "#related-widget-wrapper-organization"
        assert not shown(browser, menu)
        browser.click("[x-ref='relatedWidgetWrapperorganization']")
        browser.wait(f"document.querySelector('{menu}').checkVisibility()")
        browser.click("main h1")
        browser.wait(f"!document.querySelector('{menu}').checkVisibility()")

    def _action(self, browser: Browser) -> None:
        button = "[...document.querySelectorAll('main a')].find((one) => one.textContent.includes('Switch off'))"
        browser.run(f"{button}.click()")
        browser.wait("location.pathname !== '/admin/catalog/provider/openai/change/'")
        browser.wait("document.readyState === 'complete' && document.querySelector('main form button')")
        assert shown(browser, "main form button")
