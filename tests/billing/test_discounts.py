"""Discounts: the most specific that has not expired, off every part, from admission to the log row, at once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.billing import discounts
from apps.billing.discounts import Discounts, Share
from apps.billing.models import Discount, LedgerEntry
from apps.billing.pricing import Bill, cost_by
from apps.catalog.models import ModelProvider
from apps.kernel.valkey import generation
from apps.keys.models import ProviderKey
from apps.keys.secrets import encrypt_credential
from apps.logs.models import RequestLog
from apps.organizations.actions import create_operator
from apps.organizations.models import AuditEntry, Organization, Project
from tests.support.cast import PASSWORD, World
from tests.support.upstream import Caller, chunks_of, settle_all

USAGE = "hi [[sandbox usage=1003,207,300]]"
FULL = Decimal("0.00025215")


def shares_of(stated: dict[str, str]) -> dict[tuple[str, str], Share]:
    """Return shares from `provider/model` to a share; one that ends in `!` has expired."""
    past, found = datetime(2020, 1, 1, tzinfo=UTC), {}
    for scope, share in stated.items():
        provider, _, model = scope.partition("/")
        found[provider, model] = Share(Decimal(share.rstrip("!")), past if share.endswith("!") else None)
    return found


@pytest.mark.parametrize(
    ("own", "everyones", "share"),
    [
        ({}, {}, "0"),
        ({}, {"/": "0.1"}, "0.1"),
        ({}, {"/": "0.1", "openai/": "0.2"}, "0.2"),
        ({}, {"/": "0.1", "openai/": "0.2", "/gpt": "0.3"}, "0.3"),
        ({}, {"/": "0.1", "openai/": "0.2", "/gpt": "0.3", "openai/gpt": "0.4"}, "0.4"),
        # An organization's own go first, however wide, and also when they are smaller.
        ({"/": "0.05"}, {"/": "0.1", "openai/gpt": "0.4"}, "0.05"),
        ({"/": "0.05", "openai/": "0.06"}, {"openai/gpt": "0.4"}, "0.06"),
        ({"openai/": "0.06", "/gpt": "0.07"}, {"openai/gpt": "0.4"}, "0.07"),
        ({"/gpt": "0.07", "openai/gpt": "0.08"}, {"openai/gpt": "0.4"}, "0.08"),
        # 0 takes nothing off, whatever a wider one says.
        ({"openai/gpt": "0"}, {"/": "0.4"}, "0"),
        # Discounts for another provider or model.
        ({"google/": "0.5", "/gemini": "0.5", "google/gpt": "0.5", "openai/gemini": "0.5"}, {"/": "0.1"}, "0.1"),
        # An expired discount gives way to the next one.
        ({"openai/gpt": "0.9!"}, {"/": "0.1"}, "0.1"),
        ({"openai/gpt": "0.9!", "openai/": "0.2"}, {}, "0.2"),
        ({}, {"/": "0.9!"}, "0"),
    ],
)
def test_the_most_specific_wins(own: dict[str, str], everyones: dict[str, str], share: str) -> None:
    assert Discounts(shares_of(own), shares_of(everyones)).on("openai", "gpt") == Decimal(share)


def test_a_discount_ends_with_its_moment() -> None:
    now = datetime.now(UTC)
    later, sooner = Share(Decimal("0.3"), now + timedelta(minutes=1)), Share(Decimal("0.3"), now)
    assert Discounts({("", ""): later}, {}).on("a", "b") == Decimal("0.3")
    assert Discounts({("", ""): sooner}, {}).on("a", "b") == 0


@pytest.mark.parametrize("share", ["-0.001", "1.001"])
def test_a_share_is_between_nothing_and_all(db: None, share: str) -> None:
    with pytest.raises(IntegrityError, match="discount_is_a_share"), transaction.atomic():
        Discount.objects.create(share=Decimal(share))
    assert Discount.objects.count() == 0


def test_a_scope_has_one_discount(world: World) -> None:
    for scope in ({}, {"provider": "openai"}, {"model": "gpt"}, {"organization": world.acme}):
        Discount.objects.create(share=Decimal("0.1"), **scope)
        with pytest.raises(IntegrityError, match="discount_once_per_scope"), transaction.atomic():
            Discount.objects.create(share=Decimal("0.2"), **scope)
    assert set(Discount.objects.values_list("share", flat=True)) == {Decimal("0.1")}


def test_a_change_makes_stale_whom_it_concerns_and_nobody_else(
    world: World, django_capture_on_commit_callbacks: Any
) -> None:
    scopes = [generation.CATALOG, *map(generation.organization_scope, (world.acme.id, world.elsewhere.id))]

    def moved_by(change: Any) -> list[bool]:
        before = [generation.read_generation_token(scope) for scope in scopes]
        with django_capture_on_commit_callbacks(execute=True):
            change()
        return [generation.read_generation_token(scope) != word for scope, word in zip(scopes, before, strict=True)]

    everyones, own = Discount(share=Decimal("0.1")), Discount(share=Decimal("0.1"), organization=world.acme)
    assert moved_by(everyones.save) == [True, False, False]
    assert moved_by(own.save) == [False, True, False]
    assert moved_by(own.delete) == [False, True, False]
    assert moved_by(everyones.delete) == [True, False, False]


# --- from admission to the log row


def discount(share: str, **scope: Any) -> None:
    """Make a discount whose generations move at once: the test's transaction never commits."""
    made = Discount.objects.create(share=Decimal(share), **scope)
    generation.bump(made.scope)


