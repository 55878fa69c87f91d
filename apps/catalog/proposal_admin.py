"""Proposals, price lists and scheduled prices in the admin: operators see each change with its effect, and decide."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from django import forms
from django.contrib import admin

from apps.catalog import actions, price_history
from apps.catalog.billed_prices import bill_prices, find_factor_of
from apps.catalog.models import CatalogProposal, ModelProvider, PriceListReading, ScheduledPriceChange
from apps.catalog.price_form import cost_lines
from apps.catalog.price_words import name_of, stated_prices
from apps.kernel.pages.admin import RecordAdmin
from apps.organizations.journal import audit
from apps.organizations.operators.admin_buttons import ButtonQuestion, ButtonsAdmin, Done, button

_STATES = CatalogProposal.State


class ApplyQuestion(ButtonQuestion):
    """Shows the changes and what they cost, and asks whether to apply them."""

    # A hash of the shown changes: a proposal that changes after the page was made is not applied unseen.
    seen = forms.CharField(widget=forms.HiddenInput, required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["seen"].initial = _fingerprint(self.row)

    @property
    def lines(self) -> list[str]:
        """Paragraphs: each change, the reasons for a person, and the cost of a usual request before and after."""
        changes = [f"{name_of(name)}: {old} → {new}" for name, old, new in self.row.changes]
        return [
            f"{self.row.provider}/{self.row.model}, stated by {', '.join(self.row.sources)}. In force for requests "
            "from now on; earlier bills keep their price.",
            *changes,
            *(f"Check this: {reason}" for reason in self.row.reasons),
            *preview(self.row),
        ]

    def clean(self) -> dict[str, Any]:
        """Refuse changes that the operator has not seen. Raises ValidationError."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if cleaned.get("seen") != _fingerprint(self.row):
            # The next click confirms the changes that are shown beside this error.
            self.data = {**dict(self.data.items()), "seen": _fingerprint(self.row)}
            raise forms.ValidationError("The proposal has changed. Check the changes above, then confirm again.")
        return cleaned


class DismissQuestion(ButtonQuestion):
    """Asks whether to dismiss a proposal, or to undo one that was applied."""

    @property
    def lines(self) -> list[str]:
        """A paragraph that explains the effect."""
        again = "It is proposed again only when the lists state something else."
        if self.row.state == _STATES.APPLIED:
            return [f"The catalog's files count again for {self.row}, from now on. {again}"]
        return [f"{self.row} stays as it is. {again}"]


def preview(row: CatalogProposal) -> list[str]:
    """Return lines with the cost of a usual request before and after, and of a long one if prices depend on length."""
    if "prices" not in row.entry["offer"] and "tiers" not in row.entry["offer"]:
        return []
    found = ModelProvider.objects.filter(provider=row.provider, model=row.model).select_related("provider").first()
    stated: Mapping[str, Any] = {} if found is None else found.prices
    overrides: Mapping[str, Any] = {} if found is None else found.price_overrides
    offer = row.entry["offer"]
    changed = {**stated, **offer.get("prices", {}), **({"tiers": offer["tiers"]} if "tiers" in offer else {})}
    try:
        factor = None if found is None else find_factor_of(found.provider, found.model_id, found.facts)
        before, after = (bill_prices(one, overrides, factor).card for one in (stated, changed))
    except (ValueError, TypeError) as error:
        return [f"Its cost cannot be shown: {error}"]
    lines = cost_lines(None if found is None else before, after)
    if factor is not None:
        lines.append(f"These costs include the factor {factor} that the provider's address has on prices of tokens.")
    if overrides:
        lines.append("An operator's price overrides hold for this offer and win over the proposal.")
    return lines


def _fingerprint(row: CatalogProposal) -> str:
    return sha256(repr((row.entry, row.changes)).encode()).hexdigest()


def _operator() -> str:
    operator = audit.acting_user()
    return operator.email if operator else actions.GATEWAY


@button(
    "Apply",
    permission="catalog.change_catalogproposal",
    icon="check",
    question=ApplyQuestion,
    offered=lambda row: row.state == _STATES.WAITING and not row.disputed,
)
def apply(page: Any, row: CatalogProposal, fields: Mapping[str, Any]) -> Done:
    """Apply a proposal."""
    actions.apply_proposals([row], _operator())
    return Done(f"{row} is applied")


@button(
    "Dismiss",
    permission="catalog.change_catalogproposal",
    icon="close",
    danger=True,
    question=DismissQuestion,
    offered=lambda row: row.state != _STATES.DISMISSED,
)
def dismiss(page: Any, row: CatalogProposal, fields: Mapping[str, Any]) -> Done:
    """Dismiss a proposal, or undo one that was applied."""
    actions.dismiss_proposal(row, _operator())
    return Done(f"{row} is dismissed")


