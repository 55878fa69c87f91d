"""Top-ups: one charge and one credit for each, even if a process dies in between."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from apps.billing import payment_processor, tasks, topup
from apps.billing.models import BillingAccount, LedgerEntry, PaymentMethod, Transaction
from apps.billing.payment_processor_types import ProcessorOff
from apps.kernel.errors import InvalidRequest, RateLimited
from apps.organizations.models import AuditEntry
from tests.support.cast import World, signed_in
from tests.support.payments import add_card, books
from tests.support.stripe_stub import StripeStub

CHARGES, INTENT = "/v1/payment_intents", "/v1/payment_intents/.*"


def top_up(world: World, amount: Any = 25, **headers: str) -> Any:
    """Ask for a top-up of Acme's, as its owner."""
    return signed_in(world.olivia).post(f"/organization/{world.acme.id}/top-ups", {"amount": amount}, **headers)


def age(**by: float) -> None:
    """Let every transaction be older."""
    Transaction.objects.update(created_at=timezone.now() - timedelta(**by))


def test_a_top_up_charges_the_card_and_adds_the_credits(world: World, stripe: StripeStub) -> None:
    card = add_card(stripe, world.acme)
    response = top_up(world, "25.50")
    assert response.status_code == 200, response.content
    row, [payment] = Transaction.objects.get(), stripe.of_kind("payment_intent")
    shown = response.json()
    assert shown["clientSecret"] is None
    assert {name: shown["transaction"][name] for name in ("id", "type", "amount", "creditAmount", "currency")} == {
        "id": str(row.id),
        "type": "credit_topup",
        "amount": "25.5",
        "creditAmount": "25.5",
        "currency": "USD",
    }
    assert (shown["transaction"]["status"], shown["transaction"]["description"]) == ("completed", "Top-up, visa 4242")
    assert shown["transaction"]["processorPaymentIntentId"] == payment["id"]
    assert books(world.acme) == (Decimal("25.5"), [("credit_topup", "25.5", "completed")])
    assert (stripe.paid(), payment["currency"], payment["payment_method"]) == (
        [2550],
        "usd",
        card.processor_payment_method_id,
    )
    assert payment["metadata"] == {"transaction": str(row.id), "organization": str(world.acme.id)}
    entry = LedgerEntry.objects.get()
    assert (entry.kind, entry.reference, entry.credits) == ("top_up", row.id, Decimal("25.5"))
    assert list(AuditEntry.objects.filter(action__startswith="top_up").order_by("id").values_list("action")) == [
        ("top_up.create",),
        ("top_up.complete",),
    ]


@pytest.mark.parametrize("amount", [4.99, "4.99", 10_000.01, "25.505", -5, 0, "NaN", "1e3", True, None, [], "ten"])
def test_an_amount_out_of_bounds_is_refused_and_nothing_is_written(
    world: World, stripe: StripeStub, amount: Any
) -> None:
    add_card(stripe, world.acme)
    response = top_up(world, amount)
    assert (response.status_code, response.json()["issues"][0]["path"]) == (400, "amount")
    assert (books(world.acme), stripe.paid()) == ((Decimal(0), []), [])


@pytest.mark.parametrize("amount", [5, 10_000])
def test_the_bounds_are_taken(world: World, stripe: StripeStub, amount: int) -> None:
    add_card(stripe, world.acme)
    assert top_up(world, amount).status_code == 200
    assert (books(world.acme)[0], stripe.paid()) == (Decimal(amount), [amount * 100])


def test_without_a_card_there_is_no_top_up(world: World, stripe: StripeStub) -> None:
    response = top_up(world)
    assert (response.status_code, response.json()) == (
        400,
        {"message": "There is no payment method; add one first"},
    )
    assert books(world.acme) == (Decimal(0), [])


def test_without_a_processor_there_is_no_top_up(world: World, stripe: StripeStub, settings: Settings) -> None:
    add_card(stripe, world.acme)
    settings.STRIPE_SECRET_KEY = ""
    response = top_up(world)
    assert (response.status_code, response.json()) == (503, {"message": "Payments are not set up here"})
    assert (books(world.acme), stripe.paid()) == ((Decimal(0), []), [])
    with pytest.raises(ProcessorOff):
        payment_processor.payment("pi_1")


def test_a_decline_is_told_and_credits_nothing(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme, "declined")
    response = top_up(world)
    words = "Top-up, visa 4242: Your card has insufficient funds."
    assert (response.status_code, response.json()) == (402, {"message": words})
    assert books(world.acme) == (Decimal(0), [("credit_topup", "25", "failed")])
    assert Transaction.objects.get().description == words
    assert LedgerEntry.objects.count() == 0
    assert stripe.paid() == []


def test_cards_are_not_tried_out_here(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme, "declined")
    statuses = [top_up(world).status_code for _ in range(12)]
    assert statuses == [402] * 10 + [429] * 2
    assert len(stripe.of_kind("payment_intent")) == 10
    Transaction.objects.update(updated_at=timezone.now() - timedelta(minutes=61))
    assert top_up(world).status_code == 402


