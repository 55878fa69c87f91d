"""Payments against localstripe, a processor that others wrote: the words, the cards, signed messages over the network.

It is installed into an environment of its own on first use (about ten seconds), as a program beside the tests.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import requests
import stripe as library
from django.utils import timezone

from apps.billing import cards, payment_processor, refunds, subscription, topup
from apps.billing.accounts import customer_of
from apps.billing.models import ProcessorEvent, Transaction
from apps.billing.payment_processor_types import Declined, Missing
from apps.kernel.errors import PaymentRequired
from apps.organizations.models import Plan
from gateway_project.configuration.data_directory import PROJECT
from tests.stack.product import eventually, free_port
from tests.support.cast import World
from tests.support.payments import books

VERSION, SECRET = "1.15.10", "whsec_of_localstripe"
HOME = PROJECT / ".local" / f"localstripe-{VERSION}"
KEY = "sk_test_12345"
# One process of a run side by side installs and starts it.
pytestmark = [pytest.mark.xdist_group("localstripe"), pytest.mark.timeout(300)]


def installed() -> Path:
    """Return the Python of localstripe's environment, made when there is none. Skips where it cannot be had."""
    python = HOME / "bin" / "python"
    if not (HOME / "done").exists():
        commands = (
            [sys.executable, "-m", "venv", "--clear", str(HOME)],
            [str(python), "-m", "pip", "install", "--quiet", "--no-input", f"localstripe=={VERSION}"],
        )
        for command in commands:
            try:
                made = subprocess.run(command, capture_output=True, text=True, timeout=120)
            except subprocess.TimeoutExpired:
                pytest.skip("localstripe cannot be installed: it takes longer than two minutes")
            if made.returncode:
                pytest.skip(f"localstripe cannot be installed: {made.stderr.strip()[-300:]}")
        (HOME / "done").touch()
    return python


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """localstripe, running."""
    port = free_port()
    program = Path(__file__).with_name("localstripe_main.py")
    environment = {**os.environ, "PYTHONPATH": ""}
    process = subprocess.Popen([installed(), program, str(port)], env=environment, stderr=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: _answers(url, process))
        yield url
    finally:
        process.terminate()
        process.wait(60)


def _answers(url: str, process: subprocess.Popen[str]) -> bool:
    if process.poll() is not None:
        raise RuntimeError(process.stderr.read() if process.stderr else "localstripe ended")
    with suppress(requests.ConnectionError):
        return bool(requests.get(f"{url}/v1/customers", auth=(KEY, ""), timeout=10).status_code)
    return False


@pytest.fixture
def shop(address: str, settings: Any) -> library.StripeClient:
    """The processor's own client, as a browser or an operator of theirs would use it; payments are on."""
    requests.delete(f"{address}/_config/data", timeout=5).raise_for_status()
    client = library.StripeClient(KEY, base_addresses={"api": address}, http_client=library.RequestsClient())
    product = client.v1.products.create({"name": "Pro"})
    plan: Any = {"product": product.id, "amount": 4900, "currency": "usd", "interval": "month"}
    settings.STRIPE_SECRET_KEY, settings.STRIPE_API_BASE = KEY, address
    settings.STRIPE_PRO_PRICE = client.v1.plans.create(plan).id
    settings.STRIPE_WEBHOOK_SECRETS = [SECRET]
    return client


def card_of(shop: library.StripeClient, number: str = "4242424242424242") -> str:
    """Return a card that a browser took."""
    card: Any = {"number": number, "exp_month": 12, "exp_year": 2030, "cvc": "123"}
    return str(shop.v1.payment_methods.create({"type": "card", "card": card}).id)


def add_card(world: World, shop: library.StripeClient, number: str = "4242424242424242") -> Any:
    """Give Acme a card."""
    return cards.keep(world.acme, cards.fetch(world.acme, card_of(shop, number)))


def test_customers_and_cards(world: World, shop: library.StripeClient) -> None:
    assert cards.begin(world.acme).startswith("seti_")
    row = add_card(world, shop)
    other = add_card(world, shop, "4000056655665556")
    assert (row.brand, row.last_four, row.exp_month, row.exp_year, row.is_default) == ("visa", "4242", 12, 2030, True)
    cards.make_default(other)
    customer = shop.v1.customers.retrieve(customer_of(world.acme)).to_dict()
    assert customer["invoice_settings"]["default_payment_method"] == other.processor_payment_method_id
    assert (customer["email"], customer["metadata"]) == ("olivia@example.com", {"organization": str(world.acme.id)})
    cards.remove(row)
    assert payment_processor.card(row.processor_payment_method_id).customer is None
    with pytest.raises(Missing):
        payment_processor.card("pm_unknown")
    with pytest.raises(Declined):
        payment_processor.attach_card(card_of(shop, "4000000000000002"), customer_of(world.acme))


