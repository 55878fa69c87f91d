"""The pro plan's subscription: the state here equals the state at the processor, however the news came."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.utils import timezone

from apps.billing import cards, payment_processor, subscription, tasks
from apps.billing.models import BillingAccount, Transaction
from apps.organizations.models import AuditEntry, IdempotentAnswer, Organization, Plan
from tests.support.cast import World, signed_in
from tests.support.payments import add_card, books
from tests.support.stripe_stub import MONTH, StripeStub

STARTED = ("subscription_start", "49", "completed")


def start(world: World) -> Any:
    """Ask for the pro plan, as Acme's owner."""
    return signed_in(world.olivia).post(f"/organization/{world.acme.id}/subscription")


def shown(world: World) -> Any:
    """Return the subscription as an admin sees it."""
    return signed_in(world.adam).get(f"/organization/{world.acme.id}/subscription").json()["subscription"]


def plan_of(organization: Organization) -> tuple[str, datetime | None]:
    """Return plan and its term."""
    organization.refresh_from_db()
    return organization.plan, organization.plan_expires_at


def period_end(stripe: StripeStub) -> datetime:
    """Return the end of the paid period, as the processor has it."""
    [one] = stripe.of_kind("subscription")
    return datetime.fromtimestamp(one["items"]["data"][0]["current_period_end"], UTC)


def sync(world: World) -> None:
    """Copy the subscription's current state from the processor."""
    subscription.sync(BillingAccount.objects.get(organization=world.acme))


