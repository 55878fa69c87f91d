"""The console's pages of money and watch in a real browser: a card, a top-up, its invoice, a request, guardrails.

Every page is looked at by axe, light and dark, wide and narrow, and none may complain to its console.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from apps.billing.models import Transaction
from apps.console.browser_session import COOKIE
from apps.organizations.credentials.sessions import start_session
from tests.browser.axe import assert_accessible
from tests.browser.busy_acme import HOSTILE, stock_acme
from tests.support.cast import World, world
from tests.support.chromium import PROGRAM, Browser, chromium
from tests.support.console_client import page
from tests.support.mcp_stand_in import StandIn, _mcp_server, mcp_server
from tests.support.payments import _stub, stripe
from tests.support.stripe_stub import StripeStub

__all__ = ["_mcp_server", "_stub", "mcp_server", "stripe", "world"]
pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
    pytest.mark.long,
]


@pytest.fixture
def url(live_server: Any, settings: Settings) -> str:
    """Return where the console is; the payment processor's page leads back there."""
    settings.PUBLIC_URL = live_server.url
    return str(live_server.url)


@pytest.fixture
def log_id(world: World) -> str:
    """Stock Acme with what its pages show; return the id of a request that failed over."""
    return stock_acme(world)


def sign_in(browser: Browser, url: str, world: World) -> None:
    browser.ask("Network.setCookie", name=COOKIE, value=start_session(world.olivia), url=url)


def submit(browser: Browser, selector: str, then: str) -> None:
    browser.click(selector)
    browser.wait(f"document.readyState === 'complete' && ({then})")


def test_from_a_card_to_an_invoice_a_request_and_guardrails(
    url: str, world: World, stripe: StripeStub, mcp_server: StandIn, log_id: str, tmp_path: Path
) -> None:
    acme = f"{url}{page(world.acme)}"
    with chromium(tmp_path) as browser:
        sign_in(browser, url, world)
        browser.open(f"{acme}billing")
        assert_accessible(browser)
        submit(browser, "form[action$='/cards/new'] button", "document.querySelector('.messages .success')")
        assert "Visa ending in 4242 was added" in browser.text(".messages")
        browser.fill("#field-amount", "25")
        submit(browser, "form[action$='/top-up'] button", "document.body.innerText.includes('$25.00 were added')")
        assert_accessible(browser)
        assert stripe.paid() == [2500]
        submit(browser, "a[href*='/invoices/']", "document.title.startsWith('Invoice INV-000001')")
        assert "$25.00" in browser.text(".paper")
        assert_accessible(browser)
        row = Transaction.objects.get()
        assert (row.status, row.credit_amount) == ("completed", 25)

        browser.open(f"{acme}logs")
        browser.wait("document.querySelectorAll('tbody tr').length === 50")
        assert_accessible(browser)
        browser.open(f"{acme}logs/{log_id}")
        assert "First provider: azure (the best score)" in browser.text()
        assert HOSTILE in browser.text(".conversation")
        assert_accessible(browser)
        for path in ("refusals", "provider-keys", "mcp-servers", "playground", "billing/transactions"):
            browser.open(f"{acme}{path}")
            assert_accessible(browser)
        browser.open(f"{acme}mcp-servers")
        browser.fill("#field-name", "tickets")
        browser.fill("#field-url", mcp_server.url)
        submit(browser, "main form .primary", "document.querySelector('main tbody a')")
        submit(browser, "main tbody a", "document.querySelector('form[action$=\"/look\"]')")
        submit(browser, "form[action$='/look'] button", "document.body.innerText.includes('Says it again.')")
        assert_accessible(browser)
        for query in ("", "?by=tag"):
            browser.open(f"{acme}usage{query}")
            assert_accessible(browser)
        browser.open(f"{acme}billing/statements/{datetime.now(UTC):%Y-%m}")
        assert_accessible(browser)

        for path in ("guardrails", "guardrails/violations", "guardrails/rules/new/blocked_terms"):
            browser.open(f"{acme}{path}")
            assert_accessible(browser)
        browser.fill("#field-name", "House words")
        browser.fill("#field-terms", "moonshot")
        submit(browser, "main form .primary", "location.pathname.endsWith('/guardrails/rules')")
        assert_accessible(browser)
        browser.open(f"{acme}guardrails/try")
        browser.fill("#field-content", "All about moonshot")
        submit(browser, "main form .primary", "document.querySelector('mark')")
        assert browser.text("mark") == "moonshot"
        assert_accessible(browser)
        assert browser.problems == []
        assert "taken over" not in browser.run("document.title")
