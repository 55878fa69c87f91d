"""Payment methods: taken at the processor, kept by their outward marks, one of them the default."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.billing import cards, payment_processor, tasks
from apps.billing.accounts import customer_of
from apps.billing.models import BillingAccount, PaymentMethod, Transaction
from apps.billing.payment_processor_types import Card
from apps.kernel.errors import RateLimited
from apps.organizations import deletion
from apps.organizations.models import AuditEntry, OrganizationDeletion
from tests.support.cast import World, signed_in
from tests.support.payments import add_card
from tests.support.stripe_stub import StripeStub


def path_of(world: World, rest: str = "") -> str:
    """Return a path of Acme's."""
    return f"/organization/{world.acme.id}/payment-methods{rest}"


def listed(world: World) -> list[tuple[str, bool]]:
    """Return last four digits and default mark, as an admin sees them."""
    shown = signed_in(world.adam).get(path_of(world)).json()["paymentMethods"]
    return [(one["last4"], one["isDefault"]) for one in shown]


def test_a_card_is_set_up_kept_and_shown(world: World, stripe: StripeStub) -> None:
    caller = signed_in(world.olivia)
    begun = caller.post(path_of(world, "/setup"))
    [customer], [intent] = stripe.of_kind("customer"), stripe.of_kind("setup_intent")
    assert begun.json() == {"clientSecret": intent["client_secret"], "publishableKey": "pk_test_12345"}
    assert (intent["customer"], intent["usage"]) == (customer["id"], "off_session")
    assert (customer["email"], customer["name"]) == ("olivia@example.com", "Acme")
    assert customer["metadata"] == {"organization": str(world.acme.id)}
    kept = caller.post(path_of(world), {"paymentMethodId": stripe.make_card(customer=customer["id"])})
    row = PaymentMethod.objects.get()
    shown = {"id": str(row.id), "brand": "visa", "last4": "4242", "expMonth": 12, "expYear": 2030, "isDefault": True}
    answer = kept.json()["paymentMethod"]
    assert answer.pop("createdAt")
    assert answer == shown
    assert (listed(world), len(stripe.of_kind("customer"))) == ([("4242", True)], 1)
    assert customer["invoice_settings"] == {"default_payment_method": row.processor_payment_method_id}
    entry = AuditEntry.objects.get(action="payment_method.create")
    assert entry.details == {"brand": "visa", "last4": "4242", "isDefault": True}


def test_the_same_card_again_is_the_same_row(world: World, stripe: StripeStub) -> None:
    row = add_card(stripe, world.acme)
    caller = signed_in(world.olivia)
    again = caller.post(path_of(world), {"paymentMethodId": row.processor_payment_method_id})
    assert again.json()["paymentMethod"]["id"] == str(row.id)
    assert AuditEntry.objects.filter(action="payment_method.create").count() == 1


def test_another_ones_card_is_refused(world: World, stripe: StripeStub) -> None:
    theirs = add_card(stripe, world.elsewhere)
    for identifier in (theirs.processor_payment_method_id, "pm_nobody", "pi_1", "../customers", "x" * 255):
        response = signed_in(world.olivia).post(path_of(world), {"paymentMethodId": identifier})
        assert response.status_code == 400, response.content
    assert (listed(world), PaymentMethod.objects.count()) == ([], 1)
    assert stripe.things[theirs.processor_payment_method_id]["customer"] == theirs.processor_customer_id


