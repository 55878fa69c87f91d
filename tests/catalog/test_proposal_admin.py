"""Proposals in the admin: an operator sees the change and what it costs, and decides once."""

from __future__ import annotations

from datetime import date
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from apps.catalog.models import CatalogProposal, ModelProvider, PriceChange, Provider
from apps.catalog.proposal_admin import preview
from apps.organizations.actions import create_operator
from tests.support.cast import PASSWORD

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator() -> Client:
    """A browser in which an operator is signed in."""
    client = Client()
    client.force_login(create_operator(email="op@example.com", password=PASSWORD))
    return client


@pytest.fixture
def proposal(loaded: None) -> CatalogProposal:
    """A price of Groq's that falls."""
    return CatalogProposal.objects.create(
        provider="groq",
        model="gpt-oss-20b",
        kind="prices",
        changes=[["input", "0.075", "0.05"]],
        entry={"offer": {"prices": {"input": "0.05"}}},
        sources=["litellm"],
        seen_at=timezone.now(),
    )


def path(proposal: CatalogProposal, name: str) -> str:
    """The address of a button."""
    return f"/admin/catalog/catalogproposal/{proposal.pk}/{name}/"


def press(operator: Client, proposal: CatalogProposal, name: str) -> Any:
    """Open a button's page, confirm it, and return its answer."""
    form = operator.get(path(proposal, name)).context["form"]
    seen = {"seen": form.fields["seen"].initial} if "seen" in form.fields else {}
    return operator.post(path(proposal, name), {"once": uuid4().hex, **seen})


def price() -> Any:
    """The price of input in the tables."""
    return ModelProvider.objects.get(provider_id="groq", model_id="gpt-oss-20b").prices["input"]


def test_the_page_shows_the_change_and_a_usual_request(operator: Client, proposal: CatalogProposal) -> None:
    lines = operator.get(path(proposal, "apply")).context["form"].lines
    assert lines == [
        "groq/gpt-oss-20b, stated by litellm. In force for requests from now on; earlier bills keep their price.",
        "Input: 0.075 → 0.05",
        # 10,000 tokens at 0.075 and 1,000 at 0.3 USD per million.
        "A request with 10,000 tokens of prompt and 1,000 of answer: 0.00105 USD → 0.0008 USD",
    ]


def test_an_operator_applies_once_and_undoes(operator: Client, proposal: CatalogProposal) -> None:
    assert press(operator, proposal, "apply").status_code == 302
    proposal.refresh_from_db()
    assert (proposal.state, proposal.decided_by, price()) == ("applied", "op@example.com", "0.05")
    assert PriceChange.objects.get(author="op@example.com: litellm").new["input"] == "0.05"
    assert LogEntry.objects.filter(change_message="Apply", object_id=str(proposal.pk)).count() == 1
    # It no longer offers to apply.
    assert operator.get(path(proposal, "apply")).status_code == 302
    assert press(operator, proposal, "dismiss").status_code == 302
    proposal.refresh_from_db()
    assert (proposal.state, price()) == ("dismissed", "0.075")
    assert PriceChange.objects.filter(author="op@example.com: dismissed").count() == 1


def test_a_proposal_that_changed_meanwhile_is_shown_again(operator: Client, proposal: CatalogProposal) -> None:
    seen = operator.get(path(proposal, "apply")).context["form"].fields["seen"].initial
    proposal.changes, proposal.entry = [["input", "0.075", "0.01"]], {"offer": {"prices": {"input": "0.01"}}}
    proposal.save()
    answer = operator.post(path(proposal, "apply"), {"once": uuid4().hex, "seen": seen})
    assert answer.context["form"].errors == {
        "__all__": ["The proposal has changed. Check the changes above, then confirm again."]
    }
    proposal.refresh_from_db()
    assert (proposal.state, price()) == ("waiting", "0.075")


def test_a_disputed_proposal_can_only_be_dismissed(operator: Client, proposal: CatalogProposal) -> None:
    proposal.disputed = True
    proposal.save()
    assert operator.get(path(proposal, "apply")).status_code == 302
    proposal.refresh_from_db()
    assert (proposal.state, price()) == ("waiting", "0.075")
    assert press(operator, proposal, "dismiss").status_code == 302
    proposal.refresh_from_db()
    assert (proposal.state, price()) == ("dismissed", "0.075")


def test_a_long_request_is_shown_where_tiers_change(proposal: CatalogProposal) -> None:
    tiers = [{"above_input_tokens": 200_000, "input": "0.1"}]
    proposal.entry = {"offer": {"tiers": tiers}}
    assert preview(proposal) == [
        "A request with 10,000 tokens of prompt and 1,000 of answer: 0.00105 USD → 0.00105 USD",
        "A request with 300,000 tokens of prompt and 1,000 of answer: 0.0228 USD → 0.0303 USD",
    ]
    ModelProvider.objects.filter(provider_id="groq", model_id="gpt-oss-20b").update(price_overrides={"input": "0.2"})
    assert preview(proposal)[-1] == ("An operator's price overrides hold for this offer and win over the proposal.")


def test_a_usual_request_costs_what_the_providers_address_does(
    proposal: CatalogProposal, monkeypatch: pytest.MonkeyPatch
) -> None:
    proposal.provider, proposal.model = "vertex", "claude-opus-5-5"
    proposal.entry = {"offer": {"prices": {"input": "2"}}}
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "global")
    assert preview(proposal) == [
        "A request with 10,000 tokens of prompt and 1,000 of answer: 0.06 USD → 0.04 USD",
    ]
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "europe-west1")
    assert preview(proposal) == [
        "A request with 10,000 tokens of prompt and 1,000 of answer: 0.066 USD → 0.044 USD",
        "These costs include the factor 1.1 that the provider's address has on prices of tokens.",
    ]


def test_the_dashboard_and_the_list_of_providers_mark_old_prices(operator: Client, proposal: CatalogProposal) -> None:
    Provider.objects.filter(pk="groq").update(checked_on=date(2026, 1, 1))
    content = operator.get(reverse("admin:index")).content.decode()
    assert "Proposals waiting" in content
    assert "prices checked 2026-01-01; old" in content
    listing = operator.get(reverse("admin:catalog_provider_changelist")).content.decode()
    assert "2026-01-01 (old: " in listing
    shown = operator.get(reverse("admin:catalog_catalogproposal_changelist")).content.decode()
    assert "Input: 0.075 → 0.05" in shown