@admin.register(CatalogProposal)
class CatalogProposalAdmin(ButtonsAdmin, RecordAdmin):
    """Proposals, waiting ones first; the buttons decide."""

    actions_detail = ("apply", "dismiss")
    apply, dismiss = apply, dismiss
    list_display = ("offer", "kind", "state", "changed", "needs_person", "sources_in_words", "first_seen_at")
    list_filter = ("state", "kind", "disputed", "provider")
    search_fields = ("provider", "model")
    search_help_text = "Part of a provider or a model"
    sortable_by = ()
    # Alphabetical: waiting is the last state.
    ordering = ("-state", "provider", "model")
    help_texts = {
        "provider": "The catalog's id.",
        "model": "The catalog's id.",
        "kind": "Prices of an offer, its end, or a new model.",
        "state": "Waiting for a decision, applied, or dismissed.",
        "changes": "Each changed field: its name, old and new value; USD per million tokens.",
        "entry": "The keys of the offer's entry in its data file that would change.",
        "reasons": "Why a person must decide; empty: the gateway may apply it if CATALOG_APPLY allows its kind.",
        "disputed": "The price lists disagree. It cannot be applied; configure the list that you believe.",
        "sources": "The price lists that state it.",
        "first_seen_at": "When a list stated it first (UTC).",
        "seen_at": "When a list stated it last (UTC).",
        "decided_at": "When it was applied or dismissed (UTC).",
        "decided_by": "The operator's address, or the program.",
    }

    @admin.display(description="Offer", ordering="provider")
    def offer(self, row: CatalogProposal) -> str:
        """Return provider and model."""
        return f"{row.provider}/{row.model}"

    @admin.display(description="Changes")
    def changed(self, row: CatalogProposal) -> str:
        """Return each field before and after."""
        return "; ".join(f"{name_of(name)}: {old} → {new}" for name, old, new in row.changes)

    @admin.display(description="Check")
    def needs_person(self, row: CatalogProposal) -> str:
        """Return why a person must decide."""
        return "; ".join(row.reasons) or "-"

    @admin.display(description="Sources")
    def sources_in_words(self, row: CatalogProposal) -> str:
        """Return the sources."""
        return ", ".join(row.sources)


@admin.register(PriceListReading)
class PriceListReadingAdmin(RecordAdmin):
    """The configured price lists and their last reading."""

    list_display = ("source", "read_at", "succeeded_at", "entries", "problem")
    sortable_by = ()
    ordering = ("source",)
    help_texts = {
        "source": "Kind and place, from CATALOG_PRICE_LISTS.",
        "read_at": "The last attempt to read it (UTC).",
        "succeeded_at": "The last time it was read without a problem (UTC).",
        "entries": "Models in the list with a price.",
        "problem": "Why it was refused; then it changed nothing.",
        "notes": "Entries and editions that were left out, with the reason.",
    }


class WithdrawQuestion(ButtonQuestion):
    """Asks whether to withdraw a scheduled price change."""

    text = "The prices of {row.provider}/{row.model} stay as they are."


@button(
    "Withdraw",
    permission="catalog.change_modelprovider",
    icon="close",
    danger=True,
    question=WithdrawQuestion,
    offered=lambda row: row.state == ScheduledPriceChange.State.WAITING,
)
def withdraw(page: Any, row: ScheduledPriceChange, fields: Mapping[str, Any]) -> Done:
    """Withdraw a scheduled price change."""
    price_history.withdraw(row, _operator())
    return Done(f"{row} is withdrawn")


@admin.register(ScheduledPriceChange)
class ScheduledPriceChangeAdmin(ButtonsAdmin, RecordAdmin):
    """Price changes that take effect later; the form of an offer schedules them."""

    actions_detail = ("withdraw",)
    withdraw = withdraw
    list_display = ("offer", "effective_at", "state", "prices", "author", "created_at")
    list_filter = ("state", "provider")
    search_fields = ("provider", "model")
    ordering = ("-effective_at",)
    sortable_by = ("effective_at",)
    fields = (
        *("offer", "prices", "overrides", "effective_at", "state", "author", "created_at", "decided_at"),
        "decided_by",
    )
    help_texts = {
        "offer": "Provider and model.",
        "prices": "The new price overrides, in USD.",
        "state": "Waiting until its time, applied, or withdrawn.",
        "overrides": "They replace the price overrides of the offer as a whole; USD, in the units of its form.",
        "effective_at": "When they take effect (UTC), within a minute.",
        "author": "The operator who scheduled them.",
        "decided_at": "When they were applied or withdrawn (UTC); empty: not yet.",
        "decided_by": "The operator who withdrew or scheduled them.",
    }

    @admin.display(description="Offer")
    def offer(self, row: ScheduledPriceChange) -> str:
        """Return provider and model."""
        return f"{row.provider}/{row.model}"

    @admin.display(description="Overrides")
    def prices(self, row: ScheduledPriceChange) -> str:
        """Return the prices as text."""
        return "; ".join(f"{one.name}: {one.amount}" for one in stated_prices(row.overrides)) or "None"