def test_it_begins_with_a_payment_and_the_plan(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    response = start(world)
    assert response.status_code == 200, response.content
    [made], [invoice] = stripe.of_kind("subscription"), stripe.of_kind("invoice")
    assert shown(world) == response.json()["subscription"]
    assert {**shown(world), "currentPeriodEnd": None} == {
        "plan": "pro",
        "status": "active",
        "amount": "49",
        "currency": "USD",
        "currentPeriodEnd": None,
        "cancelAtPeriodEnd": False,
    }
    row = response.json()["transaction"]
    assert (row["status"], row["processorInvoiceId"], row["creditAmount"]) == ("completed", invoice["id"], None)
    assert made["metadata"]["transaction"] == row["id"]
    assert plan_of(world.acme) == (Plan.PRO, period_end(stripe))
    assert books(world.acme) == (Decimal(0), [STARTED])
    assert AuditEntry.objects.filter(action="subscription.create", actor_email="olivia@example.com").count() == 1


def test_one_that_is_not_paid_yet_gives_no_plan_and_is_ended(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    stripe.lose("/v1/subscriptions", "answer")
    start(world)
    [made] = stripe.of_kind("subscription")
    made["status"] = "incomplete"
    stripe.of_kind("invoice")[0].update(status="open", amount_paid=0)
    Transaction.objects.update(created_at=timezone.now() - timedelta(hours=2))
    tasks.recover_payments()
    assert (made["status"], shown(world), plan_of(world.acme)) == ("canceled", None, (Plan.FREE, None))
    assert books(world.acme)[1] == [("subscription_start", "49", "failed")]


def test_one_that_lives_is_not_given_up_where_it_could_not_be_taken_over(
    world: World, stripe: StripeStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_card(stripe, world.acme)
    with monkeypatch.context() as patch:
        patch.setattr(subscription, "_TRIES", 0)
        assert start(world).json()["transaction"]["status"] == "pending"
    Transaction.objects.update(created_at=timezone.now() - timedelta(hours=2))
    tasks.recover_payments()
    assert (plan_of(world.acme)[0], books(world.acme)[1]) == (Plan.PRO, [STARTED])


def test_one_that_costs_nothing_at_first_begins_for_nothing(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    stripe.lose("/v1/subscriptions", "answer")
    start(world)
    stripe.of_kind("invoice")[0]["amount_paid"] = 0
    Transaction.objects.update(created_at=timezone.now() - timedelta(minutes=3))
    tasks.recover_payments()
    stripe.renew(stripe.of_kind("subscription")[0]["id"])
    sync(world)
    assert plan_of(world.acme) == (Plan.PRO, period_end(stripe))
    assert books(world.acme)[1] == [("subscription_start", "0", "completed"), STARTED]


def test_there_is_one_at_a_time(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    assert start(world).status_code == 200
    assert start(world).status_code == 409
    world.elsewhere.plan = Plan.ENTERPRISE
    world.elsewhere.save()
    add_card(stripe, world.elsewhere)
    above = signed_in(world.sam).post(f"/organization/{world.elsewhere.id}/subscription")
    assert (above.status_code, plan_of(world.elsewhere)[0]) == (409, Plan.ENTERPRISE)
    assert len(stripe.of_kind("subscription")) == 1


@pytest.mark.django_db(transaction=True)
def test_two_who_ask_at_once_begin_one(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    caller = signed_in(world.olivia)

    def ask(_: int) -> int:
        try:
            return int(caller.post(f"/organization/{world.acme.id}/subscription").status_code)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(ask, range(4))) <= {200, 409}
    assert (len(stripe.of_kind("subscription")), books(world.acme)[1]) == (1, [STARTED])


def test_a_request_repeated_under_its_key_is_the_same_row(world: World, stripe: StripeStub) -> None:
    """Even where the answer was lost before it was stored."""
    add_card(stripe, world.acme)
    caller, path = signed_in(world.olivia), f"/organization/{world.acme.id}/subscription"
    first = caller.post(path, **{"Idempotency-Key": "one"})
    IdempotentAnswer.objects.all().delete()
    again = caller.post(path, **{"Idempotency-Key": "one"})
    assert (first.status_code, again.status_code, again.json()) == (200, 200, first.json())
    assert len(stripe.of_kind("subscription")) == 1


def test_without_a_card_or_a_price_there_is_none(world: World, stripe: StripeStub, settings: Any) -> None:
    assert start(world).status_code == 400
    add_card(stripe, world.acme)
    settings.STRIPE_PRO_PRICE = ""
    assert start(world).status_code == 503
    assert (shown(world), plan_of(world.acme), books(world.acme)[1]) == (None, (Plan.FREE, None), [])


def test_a_decline_is_told_and_gives_no_plan(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme, "declined")
    response = start(world)
    assert (response.status_code, response.json()) == (402, {"message": "Pro plan: Your card was declined."})
    assert (shown(world), plan_of(world.acme)) == (None, (Plan.FREE, None))
    assert books(world.acme)[1] == [("subscription_start", "49", "failed")]


def test_a_renewal_is_written_down_once_and_moves_the_term(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    start(world)
    before = period_end(stripe)
    invoice = stripe.renew(stripe.of_kind("subscription")[0]["id"])
    for _ in range(3):
        sync(world)
    assert period_end(stripe) - before == timedelta(seconds=MONTH)
    assert plan_of(world.acme) == (Plan.PRO, period_end(stripe))
    assert books(world.acme)[1] == [STARTED, STARTED]
    row = Transaction.objects.order_by("id").last()
    assert row is not None
    assert (row.processor_invoice_id, row.description) == (invoice["id"], "Pro plan, renewed")


def test_it_is_cancelled_for_the_end_of_the_term_and_taken_up_again(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    start(world)
    caller, path = signed_in(world.olivia), f"/organization/{world.acme.id}/subscription"
    for _ in range(2):
        response = caller.send("DELETE", path, {})
        assert (response.status_code, response.json()["subscription"]["cancelAtPeriodEnd"]) == (200, True)
    assert plan_of(world.acme) == (Plan.PRO, period_end(stripe))
    assert books(world.acme)[1] == [STARTED, ("subscription_cancel", "0", "completed")]
    again = start(world)
    assert (again.json()["subscription"]["cancelAtPeriodEnd"], again.json()["transaction"]) == (False, None)
    assert len(stripe.of_kind("invoice")) == 1
    caller.send("DELETE", path, {})
    stripe.of_kind("subscription")[0]["status"] = "canceled"
    Organization.objects.update(plan_expires_at=timezone.now() - timedelta(seconds=1))
    tasks.sync_subscriptions()
    tasks.sync_subscriptions()
    assert (shown(world), plan_of(world.acme)) == (None, (Plan.FREE, None))
    assert [kind for kind, _, _ in books(world.acme)[1]] == [
        "subscription_start",
        "subscription_cancel",
        "subscription_cancel",
        "subscription_end",
    ]
    tasks.tell_owners()
    assert [message.subject for message in mail.outbox] == ["The pro plan of Acme has ended"]
    assert start(world).status_code == 200
    assert plan_of(world.acme)[0] == Plan.PRO


def test_without_one_there_is_nothing_to_cancel(world: World, stripe: StripeStub) -> None:
    response = signed_in(world.olivia).send("DELETE", f"/organization/{world.acme.id}/subscription", {})
    assert (response.status_code, response.json()) == (404, {"message": "There is no subscription"})


def test_a_renewal_that_is_not_paid_has_seven_days(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    start(world)
    [made] = stripe.of_kind("subscription")
    stripe.renew(made["id"], paid=False)
    over = timezone.now() - timedelta(days=6)
    Organization.objects.filter(pk=world.acme.pk).update(plan_expires_at=over)
    tasks.sync_subscriptions()
    assert (shown(world)["status"], plan_of(world.acme)) == ("past_due", (Plan.PRO, over))
    tasks.tell_owners()
    assert mail.outbox[-1].subject == "The pro plan of Acme could not be renewed"
    # Owners get one mail, and can cancel it meanwhile.
    told = len(mail.outbox)
    subscription.cancel(world.acme)
    tasks.sync_subscriptions()
    tasks.tell_owners()
    assert (len(mail.outbox), shown(world)["cancelAtPeriodEnd"]) == (told, True)
    Organization.objects.filter(pk=world.acme.pk).update(plan_expires_at=timezone.now() - timedelta(days=8))
    tasks.sync_subscriptions()
    assert (made["status"], shown(world), plan_of(world.acme)) == ("canceled", None, (Plan.FREE, None))
    kinds = [kind for kind, _, _ in books(world.acme)[1]]
    assert kinds == ["subscription_start", "subscription_cancel", "subscription_end"]


def test_a_renewal_that_was_paid_is_not_ended_by_an_older_state(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    start(world)
    [made] = stripe.of_kind("subscription")
    invoice = stripe.renew(made["id"], paid=False)
    sync(world)
    Organization.objects.filter(pk=world.acme.pk).update(plan_expires_at=timezone.now() - timedelta(days=8))
    made["status"] = "active"
    invoice.update(status="paid", amount_paid=4900)
    tasks.sync_subscriptions()
    assert (made["status"], plan_of(world.acme)) == ("active", (Plan.PRO, period_end(stripe)))


def test_a_higher_plan_stays_while_a_subscription_goes_on_and_ends(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    start(world)
    Organization.objects.filter(pk=world.acme.pk).update(plan=Plan.ENTERPRISE, plan_expires_at=None)
    for status in ("active", "canceled"):
        stripe.of_kind("subscription")[0]["status"] = status
        sync(world)
        assert plan_of(world.acme) == (Plan.ENTERPRISE, None)
    assert signed_in(world.olivia).send("DELETE", f"/organization/{world.acme.id}/subscription", {}).status_code == 404


def test_cards_are_not_tried_out_by_subscriptions(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    for _ in range(cards.MAX_DECLINES):
        Transaction.objects.create(organization=world.acme, type="subscription_start", amount=49, status="failed")
    assert start(world).status_code == 429
    assert stripe.of_kind("subscription") == []


def test_a_renewal_that_is_paid_late_goes_on(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    start(world)
    [made] = stripe.of_kind("subscription")
    invoice = stripe.renew(made["id"], paid=False)
    sync(world)
    made["status"] = "active"
    invoice.update(status="paid", amount_paid=4900)
    sync(world)
    assert (shown(world)["status"], plan_of(world.acme)) == ("active", (Plan.PRO, period_end(stripe)))
    assert books(world.acme)[1] == [STARTED, STARTED]


def test_older_news_never_replaces_newer(world: World, stripe: StripeStub, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one asks, the subscription ends and another takes that over."""
    add_card(stripe, world.acme)
    start(world)
    ask, asked = payment_processor.paid_invoices, []

    def ask_slowly(identifier: str) -> Any:
        found = ask(identifier)
        asked.append(identifier)
        if len(asked) == 1:
            stripe.of_kind("subscription")[0]["status"] = "canceled"
            sync(world)
        return found

    monkeypatch.setattr(payment_processor, "paid_invoices", ask_slowly)
    sync(world)
    assert (shown(world), plan_of(world.acme)) == (None, (Plan.FREE, None))
    assert [kind for kind, _, _ in books(world.acme)[1]] == ["subscription_start", "subscription_end"]


def test_another_product_of_the_same_customer_gives_no_plan(world: World, stripe: StripeStub) -> None:
    card = add_card(stripe, world.acme)
    item = {"current_period_end": 4_000_000_000, "price": {"id": "price_of_something_else"}}
    made = {"items": {"data": [item]}, "metadata": {"transaction": "x"}, "cancel_at_period_end": False}
    stripe._add("sub", "subscription", customer=card.processor_customer_id, status="active", **made)
    sync(world)
    assert (shown(world), plan_of(world.acme), books(world.acme)[1]) == (None, (Plan.FREE, None), [])


def test_without_a_processor_none_is_begun(world: World, stripe: StripeStub, settings: Any) -> None:
    add_card(stripe, world.acme)
    settings.STRIPE_SECRET_KEY = ""
    response = start(world)
    assert (response.status_code, response.json()) == (503, {"message": "Payments are not set up here"})
    assert (plan_of(world.acme), books(world.acme)[1]) == ((Plan.FREE, None), [])


def test_a_state_is_asked_for_once(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    start(world)
    stripe.asked.clear()
    sync(world)
    assert stripe.asked == [("GET", "/v1/subscriptions"), ("GET", "/v1/invoices")]


def test_one_that_was_paid_and_has_ended_is_not_ended_again(world: World, stripe: StripeStub) -> None:
    """Its answer was lost, and an operator ended it at the processor meanwhile."""
    add_card(stripe, world.acme)
    stripe.lose("/v1/subscriptions", "answer")
    start(world)
    stripe.of_kind("subscription")[0]["status"] = "canceled"
    account = BillingAccount.objects.get()
    account.subscription_id = stripe.of_kind("subscription")[0]["id"]
    account.save()
    Transaction.objects.update(created_at=timezone.now() - timedelta(hours=2))
    tasks.recover_payments()
    assert (books(world.acme)[1], plan_of(world.acme)) == ([STARTED], (Plan.FREE, None))
    assert [path for method, path in stripe.asked if method == "DELETE"] == []


def test_one_that_has_ended_is_no_longer_to_be_cancelled(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    start(world)
    subscription.cancel(world.acme)
    stripe.of_kind("subscription")[0]["status"] = "canceled"
    sync(world)
    account = BillingAccount.objects.get()
    assert (account.subscription_status, account.cancels_at_period_end, account.notice) == (
        "",
        False,
        "subscription_ended",
    )
    assert signed_in(world.olivia).send("DELETE", f"/organization/{world.acme.id}/subscription", {}).status_code == 404


def test_the_account_of_a_deleted_organization_is_closed_once(world: World, stripe: StripeStub) -> None:
    """Its subscription had ended before."""
    add_card(stripe, world.acme)
    start(world)
    stripe.of_kind("subscription")[0]["status"] = "canceled"
    sync(world)
    Organization.objects.filter(pk=world.acme.pk).update(status="deleted")
    stripe.asked.clear()
    for _ in range(2):
        tasks.sync_subscriptions()
    customer = f"/v1/customers/{stripe.of_kind('subscription')[0]['customer']}"
    assert stripe.asked == [("DELETE", customer)]
    assert BillingAccount.objects.get().processor_customer_id is None
    # A payment whose outcome is not known keeps the account.
    BillingAccount.objects.update(processor_customer_id="cus_1")
    Transaction.objects.create(organization=world.acme, type="credit_topup", amount=5, status="pending")
    assert list(subscription.accounts_to_close()) == []


@pytest.mark.parametrize(("sooner", "status"), [(0, "failed"), (1, "completed")])
def test_one_is_begun_again_for_less_than_an_hour(
    world: World, stripe: StripeStub, monkeypatch: pytest.MonkeyPatch, sooner: int, status: str
) -> None:
    add_card(stripe, world.acme)
    row = subscription._begin(world.acme, None)
    now = row.created_at + timedelta(hours=1) - timedelta(microseconds=sooner)
    monkeypatch.setattr(subscription, "timezone", SimpleNamespace(now=lambda: now))
    subscription.recover(row)
    row.refresh_from_db()
    assert (row.status, len(stripe.of_kind("subscription"))) == (status, status == "completed")


def test_an_unpaid_one_ends_after_seven_days(world: World, stripe: StripeStub, monkeypatch: pytest.MonkeyPatch) -> None:
    add_card(stripe, world.acme)
    start(world)
    [made] = stripe.of_kind("subscription")
    stripe.renew(made["id"], paid=False)
    paid_until = plan_of(world.acme)[1]
    assert paid_until is not None
    for later, status in ((0, "past_due"), (1, "canceled")):
        now = paid_until + timedelta(days=7, microseconds=later)
        monkeypatch.setattr(subscription, "timezone", SimpleNamespace(now=lambda now=now: now))
        subscription.refresh(BillingAccount.objects.get())
        assert made["status"] == status
    assert plan_of(world.acme) == (Plan.FREE, None)


def test_updates_from_the_processor_are_counted(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    start(world)
    before = BillingAccount.objects.get().revision
    for _ in range(2):
        sync(world)
    assert BillingAccount.objects.get().revision == before + 2


def test_a_state_that_changed_after_anothers_look_is_asked_for_again(
    world: World, stripe: StripeStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one asks, another takes over that nothing changed, and then the subscription ends."""
    add_card(stripe, world.acme)
    start(world)
    ask, asked = payment_processor.paid_invoices, []

    def ask_slowly(identifier: str) -> Any:
        found = ask(identifier)
        asked.append(identifier)
        if len(asked) == 1:
            sync(world)
            stripe.of_kind("subscription")[0]["status"] = "canceled"
        return found

    monkeypatch.setattr(payment_processor, "paid_invoices", ask_slowly)
    sync(world)
    assert (shown(world), plan_of(world.acme)) == (None, (Plan.FREE, None))


def test_one_that_stays_cancelled_was_not_taken_up_again(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    start(world)
    for _ in range(2):
        subscription.cancel(world.acme)
    resumed = AuditEntry.objects.filter(action="subscription.resume")
    assert (AuditEntry.objects.filter(action="subscription.cancel").count(), resumed.count()) == (1, 0)
    for _ in range(2):
        start(world)
    assert resumed.count() == 1
