"""Prices that an operator sees before they change, and that change later."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.catalog.models import Model, ModelProvider, PriceChange, Provider, ScheduledPriceChange
from apps.catalog.tasks import apply_scheduled_prices
from apps.organizations.actions import create_operator
from tests.catalog.price_forms import save_prices
from tests.support.cast import PASSWORD

pytestmark = pytest.mark.django_db
NAME = {"provider_id": "groq", "model_id": "gpt-oss-20b"}


@pytest.fixture
def operator(loaded: None) -> Client:
    """A browser in which an operator is signed in."""
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    return client


@pytest.fixture
def offer(loaded: None) -> ModelProvider:
    """An offer with prices of 0.5 and 2 USD for a million tokens."""
    row = ModelProvider.objects.get(**NAME)
    row.prices, row.price_overrides = {"input": "0.5", "output": "2"}, {}
    row.save()
    return row


def path(row: Any) -> str:
    """Return the address of a row's page."""
    return reverse(f"admin:catalog_{row._meta.model_name}_change", args=[row.pk])


def later(**by: int) -> str:
    """Return a moment of the future as a browser sends it."""
    return f"{timezone.now() + timedelta(**by):%Y-%m-%dT%H:%M}"


def test_a_price_is_saved_once_its_cost_was_seen(operator: Client, offer: ModelProvider) -> None:
    answers = {"priority": "1", "override_input": "60"}
    form = operator.post(path(offer), answers).context["adminform"].form
    assert form.errors["__all__"] == [
        "Not saved yet. Check the new prices, then save again.",
        "A request with 10,000 tokens of prompt and 1,000 of answer: 0.007 USD → 0.602 USD.",
        "The prices change at once.",
    ]
    offer.refresh_from_db()
    assert (offer.price_overrides, PriceChange.objects.filter(author="op@example.com").count()) == ({}, 0)
    # Another price than the one seen is shown again.
    seen = {"seen_prices": form["seen_prices"].value()}
    other = operator.post(path(offer), {**answers, "override_input": "0.6", **seen}).context["adminform"].form
    assert "0.007 USD → 0.008 USD" in other.errors["__all__"][1]
    offer.refresh_from_db()
    assert offer.price_overrides == {}
    assert operator.post(path(offer), {**answers, **seen}).status_code == 302
    offer.refresh_from_db()
    assert offer.price_overrides == {"input": "60"}
    # Other columns are saved at once.
    assert operator.post(path(offer), {**answers, "priority": "0.5"}).status_code == 302


def test_a_scheduled_price_is_in_force_from_its_time_on(operator: Client, offer: ModelProvider) -> None:
    moment = later(days=2)
    answers = {"priority": "0.5", "override_input": "0.6", "prices_effective_at": moment}
    assert save_prices(operator, path(offer), answers).status_code == 302
    offer.refresh_from_db()
    assert (offer.price_overrides, str(offer.priority)) == ({}, "0.500")
    row = ScheduledPriceChange.objects.get()
    assert (row.provider, row.model, row.overrides, row.author, row.state) == (
        *("groq", "gpt-oss-20b", {"input": "0.6"}, "op@example.com"),
        "waiting",
    )
    assert f"{row.effective_at:%Y-%m-%dT%H:%M}" == moment
    apply_scheduled_prices()
    offer.refresh_from_db()
    assert offer.price_overrides == {}
    # One at a time.
    again = operator.post(path(offer), {**answers, "override_input": "0.7"}).context["adminform"].form
    assert "scheduled already" in str(again.errors["prices_effective_at"])
    ScheduledPriceChange.objects.update(effective_at=timezone.now())
    apply_scheduled_prices()
    apply_scheduled_prices()
    offer.refresh_from_db()
    assert offer.price_overrides == {"input": "0.6"}
    [change] = PriceChange.objects.filter(author="op@example.com")
    assert (change.old["input"], change.new["input"]) == ("0.5", "0.6")
    row.refresh_from_db()
    assert (row.state, row.decided_by) == ("applied", "op@example.com")


def test_a_withdrawn_change_never_comes(operator: Client, offer: ModelProvider) -> None:
    answers = {"priority": "1", "override_input": "0.6", "prices_effective_at": later(days=2)}
    save_prices(operator, path(offer), answers)
    row = ScheduledPriceChange.objects.get()
    button = reverse("admin:catalog_scheduledpricechange_withdraw", args=[row.pk])
    once = operator.get(button).context["form"].initial["once"]
    assert operator.post(button, {"once": once}).status_code == 302
    ScheduledPriceChange.objects.update(effective_at=timezone.now())
    apply_scheduled_prices()
    row.refresh_from_db()
    offer.refresh_from_db()
    assert (row.state, row.decided_by, offer.price_overrides) == ("withdrawn", "op@example.com", {})


@pytest.mark.parametrize(
    ("moment", "price", "words"),
    [
        ("2020-01-01T00:00", "0.6", "Must be in the future"),
        ("2099-01-01T00:00", "", "No price differs"),
        ("soon", "0.6", "Enter a valid date/time"),
    ],
)
def test_a_time_that_cannot_be_meant_is_refused(
    operator: Client, offer: ModelProvider, moment: str, price: str, words: str
) -> None:
    answers = {"priority": "0.5", "override_input": price, "prices_effective_at": moment}
    form = operator.post(path(offer), answers).context["adminform"].form
    assert words in str(form.errors["prices_effective_at"])
    offer.refresh_from_db()
    assert (offer.price_overrides, str(offer.priority), ScheduledPriceChange.objects.count()) == ({}, "1.000", 0)


def test_an_offer_that_is_gone_withdraws_its_change(operator: Client, offer: ModelProvider) -> None:
    ScheduledPriceChange.objects.create(
        provider="groq", model="gone", overrides={"input": "1"}, effective_at=timezone.now(), author="op"
    )
    apply_scheduled_prices()
    assert ScheduledPriceChange.objects.get().state == "withdrawn"


def test_lists_say_what_is_switched_off_or_past_its_end(operator: Client, offer: ModelProvider) -> None:
    def state() -> str:
        body = operator.get("/admin/catalog/modelprovider/", {"q": "groq/gpt-oss-20b"})
        [row] = [one for one in body.context["cl"].result_list if one.pk == offer.pk]
        return str(body.context["cl"].model_admin.state(row))

    assert state() == "Active"
    yesterday = datetime.now().date() - timedelta(days=1)
    ModelProvider.objects.filter(pk=offer.pk).update(deactivated_at=yesterday)
    assert state() == f"Ended on {yesterday}"
    ModelProvider.objects.filter(pk=offer.pk).update(active=False)
    assert state() == "Switched off"
    Model.objects.filter(pk=offer.model_id).update(active=False)
    assert state() == "Model switched off"
    Provider.objects.filter(pk=offer.provider_id).update(active=False)
    assert state() == "Provider switched off"