def only_row() -> RequestLog:
    settle_all()
    return RequestLog.objects.get()


def recount(row: RequestLog) -> Decimal:
    """Return the cost by what the row keeps of its own."""
    return cost_by(msgspec.convert(row.prices, Bill, strict=False)).total


@pytest.mark.parametrize("stream", [False, True])
def test_a_discount_is_off_every_part_and_kept_with_the_row(caller: Caller, stream: bool) -> None:
    discount("0.2", provider="sandbox")
    answer = caller.chat(USAGE, stream=stream, stream_options={"include_usage": True} if stream else None)
    if stream:
        chunks_of(answer)
    row = only_row()
    assert (row.cost, row.discount_savings) == (FULL * Decimal("0.8"), FULL * Decimal("0.2"))
    assert (row.input_cost, row.output_cost, row.cached_input_cost) == (
        Decimal("0.00010545") * Decimal("0.8"),
        Decimal("0.0001242") * Decimal("0.8"),
        Decimal("0.0000225") * Decimal("0.8"),
    )
    assert row.prices["discount"] == "0.200"
    assert recount(row) == row.cost
    entry = LedgerEntry.objects.get(kind="usage")
    assert (entry.credits, entry.usage) == (-row.cost, row.cost)
    assert Organization.objects.get(pk=caller.organization_id).credits == 100 - row.cost


def test_what_the_client_is_told_is_what_is_charged(caller: Caller) -> None:
    discount("0.5", organization_id=caller.organization_id, model="echo")
    usage = caller.chat(USAGE).json()["usage"]
    assert Decimal(str(usage["cost_usd_total"])) == FULL / 2 == only_row().cost


def test_a_discount_holds_for_the_request_after_it_without_a_query_for_the_next(caller: Caller) -> None:
    assert caller.chat(USAGE).status_code == 200
    discount("0.2")
    discount("0.4", organization_id=caller.organization_id)
    assert caller.chat(USAGE).status_code == 200
    Discount.objects.filter(organization=caller.organization_id).delete()
    generation.bump(generation.organization_scope(caller.organization_id))
    assert caller.chat(USAGE).status_code == 200
    with CaptureQueriesContext(connection) as queries:
        assert caller.chat(USAGE).status_code == 200
    assert len(queries) == 0
    settle_all()
    costs = list(RequestLog.objects.order_by("id").values_list("cost", flat=True))
    assert costs == [FULL, FULL * Decimal("0.6"), FULL * Decimal("0.8"), FULL * Decimal("0.8")]


def test_a_wholly_discounted_request_needs_no_credits_and_costs_nothing(caller: Caller) -> None:
    Organization.objects.filter(pk=caller.organization_id).update(credits=0)
    assert caller.chat(USAGE).status_code == 402
    discount("1")
    assert caller.chat(USAGE).status_code == 200
    row = only_row()
    assert (row.cost, row.discount_savings, row.unpriced) == (0, FULL, False)
    assert LedgerEntry.objects.filter(kind="usage").count() == 0


def test_the_reservation_is_for_the_discounted_price(caller: Caller) -> None:
    body = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1000}
    headers = {"Authorization": f"Bearer {caller.token}"}

    def most() -> Decimal:
        answer = caller.client.post("/v1/route/explain", body, content_type="application/json", headers=headers).json()
        return Decimal(answer["estimate"]["max_cost_usd"])

    full = most()
    assert full > 0
    discount("0.25")
    assert most() == full * Decimal("0.75")