def test_a_holder_who_has_to_confirm_is_given_the_secret(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme, "asks")
    shown = top_up(world).json()
    [payment] = stripe.of_kind("payment_intent")
    assert (shown["clientSecret"], shown["transaction"]["status"]) == (payment["client_secret"], "pending")
    assert books(world.acme)[0] == Decimal(0)
    stripe.confirm(payment["id"])
    age(minutes=3)
    tasks.recover_payments()
    tasks.recover_payments()
    assert books(world.acme) == (Decimal(25), [("credit_topup", "25", "completed")])


def test_what_nobody_confirms_is_cancelled_there_and_given_up_here(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme, "asks")
    top_up(world)
    age(hours=22)
    tasks.recover_payments()
    assert books(world.acme)[1] == [("credit_topup", "25", "pending")]
    age(hours=24)
    tasks.recover_payments()
    assert books(world.acme) == (Decimal(0), [("credit_topup", "25", "failed")])
    assert stripe.of_kind("payment_intent")[0]["status"] == "canceled"


@pytest.mark.parametrize("lost", ["request", "answer"])
def test_a_charge_without_an_answer_stays_pending_and_is_found_out(world: World, stripe: StripeStub, lost: str) -> None:
    add_card(stripe, world.acme)
    stripe.lose(CHARGES, lost)
    response = top_up(world)
    assert (response.status_code, response.json()["transaction"]["status"]) == (200, "pending")
    assert books(world.acme)[0] == Decimal(0)
    tasks.recover_payments()
    assert books(world.acme)[1] == [("credit_topup", "25", "pending")]  # Its process may still be working.
    age(minutes=3)
    tasks.recover_payments()
    tasks.recover_payments()
    assert books(world.acme) == (Decimal(25), [("credit_topup", "25", "completed")])
    assert stripe.paid() == [2500]


@pytest.mark.parametrize(("lost", "ends"), [("request", "failed"), ("answer", "completed")])
def test_an_old_charge_is_looked_for_and_never_made_anew(
    world: World, stripe: StripeStub, lost: str, ends: str
) -> None:
    add_card(stripe, world.acme)
    stripe.lose(CHARGES, lost)
    top_up(world)
    age(hours=2)
    tasks.recover_payments()
    assert books(world.acme)[1] == [("credit_topup", "25", ends)]
    assert stripe.paid() == ([2500] if ends == "completed" else [])
    assert [path for method, path in stripe.asked if method == "POST"].count(CHARGES) == (2 if lost == "answer" else 0)


