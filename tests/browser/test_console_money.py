"""The console's pages of money and watch in a real browser: a card, a top-up, its invoice, a request, guardrails.

Every page is looked at by axe, light and dark, wide and narrow, and none may complain to its console.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from apps.billing.models import Transaction
from apps.console.browser_session import COOKIE
from apps.guardrails.models import Violation
from apps.logs.refusal_model import RefusedHour
from apps.organizations.models import Plan, RetentionLevel
from apps.organizations.sessions import start_session
from tests.browser.axe import assert_accessible
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import World, make_key, world
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
HOSTILE = "<script>document.title = 'taken over'</script>"


@pytest.fixture
def url(live_server: Any, settings: Settings) -> str:
    """Return where the console is; the payment processor's page leads back there."""
    settings.PUBLIC_URL = live_server.url
    return str(live_server.url)


@pytest.fixture
def log_id(world: World) -> str:
    """Stock Acme with what its pages show; return the id of a request that failed over."""
    world.acme.plan, world.acme.retention_level = Plan.ENTERPRISE, RetentionLevel.RETAIN
    world.acme.save()
    crawler = world.acme.projects.create(name="Crawler")
    keys = make_key(world.olivia, world.project, "Web shop").key, make_key(world.olivia, crawler, "Nightly crawl").key
    told = entry(
        keys[0],
        id=id_at(ago(minutes=2)),
        used_model="gpt-5-mini",
        duration=2_430,
        time_to_first_token=640,
        streamed=True,
        prompt_tokens=1_840,
        cached_tokens=1_024,
        completion_tokens=312,
        total_tokens=2_152,
        cost=Decimal("0.000853600000"),
        input_cost=Decimal("0.000204000000"),
        cached_input_cost=Decimal("0.000025600000"),
        output_cost=Decimal("0.000624000000"),
        temperature=0.2,
        custom_headers={"team": "search", "feature": HOSTILE},
        source="shop.example.com",
        finish_reason="stop",
        messages=[
            {"role": "system", "content": "You answer questions about our shop in one paragraph."},
            {"role": "user", "content": f"Which of your teas are decaffeinated? {HOSTILE}"},
        ],
        content="Our rooibos, peppermint and fennel teas have no caffeine at all.",
        retention_level=RetentionLevel.RETAIN,
        routing_metadata={
            "selectedProvider": "azure",
            "selectionReason": "weighted-score",
            "providerScores": [
                {"providerId": name, "score": score, "price": 0.6, "uptime": up, "latency": ms, "throughput": 92.4}
                for name, score, up, ms in (("azure", 0.9132, 99.87, 512.0), ("openai", 0.8871, 99.95, 634.5))
            ],
            "routing": [
                {
                    "provider": "azure",
                    "model": "gpt-5-mini-2026",
                    "status_code": 503,
                    "error_type": "upstream_error",
                    "succeeded": False,
                },
                {
                    "provider": "openai",
                    "model": "gpt-5-mini",
                    "status_code": 200,
                    "error_type": "none",
                    "succeeded": True,
                },
            ],
        },
    )
    models = (
        ("gpt-5", "openai", "0.412"),
        ("claude-sonnet-4-5", "anthropic", "0.287"),
        ("gemini-2.5-flash", "google", "0.041"),
    )
    others = [
        entry(
            keys[day % 2],
            id=id_at(ago(days=day, minutes=5 + number)),
            used_model=model,
            used_provider=provider,
            cost=Decimal(cost) * (1 + (day * 7 + number) % 5),
            prompt_tokens=900 * (1 + day % 4),
            completion_tokens=250,
            custom_headers={"team": ("search", "support")[number % 2]},
        )
        for day in range(25)
        for number, (model, provider, cost) in enumerate(models)
    ]
    failed = entry(
        keys[1],
        id=id_at(ago(minutes=1)),
        used_model=HOSTILE,
        used_provider="groq",
        has_error=True,
        status_code=502,
        unified_finish_reason="upstream_error",
        error_details={"status": 502, "type": "upstream_error", "code": "all_providers_failed", "message": HOSTILE},
    )
    write(*others, told, failed)
    now = datetime.now(UTC)
    for status, code, count in ((402, "insufficient_credits", 1_204), (429, "rate_limit_exceeded", 87)):
        RefusedHour.objects.create(
            organization_id=world.acme.id,
            api_key_id=keys[1].id,
            hour=now.replace(minute=0, second=0, microsecond=0),
            status=status,
            code=code,
            count=count,
            last_at=now - timedelta(minutes=3),
        )
    Violation.objects.create(
        organization_id=world.acme.id,
        log_id=told.id,
        rule_id="system:secrets",
        rule_name="Secrets",
        category="secrets",
        action_taken="blocked",
        matched_pattern=HOSTILE,
        matched_content="sk-…",
        content_hash="x",
        model="gpt-5",
    )
    return str(told.id)


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
        assert "visa 4242 was added" in browser.text(".messages")
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
        assert "azure was asked first: the best score." in browser.text()
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
