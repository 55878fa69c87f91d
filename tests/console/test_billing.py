"""Billing in the console: cards from the processor's page, top-ups paid once, invoices, statements, and who may."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from apps.billing.models import Invoice, PaymentMethod, Transaction
from apps.console.pages.billing.documents import months_of
from apps.organizations.models import Plan
from tests.logs.entries import entry, write
from tests.support.cast import World, make_key
from tests.support.console_client import Visitor, page, words
from tests.support.payments import _stub as _stub
from tests.support.payments import add_card, books, stripe
from tests.support.stripe_stub import StripeStub

__all__ = ["stripe"]
HOSTILE = "<script>alert(1)</script>"


def test_a_card_is_entered_on_the_processors_page_which_leads_back(world: World, stripe: StripeStub) -> None:
    olivia = Visitor(world.olivia)
    shown = olivia.send(page(world.acme, "billing/cards/new"))
    [opened] = stripe.of_kind("checkout.session")
    assert f'href="{opened["url"]}"' in shown.content.decode()
    assert (opened["mode"], opened["payment_method_types"]) == ("setup", {"0": "card"})
    assert PaymentMethod.objects.count() == 0

    way_back = stripe.enter_card(opened["id"])
    assert way_back.startswith("http://127.0.0.1:8000/app/o/")
    for _ in range(2):
        answer = olivia.client.get(way_back.removeprefix("http://127.0.0.1:8000"))
        assert (answer.status_code, answer["Location"]) == (303, page(world.acme, "billing"))
    card = PaymentMethod.objects.get()
    assert (card.organization, str(card), card.is_default) == (world.acme, "visa 4242", True)
    assert "Visa ending in 4242" in words(olivia.open(page(world.acme, "billing")))


@pytest.mark.parametrize("shown", ["", "nothing", "cs_x/../y", "x" * 201])
def test_coming_back_without_a_card_keeps_none(world: World, stripe: StripeStub, shown: str) -> None:
    olivia = Visitor(world.olivia)
    assert olivia.open(page(world.acme, "billing/cards/entered"), page=shown).status_code == 303
    assert PaymentMethod.objects.count() == 0


def test_a_card_of_another_customers_page_is_not_kept(world: World, stripe: StripeStub) -> None:
    Visitor(world.sam).send(page(world.elsewhere, "billing/cards/new"))
    [theirs] = stripe.of_kind("checkout.session")
    stripe.enter_card(theirs["id"])
    Visitor(world.olivia).open(page(world.acme, "billing/cards/entered"), page=theirs["id"])
    assert PaymentMethod.objects.count() == 0


def test_a_double_click_charges_once(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    olivia = Visitor(world.olivia)
    for _ in range(2):
        answer = olivia.send(page(world.acme, "billing/top-up"), {"amount": "25.50"}, once="one-click")
        assert (answer.status_code, answer["Location"]) == (303, page(world.acme, "billing"))
    assert stripe.paid() == [2550]
    assert books(world.acme) == (Decimal("25.5"), [("credit_topup", "25.5", "completed")])

    olivia.send(page(world.acme, "billing/top-up"), {"amount": "25.50"}, once="another")
    assert stripe.paid() == [2550, 2550]


@pytest.mark.parametrize(
    ("amount", "said"), [("4", "at least 5"), ("1e3", "an amount such as"), ("5.001", "whole cents")]
)
def test_an_amount_that_is_not_taken_is_told_beside_its_field(
    world: World, stripe: StripeStub, amount: str, said: str
) -> None:
    add_card(stripe, world.acme)
    answer = Visitor(world.olivia).send(page(world.acme, "billing/top-up"), {"amount": amount})
    assert answer.status_code == 400
    assert said in words(answer)
    assert f'value="{amount}"' in answer.content.decode()
    assert (stripe.paid(), Transaction.objects.count()) == ([], 0)


def test_a_decline_is_told_and_nothing_is_added(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme, "declined")
    answer = Visitor(world.olivia).send(page(world.acme, "billing/top-up"), {"amount": "25"})
    assert answer.status_code == 400
    assert "Your card has insufficient funds." in words(answer)
    assert books(world.acme) == (Decimal(0), [("credit_topup", "25", "failed")])


def test_the_form_needs_its_token_of_one_sending(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    answer = Visitor(world.olivia).client.post(page(world.acme, "billing/top-up"), {"amount": "25"})
    assert answer.status_code == 400
    assert (stripe.paid(), Transaction.objects.count()) == ([], 0)


def test_cards_are_made_the_default_and_removed(world: World, stripe: StripeStub) -> None:
    first, second = add_card(stripe, world.acme), add_card(stripe, world.acme, number="1881")
    olivia = Visitor(world.olivia)
    olivia.send(page(world.acme, f"billing/cards/{second.id}/default"))
    olivia.send(page(world.acme, f"billing/cards/{first.id}/remove"))
    assert list(PaymentMethod.objects.values_list("last_four", "is_default")) == [("1881", True)]


def test_the_pro_plan_is_subscribed_to_and_cancelled(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    olivia = Visitor(world.olivia)
    for _ in range(2):
        olivia.send(page(world.acme, "billing/subscribe"), once="one-click")
    world.acme.refresh_from_db()
    assert (world.acme.plan, len(stripe.of_kind("subscription"))) == (Plan.PRO, 1)
    olivia.send(page(world.acme, "billing/unsubscribe"))
    [subscription] = stripe.of_kind("subscription")
    assert subscription["cancel_at_period_end"] is True
    assert "Keep the pro plan" in words(olivia.open(page(world.acme, "billing")))


def test_automatic_top_ups_and_details_are_saved(world: World, stripe: StripeStub) -> None:
    olivia = Visitor(world.olivia)
    fields = {"autoTopUpEnabled": ["false", "true"], "autoTopUpThreshold": "7.5", "autoTopUpAmount": "20"}
    assert olivia.send(page(world.acme, "billing/automatic"), {**fields, "name": "Hijacked"}).status_code == 303
    olivia.send(page(world.acme, "billing/details"), {"billingCompany": "Acme Ltd", "autoTopUpAmount": "99"})
    world.acme.refresh_from_db()
    acme = world.acme
    assert (acme.auto_top_up_enabled, acme.auto_top_up_threshold, acme.auto_top_up_amount) == (True, Decimal("7.5"), 20)
    assert (acme.billing_company, acme.name) == ("Acme Ltd", "Acme")

    refused = olivia.send(page(world.acme, "billing/automatic"), {**fields, "autoTopUpAmount": "1"})
    assert (refused.status_code, "at least 10" in words(refused)) == (400, True)
    world.acme.refresh_from_db()
    assert world.acme.auto_top_up_amount == 20


def test_invoices_are_numbered_in_a_row_and_stay_as_they_were_issued(
    world: World, stripe: StripeStub, settings: Settings
) -> None:
    settings.INVOICE_ISSUER_NAME, settings.INVOICE_ISSUER_TAX_ID = "Gateways Ltd", "DE123"
    world.acme.billing_company, world.acme.billing_address = HOSTILE, "1 High Street\nLondon"
    world.acme.billing_tax_id = "GB999"
    world.acme.save()
    add_card(stripe, world.acme)
    olivia = Visitor(world.olivia)
    for amount in ("25", "30"):
        olivia.send(page(world.acme, "billing/top-up"), {"amount": amount})
    first, second = Transaction.objects.order_by("id")

    shown = olivia.open(page(world.acme, f"billing/invoices/{first.id}"))
    text = words(shown)
    for said in ("Invoice INV-000001", "Gateways Ltd", "DE123", HOSTILE, "1 High Street London", "GB999", "$25.00"):
        assert said in text, said
    assert HOSTILE not in shown.content.decode()
    assert "INV-000002" in words(olivia.open(page(world.acme, f"billing/invoices/{second.id}")))

    world.acme.billing_company = "Another"
    world.acme.save()
    again = words(olivia.open(page(world.acme, f"billing/invoices/{first.id}")))
    assert ("INV-000001" in again, "Another" in again) == (True, False)
    assert Invoice.objects.count() == 2


def test_there_is_no_invoice_of_what_was_not_paid_nor_of_others(world: World, stripe: StripeStub) -> None:
    given = Transaction.objects.create(organization=world.acme, type="credit_gift", amount=0, status="completed")
    failed = Transaction.objects.create(organization=world.acme, type="credit_topup", amount=5, status="failed")
    theirs = Transaction.objects.create(organization=world.elsewhere, type="credit_topup", amount=5, status="completed")
    olivia = Visitor(world.olivia)
    for identifier in (given.id, failed.id, theirs.id, "x"):
        assert olivia.open(page(world.acme, f"billing/invoices/{identifier}")).status_code == 404
    assert Invoice.objects.count() == 0


def test_a_statement_adds_up_the_month(world: World) -> None:
    key = make_key(world.olivia, world.project).key
    write(
        entry(key, used_model="gpt-5", cost=Decimal("0.25"), prompt_tokens=10, completion_tokens=2),
        entry(key, used_model="gpt-5", cost=Decimal("0.5")),
        entry(key, used_model=HOSTILE, cost=Decimal("0.125")),
    )
    [month, *_] = months_of(world.acme, world.acme.created_at)
    shown = Visitor(world.adam).open(page(world.acme, f"billing/statements/{month:%Y-%m}"))
    text = words(shown)
    assert "gpt-5 2 10 2 $0.75" in text
    assert "Total 3 $0.875" in text
    assert HOSTILE not in shown.content.decode()
    assert Visitor(world.adam).open(page(world.acme, "billing/statements/1999-01")).status_code == 404


def test_without_payments_the_page_says_what_an_operator_sets(world: World) -> None:
    answer = Visitor(world.olivia).open(page(world.acme, "billing"))
    assert answer.status_code == 200
    assert "STRIPE_SECRET_KEY" in words(answer)
    refused = Visitor(world.olivia).send(page(world.acme, "billing/top-up"), {"amount": "25"})
    assert (refused.status_code, "Payments are off" in words(refused)) == (400, True)
    assert Transaction.objects.count() == 0


def test_who_may_not_changes_nothing(world: World, stripe: StripeStub) -> None:
    card = add_card(stripe, world.acme)
    asked = len(stripe.asked)
    forms: dict[str, dict[str, Any]] = {
        "billing/top-up": {"amount": "25"},
        "billing/cards/new": {},
        f"billing/cards/{card.id}/default": {},
        f"billing/cards/{card.id}/remove": {},
        "billing/automatic": {"autoTopUpEnabled": "true"},
        "billing/details": {"billingCompany": "Mine"},
        "billing/subscribe": {},
        "billing/unsubscribe": {},
    }
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM organizations_auditentry")
        before = cursor.fetchone()
        for path, fields in forms.items():
            for user in (world.adam, world.dana, world.sam):
                assert Visitor(user).send(page(world.acme, path), fields).status_code == 403, (path, user)
            assert Visitor(world.olivia, check_forgery=True).send(page(world.acme, path), fields).status_code == 403
        cursor.execute("SELECT count(*) FROM organizations_auditentry")
        assert cursor.fetchone() == before
    for path in ("billing", "billing/transactions"):
        assert Visitor(world.adam).open(page(world.acme, path)).status_code == 200
        for user in (world.dana, world.sam):
            assert Visitor(user).open(page(world.acme, path)).status_code == 403
    # A card of another organization does not exist here for any user.
    assert Visitor(world.sam).send(page(world.elsewhere, f"billing/cards/{card.id}/remove")).status_code == 404
    assert (len(stripe.asked), PaymentMethod.objects.count(), Transaction.objects.count()) == (asked, 1, 0)