def test_routing_prefers_who_is_cheaper_after_the_discount(caller: Caller, backup: str) -> None:
    assert caller.chat("hi", model="echo").json()["metadata"]["used_provider"] == "sandbox"
    discount("0.95", provider=backup)
    assert caller.chat("hi", model="echo").json()["metadata"]["used_provider"] == backup


@pytest.mark.parametrize("mode", ["api-keys", "hybrid"])
def test_an_own_credential_is_not_the_services_to_discount(caller: Caller, mode: str) -> None:
    """The service discounts nothing that the organization's own provider bills."""
    ProviderKey.objects.create(
        organization_id=caller.organization_id, provider="sandbox", encrypted_token=encrypt_credential("sk-of-acme")
    )
    Project.objects.filter(pk=caller.key.project_id).update(mode=mode)
    discount("0.5")
    assert caller.chat(USAGE).status_code == 200
    row = only_row()
    assert (row.used_mode, row.cost, row.discount_savings) == ("api-keys", FULL, 0)


def test_without_the_database_the_copy_there_is_goes_on(caller: Caller) -> None:
    discount("0.2")
    away = False

    def read() -> discounts.Shares:
        if away:
            raise DatabaseError("away")
        return discounts.read_shared()

    copy = discounts.SharedDiscounts(read)
    shares = copy.under("first")
    assert shares == {("", ""): Share(Decimal("0.2"), None)}

    away = True
    assert copy.under("second") == shares
    with pytest.raises(DatabaseError):
        discounts.SharedDiscounts(read).under("second")


def test_a_price_that_changes_later_changes_no_row(caller: Caller) -> None:
    assert caller.chat(USAGE).status_code == 200
    ModelProvider.objects.filter(provider_id="sandbox").update(prices={"input": "99", "output": "99"})
    discount("0.9")
    row = only_row()
    assert (row.cost, recount(row)) == (FULL, FULL)


# --- the admin


@pytest.fixture
def operator(db: None) -> Client:
    """A browser in which an operator has signed in."""
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    return client


def test_operators_make_and_change_discounts_and_leave_a_trace(world: World, operator: Client) -> None:
    page = reverse("admin:billing_discount_add")
    form = {"organization": str(world.acme.id), "provider": "openai", "model": "", "share": "0.25"}
    assert operator.post(page, form).status_code == 302
    made = Discount.objects.get()
    assert (made.organization_id, made.provider, made.model, made.share) == (
        world.acme.id,
        "openai",
        "",
        Decimal("0.25"),
    )
    change = reverse("admin:billing_discount_change", args=[made.pk])
    assert operator.post(change, {"share": "0.5", "provider": "google"}).status_code == 302
    made.refresh_from_db()
    assert (made.share, made.provider) == (Decimal("0.5"), "openai"), "a scope stays what it is"
    told = AuditEntry.objects.filter(action__startswith="discount.").values_list("action", flat=True)
    assert sorted(told) == ["discount.create", "discount.update"]


def test_a_discount_for_everyone_is_nobodys_in_the_audit_log(world: World, operator: Client) -> None:
    form = {"organization": "", "provider": "", "model": "", "share": "0.1"}
    assert operator.post(reverse("admin:billing_discount_add"), form).status_code == 302
    assert Discount.objects.get().organization is None
    assert not AuditEntry.objects.filter(action__startswith="discount.").exists()


@pytest.mark.parametrize("share", ["-0.1", "1.5", "much"])
def test_no_share_that_is_none(operator: Client, share: str) -> None:
    form = {"organization": "", "provider": "", "model": "", "share": share}
    assert operator.post(reverse("admin:billing_discount_add"), form).status_code == 200
    assert Discount.objects.count() == 0


@pytest.mark.parametrize(("seconds", "share"), [(-1, "0"), (0, "0"), (1, "0.3")])
def test_a_discount_is_over_at_the_moment_that_it_states(
    monkeypatch: pytest.MonkeyPatch, seconds: int, share: str
) -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC)
    monkeypatch.setattr(discounts, "datetime", SimpleNamespace(now=lambda _: now))
    stated = Share(Decimal("0.3"), now + timedelta(seconds=seconds))
    assert Discounts({}, {("", ""): stated}).on("a", "b") == Decimal(share)


def test_a_copy_is_read_once_for_each_generation() -> None:
    read: list[int] = []

    def count() -> discounts.Shares:
        read.append(1)
        return {("", ""): Share(Decimal(len(read)) / 10, None)}

    copy = discounts.SharedDiscounts(count)
    found = [copy.under(token)["", ""].share for token in ("first", "first", "second", "second", "first")]
    assert found == [Decimal(one) for one in ("0.1", "0.1", "0.2", "0.2", "0.3")]