def test_no_more_cards_than_may_be_kept(world: World, stripe: StripeStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.billing.cards.MAX_CARDS", 1)
    add_card(stripe, world.acme)
    response = signed_in(world.olivia).post(path_of(world), {"paymentMethodId": stripe.make_card()})
    assert (response.status_code, response.json()) == (
        400,
        {"message": "Maximum 1 payment methods per organization"},
    )
    assert PaymentMethod.objects.count() == 1


def test_the_default_moves_there_and_here(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    other = add_card(stripe, world.acme, number="1111")
    assert listed(world) == [("1111", False), ("4242", True)]
    response = signed_in(world.olivia).post(path_of(world, f"/{other.id}/default"))
    assert response.json()["paymentMethod"]["isDefault"] is True
    assert listed(world) == [("1111", True), ("4242", False)]
    [customer] = stripe.of_kind("customer")
    assert customer["invoice_settings"]["default_payment_method"] == other.processor_payment_method_id


def test_a_card_that_goes_leaves_the_default_to_the_newest(world: World, stripe: StripeStub) -> None:
    first, *_ = [add_card(stripe, world.acme, number=number) for number in ("4242", "1111", "2222")]
    response = signed_in(world.olivia).send("DELETE", path_of(world, f"/{first.id}"), {})
    assert response.json() == {"message": "Payment method deleted"}
    assert listed(world) == [("2222", True), ("1111", False)]
    assert stripe.things[first.processor_payment_method_id]["customer"] is None


def test_a_card_that_was_not_the_default_leaves_it_where_it_is(world: World, stripe: StripeStub) -> None:
    cards_of_acme = [add_card(stripe, world.acme, number=number) for number in ("4242", "1111", "2222")]
    cards.remove(cards_of_acme[1])
    assert listed(world) == [("2222", False), ("4242", True)]
    del stripe.things[cards_of_acme[2].processor_payment_method_id]
    cards.sync(cards_of_acme[2].processor_payment_method_id, "")
    assert listed(world) == [("4242", True)]


def test_another_card_and_another_default_end_the_wait_of_automatic_top_ups(world: World, stripe: StripeStub) -> None:
    def wait_of(change: Callable[[], object]) -> tuple[int, bool]:
        BillingAccount.objects.update(top_up_declines=2, next_top_up_at=timezone.now())
        change()
        account = BillingAccount.objects.get()
        return account.top_up_declines, account.next_top_up_at is not None

    first = add_card(stripe, world.acme)
    assert wait_of(lambda: add_card(stripe, world.acme, number="1111")) == (0, False)
    second = PaymentMethod.objects.get(last_four="1111")
    assert wait_of(lambda: cards.make_default(second)) == (0, False)
    # A card that is known, or is the default, is none that might be charged where the other was not.
    assert wait_of(lambda: cards.make_default(second)) == (2, True)
    known = Card(first.processor_payment_method_id, first.processor_customer_id, "visa", "4242", 1, 2035)
    assert wait_of(lambda: cards.keep(world.acme, known)) == (2, True)
    first.refresh_from_db()
    assert (first.exp_month, first.exp_year, first.is_default) == (1, 2035, False)


def test_news_of_another_customers_card_adds_none(world: World, stripe: StripeStub) -> None:
    ours, theirs = add_card(stripe, world.acme), add_card(stripe, world.elsewhere)
    before = AuditEntry.objects.count()
    for customer in (ours.processor_customer_id, "cus_unknown", ""):
        cards.sync(theirs.processor_payment_method_id, customer)
    assert (listed(world), AuditEntry.objects.count()) == ([("4242", True)], before)


def test_who_makes_the_customer_second_takes_the_first_ones(
    world: World, stripe: StripeStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(*_: str) -> str:
        BillingAccount.objects.update(processor_customer_id="cus_first")
        return "cus_second"

    monkeypatch.setattr(payment_processor, "create_customer", create)
    assert customer_of(world.acme) == "cus_first"
    assert BillingAccount.objects.get().processor_customer_id == "cus_first"


def test_the_card_of_a_subscription_stays(world: World, stripe: StripeStub) -> None:
    row = add_card(stripe, world.acme)
    caller = signed_in(world.olivia)
    assert caller.post(f"/organization/{world.acme.id}/subscription").status_code == 200
    assert caller.send("DELETE", path_of(world, f"/{row.id}"), {}).status_code == 409
    assert listed(world) == [("4242", True)]
    other = add_card(stripe, world.acme, number="1111")
    assert caller.send("DELETE", path_of(world, f"/{other.id}"), {}).status_code == 200
    caller.send("DELETE", f"/organization/{world.acme.id}/subscription", {})
    assert caller.send("DELETE", path_of(world, f"/{row.id}"), {}).status_code == 200
    assert listed(world) == []


@pytest.mark.parametrize(
    ("method", "rest"), [("POST", "/setup"), ("POST", ""), ("DELETE", "/<id>"), ("POST", "/<id>/default")]
)
def test_without_an_answer_nothing_changes(world: World, stripe: StripeStub, method: str, rest: str) -> None:
    row = add_card(stripe, world.acme)
    stripe.lose(".*", "request")
    body = {"paymentMethodId": stripe.make_card()} if rest == "" else {}
    response = signed_in(world.olivia).send(method, path_of(world, rest.replace("<id>", str(row.id))), body)
    assert (response.status_code, response.json()) == (503, {"message": "The payment processor cannot be reached"})
    assert listed(world) == [("4242", True)]


def test_a_customer_is_made_once_even_where_the_answer_was_lost(world: World, stripe: StripeStub) -> None:
    stripe.lose("/v1/customers", "answer")
    caller = signed_in(world.olivia)
    assert caller.post(path_of(world, "/setup")).status_code == 503
    assert caller.post(path_of(world, "/setup")).status_code == 200
    assert len(stripe.of_kind("customer")) == 1


def test_an_organization_is_forgotten_there_once_its_deletion_is_due(world: World, stripe: StripeStub) -> None:
    add_card(stripe, world.acme)
    caller: Any = signed_in(world.olivia)
    assert caller.post(f"/organization/{world.acme.id}/subscription").status_code == 200
    assert caller.send("DELETE", f"/organization/{world.acme.id}", {}).status_code == 200
    tasks.sync_subscriptions()
    # Until then an owner can cancel the deletion.
    assert len(stripe.of_kind("customer")) == 1
    assert [one["cancel_at_period_end"] for one in stripe.of_kind("subscription")] == [True]
    OrganizationDeletion.objects.update(due_at=timezone.now())
    assert deletion.complete_due() == [world.acme.id]
    tasks.sync_subscriptions()
    tasks.sync_subscriptions()
    assert stripe.of_kind("customer") == []
    assert [one["status"] for one in stripe.of_kind("subscription")] == ["canceled"]
    account = BillingAccount.objects.get()
    assert (account.processor_customer_id, account.subscription_status) == (None, "")
    assert account.updated_at > timezone.now() - timedelta(minutes=1)


@pytest.mark.parametrize(("method", "rest"), [("POST", "/setup"), ("POST", "/<id>/default")])
def test_a_body_that_is_no_object_changes_nothing(world: World, stripe: StripeStub, method: str, rest: str) -> None:
    add_card(stripe, world.acme)
    other = add_card(stripe, world.acme, number="1111")
    asked = len(stripe.asked)
    path = path_of(world, rest.replace("<id>", str(other.id)))
    assert signed_in(world.olivia).send(method, path, ["4242"]).status_code == 400
    subscribe = signed_in(world.olivia).post(f"/organization/{world.acme.id}/subscription", ["pro"])
    assert subscribe.status_code == 400
    assert (listed(world), len(stripe.asked)) == ([("1111", False), ("4242", True)], asked)


def test_without_a_publishable_key_none_is_told(world: World, stripe: StripeStub, settings: Any) -> None:
    settings.STRIPE_PUBLISHABLE_KEY = ""
    answer = signed_in(world.olivia).post(path_of(world, "/setup")).json()
    assert answer == {"clientSecret": stripe.of_kind("setup_intent")[0]["client_secret"], "publishableKey": None}


def test_a_customer_has_the_billing_address(world: World, stripe: StripeStub) -> None:
    for email in ("books@example.com", None):
        world.elsewhere.billing_email = email
        BillingAccount.objects.all().delete()
        stripe.reset()
        customer_of(world.elsewhere)
        assert [one["email"] for one in stripe.of_kind("customer")] == [email or ""]


@pytest.mark.parametrize(("minutes", "refused"), [(59, True), (61, False)])
def test_declines_of_the_last_hour_count(world: World, minutes: int, refused: bool) -> None:
    for number in range(cards.MAX_DECLINES):
        kind = "credit_topup" if number % 2 else "subscription_start"
        Transaction.objects.create(organization=world.acme, type=kind, amount=5, status="failed")
    Transaction.objects.update(updated_at=timezone.now() - timedelta(minutes=minutes))
    if refused:
        with pytest.raises(RateLimited) as raised:
            cards.refuse_card_testing(world.acme)
        assert raised.value.retry_after == 3600
        Transaction.objects.get(id=Transaction.objects.filter(type="credit_topup").values("id")[:1]).delete()
    cards.refuse_card_testing(world.acme)
    cards.refuse_card_testing(world.elsewhere)
