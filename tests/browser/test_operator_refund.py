"""An operator refunds a part of a top-up in a real browser, and sees the remaining amount."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from apps.billing import topup
from tests.browser.axe import assert_accessible
from tests.browser.operators import sign_in_operator
from tests.support.cast import World, world
from tests.support.chromium import PROGRAM, chromium
from tests.support.payments import _stub, add_card, books, stripe
from tests.support.stripe_stub import StripeStub

__all__ = ["_stub", "stripe", "world"]
pytestmark = [
    pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium"),
    pytest.mark.django_db(transaction=True),
    pytest.mark.stack,
    pytest.mark.long,
]


def test_a_part_of_a_top_up_goes_back(live_server: Any, world: World, stripe: StripeStub, tmp_path: Path) -> None:
    add_card(stripe, world.acme)
    paid = topup.pay(topup.begin(world.acme, Decimal(25))).transaction
    with chromium(tmp_path) as browser:
        sign_in_operator(browser, live_server.url)
        browser.open(f"{live_server.url}/admin/billing/transaction/{paid.id}/change/")
        assert_accessible(browser)
        browser.click(f"a[href$='/{paid.id}/refund/']")
        browser.wait("document.querySelector('[name=amount]') !== null")
        browser.wait("document.body.innerText.includes('Acme paid 25.00 USD; 25.00 can be refunded.')")
        assert_accessible(browser)
        browser.fill("[name=amount]", "10.50")
        browser.fill("[name=reason]", "Ordered twice")
        browser.click("form:has([name=amount]) [type=submit]")
        browser.wait("document.body.innerText.includes('10.50 USD went back')")
        assert browser.problems == []
    assert [one["amount"] for one in stripe.of_kind("refund")] == [1050]
    assert books(world.acme)[0] == Decimal("14.5")
