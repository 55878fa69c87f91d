"""Messages from the processor: late, repeated, out of order or forged ones never store anything untrue."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client, RequestFactory

from apps.billing import payment_processor, tasks, topup, webhooks
from apps.billing.models import BillingAccount, PaymentMethod, ProcessorEvent, Transaction
from apps.billing.payment_processor_types import Refused
from apps.kernel.errors import ApiError, BodyTooLarge, InvalidRequest
from apps.organizations.models import AuditEntry, Plan
from tests.support.cast import World, signed_in
from tests.support.payments import add_card, books, tell
from tests.support.stripe_stub import StripeStub, sign

RECEIVED = {"received": True}
TOP_UP = ("credit_topup", "25", "completed")


@pytest.fixture
def client(settings: Any) -> Client:
    """The processor, and the path that there is where a secret is set."""
    settings.ROOT_URLCONF = "tests.billing.webhook_urls"
    return Client(raise_request_exception=False)


@pytest.fixture
def payment(world: World, stripe: StripeStub) -> dict[str, Any]:
    """A payment that its holder has confirmed, and whose confirmation has not arrived here yet."""
    add_card(stripe, world.acme, "asks")
    topup.pay(topup.begin(world.acme, Decimal(25)))
    [made] = stripe.of_kind("payment_intent")
    stripe.confirm(made["id"])
    return made


def test_without_a_secret_there_is_no_such_path(stripe: StripeStub, world: World) -> None:
    """The tests run without one in the environment."""
    response = tell(Client(), stripe.event("payment_intent.succeeded", {"object": "payment_intent", "id": "pi_1"}))
    assert response.status_code == 404
    assert ProcessorEvent.objects.count() == 0


def test_a_payment_that_was_confirmed_is_credited_once(
    world: World, stripe: StripeStub, client: Client, payment: dict[str, Any]
) -> None:
    message = stripe.event("payment_intent.succeeded", payment)
    for _ in range(3):
        response = tell(client, message)
        assert (response.status_code, response.json()) == (200, RECEIVED)
    tell(client, stripe.event("payment_intent.succeeded", payment))  # The same news in another message.
    assert books(world.acme) == (Decimal(25), [TOP_UP])
    assert ProcessorEvent.objects.filter(done_at__isnull=False).count() == 2
    asked = [path for method, path in stripe.asked if method == "GET" and path.endswith(payment["id"])]
    assert len(asked) == 2


def test_a_message_before_the_apis_answer_and_after_it_is_one_credit(
    world: World, stripe: StripeStub, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_card(stripe, world.acme)
    sync = topup.sync

    def told_first(row: Transaction, payment: Any) -> Any:
        [made] = stripe.of_kind("payment_intent")
        with monkeypatch.context() as patch:
            patch.setattr(topup, "sync", sync)
            assert tell(client, stripe.event("payment_intent.succeeded", made)).status_code == 200
            assert books(world.acme)[0] == Decimal(25)
        return sync(row, payment)

    monkeypatch.setattr(topup, "sync", told_first)
    response = signed_in(world.olivia).post(f"/organization/{world.acme.id}/top-ups", {"amount": 25})
    assert response.json()["transaction"]["status"] == "completed"
    monkeypatch.setattr(topup, "sync", sync)
    tell(client, stripe.event("payment_intent.succeeded", stripe.of_kind("payment_intent")[0]))
    assert books(world.acme) == (Decimal(25), [TOP_UP])


@pytest.mark.parametrize(
    "forge",
    [
        lambda body, header: (body, ""),
        lambda body, header: (body, "t=1,v1=00"),
        lambda body, header: (body, "nonsense"),
        lambda body, header: (body.replace(b"evt_", b"evil"), header),
        lambda body, header: (body, sign(body, "whsec_of_another")),
        lambda body, header: (body, sign(body, "")),
        lambda body, header: (body, sign(body, at=time.time() - 301)),
        lambda body, header: (b"\xff\xfe", header),
        lambda body, header: (b"[1]", sign(b"[1]")),
        lambda body, header: (b"{}", sign(b"{}")),
        lambda body, header: (b"not json", sign(b"not json")),
    ],
)
def test_a_forged_message_changes_nothing(
    world: World, stripe: StripeStub, client: Client, payment: dict[str, Any], forge: Any
) -> None:
    asked = len(stripe.asked)
    response = tell(client, forge(*stripe.event("payment_intent.succeeded", payment)))
    assert (response.status_code, response.json()["message"]) == (
        400,
        "The event is not signed by the payment processor",
    )
    assert books(world.acme) == (Decimal(0), [("credit_topup", "25", "pending")])
    assert (ProcessorEvent.objects.count(), len(stripe.asked)) == (0, asked)


def test_no_message_is_read_without_a_secret(
    world: World, stripe: StripeStub, client: Client, payment: dict[str, Any], settings: Any
) -> None:
    settings.STRIPE_WEBHOOK_SECRETS = []
    body, _ = stripe.event("payment_intent.succeeded", payment)
    assert tell(client, (body, sign(body, ""))).status_code == 400
    assert books(world.acme)[0] == Decimal(0)


def test_either_of_two_secrets_signs(
    world: World, stripe: StripeStub, client: Client, payment: dict[str, Any], settings: Any
) -> None:
    settings.STRIPE_WEBHOOK_SECRETS = ["whsec_new", *settings.STRIPE_WEBHOOK_SECRETS]
    assert tell(client, stripe.event("payment_intent.succeeded", payment)).status_code == 200
    assert books(world.acme)[0] == Decimal(25)


def test_a_message_that_is_too_long_is_not_read(world: World, stripe: StripeStub, client: Client) -> None:
    message = stripe.event("x", {"object": "payment_intent", "id": "pi_1", "padding": "x" * webhooks.MAX_BYTES})
    assert tell(client, message).status_code == 413
    assert ProcessorEvent.objects.count() == 0


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("stated", "size", "error"),
    [
        ("", webhooks.MAX_BYTES, InvalidRequest),
        ("", webhooks.MAX_BYTES + 1, BodyTooLarge),
        (str(webhooks.MAX_BYTES), 2, InvalidRequest),
        (str(webhooks.MAX_BYTES + 1), 2, BodyTooLarge),
    ],
)
def test_a_message_is_bounded_by_its_stated_length_and_by_its_own(
    stripe: StripeStub, stated: str, size: int, error: type[ApiError]
) -> None:
    request = RequestFactory().post("/webhooks/stripe", b"{}", content_type="application/json")
    request.META["CONTENT_LENGTH"] = stated
    request._body = b" " * size  # type: ignore[attr-defined]  # Django keeps a body there that has been read
    with pytest.raises(ApiError) as raised:
        webhooks.stripe(request)
    assert raised.type is error
    assert ProcessorEvent.objects.count() == 0


def test_long_names_of_a_message_are_cut(world: World, stripe: StripeStub, client: Client) -> None:
    message = stripe.event("t" * 300, {"object": "something.new", "id": "x"}, "evt_" + "x" * 300)
    for _ in range(2):
        assert tell(client, message).status_code == 200
    assert ProcessorEvent.objects.values_list("id", "type").get() == ("evt_" + "x" * 251, "t" * 100)


def test_a_lookup_that_the_processor_refuses_is_asked_for_again(
    world: World, stripe: StripeStub, client: Client, payment: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: str) -> Any:
        raise Refused("No", "key_revoked")

    message = stripe.event("payment_intent.succeeded", payment)
    with monkeypatch.context() as patch:
        patch.setattr(payment_processor, "payment", refuse)
        assert tell(client, message).status_code == 503
    assert (books(world.acme)[0], ProcessorEvent.objects.get().done_at) == (Decimal(0), None)
    assert tell(client, message).status_code == 200
    assert books(world.acme) == (Decimal(25), [TOP_UP])


def test_what_a_message_claims_is_not_believed(
    world: World, stripe: StripeStub, client: Client, payment: dict[str, Any]
) -> None:
    """The books of the processor say that it was not paid, or that another amount was."""
    payment["status"] = "processing"
    claims = {"status": "succeeded", "amount_received": 99_999_900, "amount": 99_999_900}
    assert tell(client, stripe.event("payment_intent.succeeded", payment, **claims)).status_code == 200
    assert books(world.acme) == (Decimal(0), [("credit_topup", "25", "pending")])
    payment.update(status="succeeded", amount_received=100)
    assert tell(client, stripe.event("payment_intent.succeeded", payment)).status_code == 200
    assert books(world.acme) == (Decimal(0), [("credit_topup", "25", "pending")])


@pytest.mark.parametrize(
    "metadata", [{}, {"transaction": "x"}, {"transaction": "019371ad-0000-7000-8000-000000000000"}]
)
def test_a_payment_of_somebody_elses_product_is_none_of_ours(
    world: World, stripe: StripeStub, client: Client, payment: dict[str, Any], metadata: dict[str, str]
) -> None:
    payment["metadata"] = metadata
    assert tell(client, stripe.event("payment_intent.succeeded", payment)).status_code == 200
    assert books(world.acme) == (Decimal(0), [("credit_topup", "25", "pending")])


@pytest.mark.parametrize(
    "about",
    [
        {"object": "payment_intent", "id": "pi_unknown"},
        {"object": "subscription", "id": "sub_unknown", "customer": "cus_unknown"},
        {"object": "invoice", "customer": None},
        {"object": "payment_method", "id": "pm_unknown", "customer": "cus_unknown"},
        {"object": "charge", "payment_intent": "pi_unknown"},
        {"object": "refund", "payment_intent": None},
        {"object": "dispute", "payment_intent": None},
        {"object": "something.new", "id": "x"},
    ],
)
def test_what_is_about_nothing_of_ours_is_taken_in_and_changes_nothing(
    world: World, stripe: StripeStub, client: Client, about: dict[str, Any]
) -> None:
    before = AuditEntry.objects.count()
    assert tell(client, stripe.event("some.type", about)).status_code == 200
    assert (books(world.acme), AuditEntry.objects.count()) == ((Decimal(0), []), before)


def test_a_failure_after_the_success_undoes_nothing(
    world: World, stripe: StripeStub, client: Client, payment: dict[str, Any]
) -> None:
    tell(client, stripe.event("payment_intent.succeeded", payment))
    tell(client, stripe.event("payment_intent.payment_failed", payment, status="requires_payment_method"))
    assert books(world.acme) == (Decimal(25), [TOP_UP])


def test_a_payment_that_failed_is_given_up_there_and_here(
    world: World, stripe: StripeStub, client: Client, payment: dict[str, Any]
) -> None:
    payment["status"] = "requires_payment_method"
    payment["last_payment_error"] = {"message": "The card's holder was not recognized."}
    tell(client, stripe.event("payment_intent.payment_failed", payment))
    assert books(world.acme) == (Decimal(0), [("credit_topup", "25", "failed")])
    assert Transaction.objects.get().description == "Top-up, visa 4242: The card's holder was not recognized."
    assert payment["status"] == "canceled"


def test_a_message_that_cannot_be_followed_now_comes_again(
    world: World, stripe: StripeStub, client: Client, payment: dict[str, Any]
) -> None:
    message = stripe.event("payment_intent.succeeded", payment)
    stripe.lose(f"/v1/payment_intents/{payment['id']}", "answer")
    assert tell(client, message).status_code == 503
    assert (books(world.acme)[0], ProcessorEvent.objects.get().done_at) == (Decimal(0), None)
    assert tell(client, message).status_code == 200
    assert books(world.acme) == (Decimal(25), [TOP_UP])


def test_a_subscriptions_news_in_any_order_end_in_what_is_true(
    world: World, stripe: StripeStub, client: Client
) -> None:
    add_card(stripe, world.acme)
    signed_in(world.olivia).post(f"/organization/{world.acme.id}/subscription")
    [made] = stripe.of_kind("subscription")
    invoice = stripe.renew(made["id"])
    made["status"] = "canceled"
    news = [
        stripe.event("customer.subscription.deleted", made),
        stripe.event("invoice.paid", invoice),
        stripe.event("customer.subscription.updated", made, status="active"),
        stripe.event("customer.subscription.created", made, status="active"),
    ]
    for message in [*news, *reversed(news)]:
        assert tell(client, message).status_code == 200
    world.acme.refresh_from_db()
    assert (world.acme.plan, world.acme.plan_expires_at) == (Plan.FREE, None)
    assert [kind for kind, _, _ in books(world.acme)[1]] == [
        "subscription_start",
        "subscription_start",
        "subscription_end",
    ]


def test_cards_follow_the_processor(world: World, stripe: StripeStub, client: Client) -> None:
    first = add_card(stripe, world.acme)
    card = stripe.things[stripe.make_card(customer=first.processor_customer_id, number="1111")]
    for _ in range(2):
        tell(client, stripe.event("payment_method.attached", card))
    assert PaymentMethod.objects.filter(organization=world.acme).count() == 2
    gone = stripe.things[first.processor_payment_method_id]
    gone["customer"] = None
    tell(client, stripe.event("payment_method.detached", gone))
    [left] = PaymentMethod.objects.filter(organization=world.acme)
    assert (left.last_four, left.is_default) == ("1111", True)
    # An old message of its arrival does not bring it back.
    tell(client, stripe.event("payment_method.attached", gone, customer=first.processor_customer_id))
    assert PaymentMethod.objects.filter(organization=world.acme).count() == 1


def test_a_dispute_is_written_down(world: World, stripe: StripeStub, client: Client, payment: dict[str, Any]) -> None:
    tell(client, stripe.event("payment_intent.succeeded", payment))
    dispute = {"object": "dispute", "id": "dp_1", "payment_intent": payment["id"]}
    tell(client, stripe.event("charge.dispute.created", dispute))
    entry = AuditEntry.objects.get(action="top_up.dispute")
    assert entry.details == {"dispute": "dp_1", "event": "charge.dispute.created"}
    assert books(world.acme) == (Decimal(25), [TOP_UP])


def test_old_messages_are_forgotten(world: World, stripe: StripeStub, client: Client) -> None:
    tell(client, stripe.event("x", {"object": "x"}, "evt_old"))
    ProcessorEvent.objects.update(received_at="2020-01-01T00:00:00Z")
    tell(client, stripe.event("x", {"object": "x"}, "evt_new"))
    tasks.sweep_processor_events()
    assert list(ProcessorEvent.objects.values_list("id", flat=True)) == ["evt_new"]
    ProcessorEvent.objects.update(received_at="2020-01-01T00:00:00Z")
    assert webhooks.sweep() == 1
    assert BillingAccount.objects.count() == 0