def test_a_top_up_and_its_refund(world: World, shop: library.StripeClient) -> None:
    add_card(world, shop)
    paid = topup.pay(topup.begin(world.acme, Decimal("25.50"))).transaction
    assert books(world.acme) == (Decimal("25.5"), [("credit_topup", "25.5", "completed")])
    payment = shop.v1.payment_intents.retrieve(paid.processor_payment_intent_id or "").to_dict()
    assert (payment["amount"], payment["currency"], payment["status"]) == (2550, "usd", "succeeded")
    refunds.pay(refunds.begin(paid, Decimal(10), "Ordered twice"))
    refunds.sync(payment["id"])
    assert books(world.acme)[0] == Decimal("15.5")
    assert [one.amount for one in payment_processor.refunds_of(payment["id"])] == [Decimal(10)]


def test_a_decline(world: World, shop: library.StripeClient) -> None:
    add_card(world, shop, "4000000000000341")
    attempt = topup.pay(topup.begin(world.acme, Decimal(25)))
    with pytest.raises(PaymentRequired, match="Your card was declined"):
        topup.require_paid(attempt)
    assert books(world.acme) == (Decimal(0), [("credit_topup", "25", "failed")])


def test_a_card_whose_holder_confirms(world: World, shop: library.StripeClient, address: str) -> None:
    add_card(world, shop, "4000002500003155")
    row, secret = topup.pay(topup.begin(world.acme, Decimal(25)))
    assert (row.status, secret.startswith(row.processor_payment_intent_id or "?")) == ("pending", True)
    confirmed = {"client_secret": secret, "success": "true"}
    path = f"{address}/v1/payment_intents/{row.processor_payment_intent_id}/_authenticate"
    requests.post(path, data=confirmed, auth=(KEY, ""), timeout=5).raise_for_status()
    topup.recover(row)
    assert books(world.acme) == (Decimal(25), [("credit_topup", "25", "completed")])


def test_one_that_nobody_confirms(world: World, shop: library.StripeClient) -> None:
    add_card(world, shop, "4000002500003155")
    row = topup.pay(topup.begin(world.acme, Decimal(25))).transaction
    Transaction.objects.update(created_at=timezone.now() - timedelta(days=1))
    row.refresh_from_db()
    topup.recover(row)
    payment = shop.v1.payment_intents.retrieve(row.processor_payment_intent_id or "")
    assert (payment.status, books(world.acme)[1]) == ("canceled", [("credit_topup", "25", "failed")])


def test_a_subscription(world: World, shop: library.StripeClient) -> None:
    add_card(world, shop)
    row = subscription.start(world.acme)
    assert row is not None
    world.acme.refresh_from_db()
    assert (row.status, world.acme.plan) == ("completed", Plan.PRO)
    assert world.acme.plan_expires_at is not None
    assert timedelta(days=27) < world.acme.plan_expires_at - timezone.now() < timedelta(days=32)
    subscription.cancel(world.acme)
    account = world.acme.billing_account
    account.refresh_from_db()
    assert account.cancels_at_period_end is True
    payment_processor.end_subscription(account.subscription_id)
    subscription.sync(account)
    world.acme.refresh_from_db()
    assert world.acme.plan == Plan.FREE
    assert [kind for kind, _, _ in books(world.acme)[1]] == [
        "subscription_start",
        "subscription_cancel",
        "subscription_end",
    ]


def test_a_subscription_that_the_card_refuses(world: World, shop: library.StripeClient) -> None:
    add_card(world, shop, "4000000000000341")
    with pytest.raises(PaymentRequired):
        subscription.start(world.acme)
    world.acme.refresh_from_db()
    assert (world.acme.plan, books(world.acme)[1]) == (Plan.FREE, [("subscription_start", "49", "failed")])


@pytest.mark.django_db(transaction=True)
def test_signed_messages_over_the_network(
    world: World, shop: library.StripeClient, address: str, settings: Any, live_server: Any
) -> None:
    settings.ROOT_URLCONF = "tests.billing.webhook_urls"
    told = {"url": f"{live_server.url}/webhooks/stripe", "secret": SECRET}
    requests.post(f"{address}/_config/webhooks/ours", json=told, timeout=5).raise_for_status()
    add_card(world, shop, "4000002500003155")
    row, secret = topup.pay(topup.begin(world.acme, Decimal(25)))
    confirmed = {"client_secret": secret, "success": "true"}
    path = f"{address}/v1/payment_intents/{row.processor_payment_intent_id}/_authenticate"
    requests.post(path, data=confirmed, auth=(KEY, ""), timeout=5).raise_for_status()
    succeeded = ProcessorEvent.objects.filter(type="payment_intent.succeeded", done_at__isnull=False)
    eventually(succeeded.exists)
    assert succeeded.count() == 1
    assert books(world.acme) == (Decimal(25), [("credit_topup", "25", "completed")])