def test_a_request_repeated_under_its_key_is_one_charge(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    first, again = (top_up(world, **{"Idempotency-Key": "one"}) for _ in range(2))
    assert again.json() == first.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert (books(world.acme)[0], stripe.paid()) == (Decimal(25), [2500])
    other = top_up(world, 50, **{"Idempotency-Key": "one"})
    assert other.status_code == 422
    assert (books(world.acme)[0], stripe.paid()) == (Decimal(25), [2500])


def test_a_request_repeated_under_its_key_tries_no_card_out(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme, "declined")
    rows = [topup.pay(topup.begin(world.acme, Decimal(5), f"key {number}")).transaction for number in range(10)]
    with pytest.raises(RateLimited) as raised:
        topup.begin(world.acme, Decimal(5), "another key")
    assert raised.value.retry_after == 3600
    assert topup.begin(world.acme, Decimal(5), "key 0").id == rows[0].id
    assert Transaction.objects.count() == 10


def test_a_decline_repeated_under_its_key_is_the_same_decline(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme, "declined")
    first, again = (top_up(world, **{"Idempotency-Key": "one"}) for _ in range(2))
    assert (first.status_code, again.status_code, again.json()) == (402, 402, first.json())
    assert len(stripe.of_kind("payment_intent")) == 1


@pytest.mark.django_db(transaction=True)
def test_requests_at_once_under_one_key_are_one_charge(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    caller = signed_in(world.olivia)

    def ask(_: int) -> int:
        try:
            path = f"/organization/{world.acme.id}/top-ups"
            return int(caller.post(path, {"amount": 25}, **{"Idempotency-Key": "one"}).status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as pool:
        statuses = set(pool.map(ask, range(6)))
    assert statuses <= {200, 409}
    assert 200 in statuses
    assert (books(world.acme), stripe.paid()) == ((Decimal(25), [("credit_topup", "25", "completed")]), [2500])


@pytest.mark.parametrize("changed", [{"amount": 2600}, {"currency": "eur"}, {"customer": "cus_other"}])
def test_a_payment_that_is_not_what_was_asked_for_credits_nothing(
    world: World, stripe: StripeStub, changed: dict[str, Any]
) -> None:
    add_card(stripe, world.acme, "asks")
    top_up(world)
    [payment] = stripe.of_kind("payment_intent")
    stripe.confirm(payment["id"])
    payment.update(changed, amount_received=changed.get("amount", 2500))
    age(minutes=3)
    tasks.recover_payments()
    assert books(world.acme) == (Decimal(0), [("credit_topup", "25", "pending")])


def test_what_was_paid_is_credited_even_where_it_had_been_given_up(world: World, stripe: StripeStub) -> None:
    card: PaymentMethod = add_card(stripe, world.acme)
    row = topup.begin(world.acme, Decimal(25))
    paid = payment_processor.charge(
        key=str(row.id),
        customer=card.processor_customer_id,
        card=card.processor_payment_method_id,
        amount=row.amount,
        metadata={"transaction": str(row.id)},
        holder_is_here=True,
    )
    Transaction.objects.update(status="failed")
    for _ in range(2):
        topup.sync(row, paid)
    assert books(world.acme) == (Decimal(25), [("credit_topup", "25", "completed")])


def test_a_key_is_for_one_request_of_one_organization(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    add_card(stripe, world.elsewhere)
    row = topup.begin(world.acme, Decimal(5), "one")
    assert topup.begin(world.acme, Decimal(5), "one").id == row.id
    for organization, amount in ((world.acme, Decimal(6)), (world.elsewhere, Decimal(5))):
        with pytest.raises(InvalidRequest, match="was used for another request") as raised:
            topup.begin(organization, amount, "one")
        assert (raised.value.status, raised.value.code) == (422, "idempotency_key_reused")
    assert list(Transaction.objects.values_list("organization", "amount")) == [(world.acme.id, Decimal(5))]


def test_a_row_that_failed_keeps_the_payment_that_it_is_about(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    known, unknown, told = (topup.begin(world.acme, Decimal(5)) for _ in range(3))
    topup._note(known.id, "pi_known")
    topup._fail(known.id, "no", None)
    topup._fail(unknown.id, "no", None)
    topup._fail(told.id, "no", "pi_told")
    found = [Transaction.objects.get(pk=row.pk).processor_payment_intent_id for row in (known, unknown, told)]
    assert found == ["pi_known", None, "pi_told"]
    # A row that has ended is left as it is.
    assert topup._note(known.id, "pi_other").processor_payment_intent_id == "pi_known"
    assert topup._fail(told.id, "again").description == "Top-up, visa 4242: no"


def test_a_payment_that_failed_without_a_reason_was_not_confirmed(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme, "asks")
    row = topup.pay(topup.begin(world.acme, Decimal(25))).transaction
    stripe.of_kind("payment_intent")[0]["status"] = "requires_payment_method"
    failed = topup.recover(row)
    assert (failed.status, failed.description) == ("failed", "Top-up, visa 4242: the payment was not confirmed")


def test_an_old_row_of_an_organization_without_a_customer_is_given_up(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    row = topup.begin(world.acme, Decimal(25))
    age(hours=2)
    BillingAccount.objects.update(processor_customer_id=None)
    asked = len(stripe.asked)
    row.refresh_from_db()
    assert topup.recover(row).description == "Top-up, visa 4242: the payment processor was not reached"
    assert (len(stripe.asked), books(world.acme)[1]) == (asked, [("credit_topup", "25", "failed")])


@pytest.mark.parametrize(("sooner", "status"), [(0, "failed"), (1, "completed")])
def test_a_charge_is_made_again_for_less_than_an_hour(
    world: World, stripe: StripeStub, monkeypatch: pytest.MonkeyPatch, sooner: int, status: str
) -> None:
    add_card(stripe, world.acme)
    row = topup.begin(world.acme, Decimal(25))
    now = row.created_at + timedelta(hours=1) - timedelta(microseconds=sooner)
    monkeypatch.setattr(topup, "timezone", SimpleNamespace(now=lambda: now))
    assert topup.recover(row).status == status
    assert stripe.paid() == ([2500] if status == "completed" else [])


@pytest.mark.parametrize(("later", "status"), [(0, "pending"), (1, "failed")])
def test_a_holder_has_twenty_three_hours_to_confirm(
    world: World, stripe: StripeStub, monkeypatch: pytest.MonkeyPatch, later: int, status: str
) -> None:
    add_card(stripe, world.acme, "asks")
    row = topup.pay(topup.begin(world.acme, Decimal(25))).transaction
    now = row.created_at + timedelta(hours=23, microseconds=later)
    monkeypatch.setattr(topup, "timezone", SimpleNamespace(now=lambda: now))
    assert topup.recover(row).status == status


def test_after_many_declines_only_a_known_key_begins_a_payment(
    world: World, stripe: StripeStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_card(stripe, world.acme)
    known = topup.begin(world.acme, Decimal(5), "known")
    unnamed = topup.begin(world.acme, Decimal(5))
    monkeypatch.setattr("apps.billing.cards.MAX_DECLINES", 1)
    topup._fail(unnamed.id, "no")
    for key in (None, "new"):
        with pytest.raises(RateLimited):
            topup.begin(world.acme, Decimal(5), key)
    assert topup.begin(world.acme, Decimal(5), "known").id == known.id
    assert Transaction.objects.count() == 2
