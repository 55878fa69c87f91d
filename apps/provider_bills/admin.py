"""Provider bills in the admin: readings, lines, comparisons by day, and their differences. All read-only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from apps.kernel.pages.admin import LongTableAdmin, RecordAdmin
from apps.kernel.pages.number_formats import mark_numbers
from apps.provider_bills.models import BillComparison, BillDifference, BillLine, BillReading


@admin.register(BillReading)
class BillReadingAdmin(RecordAdmin):
    """One row a reading or import."""

    list_display = ("started_at", "provider", "origin", "lines", "new_lines", "covers_until", "problem")
    list_filter = ("provider",)
    sortable_by = ()
    ordering = ("-id",)
    help_texts = {
        "provider": "The provider's id in the catalog.",
        "started_at": "When it began (UTC).",
        "origin": "`api`, or the imported file: its name and the begin of its SHA-256.",
        "finished_at": "When it ended (UTC); empty: it is running, or its process ended early.",
        "covers_from": "The begin of the period whose lines it has (UTC); empty after a failure.",
        "covers_until": "The end of that period (UTC).",
        "lines": "Lines that it read.",
        "new_lines": "Lines that were new or had changed.",
        "problem": "Why it failed; empty: it did not.",
    }


@admin.register(BillLine)
class BillLineAdmin(LongTableAdmin):
    """One row a line and version; the highest version is in force."""

    list_display = ("starts_at", "provider", "source", "model", "version", "input_tokens", "output_tokens", "cost")
    list_filter = ("source",)
    owners = ("reading_id",)
    help_texts = {
        "reading": "The reading that brought it.",
        "provider": "The provider's id in the catalog.",
        "starts_at": "The begin of the period (UTC).",
        "ends_at": "The end of the period (UTC).",
        "output_tokens": "All output tokens, reasoning included.",
        "source": "The provider's report, or an imported file.",
        "model": "As the provider calls it; empty for costs of no model.",
        "request_id": "The request's id where the bill names single requests.",
        "version": "Counts from 1; a changed line is another version, and the highest is in force.",
        "requests": "Requests; empty where the provider does not state them.",
        "input_tokens": "All input tokens, cached ones included.",
        "cached_tokens": "The part read from the provider's cache.",
        "cache_write_tokens": "The part written to the provider's cache.",
        "cost": "USD; empty where the provider does not state it.",
        "fetched_at": "When it was stored (UTC).",
    }


@admin.register(BillComparison)
class BillComparisonAdmin(RecordAdmin):
    """One row a provider and day."""

    list_display = ("day", "provider", "billed_cost", "logged_cost", "difference", "causes", "is_within")
    list_filter = ("provider", "is_above")
    sortable_by = ()
    ordering = ("-day", "provider")
    help_texts = {
        "provider": "The provider's id in the catalog.",
        "day": "UTC.",
        "compared_at": "When bill and log were compared last (UTC).",
        "billed_cost": "USD; empty where the bill states no amounts.",
        "logged_cost": "USD at list prices, of requests that the gateway's own credentials paid.",
        "difference": "The bill less the log in USD; estimated from tokens where the bill states no amounts.",
        "is_above": "Whether the difference is above 1 USD and BILL_ALERT_PERCENT of the log.",
        "counts": "Differences by cause.",
    }

    @admin.display(description="Within threshold", boolean=True)
    def is_within(self, row: BillComparison) -> bool:
        """Return whether the difference is no alert."""
        return not row.is_above

    @admin.display(description="Differences")
    def causes(self, row: BillComparison) -> Any:
        """Return the number of differences of each cause in words."""
        labels = dict(BillDifference.Cause.choices)
        words = [f"{labels.get(cause, cause)} ({count})" for cause, count in sorted(row.counts.items())]
        return mark_numbers("; ".join(words) or "none")


@admin.register(BillDifference)
class BillDifferenceAdmin(LongTableAdmin):
    """One row a difference."""

    list_display = ("starts_at", "comparison", "cause", "model", "billed", "logged", "difference")
    list_filter = ("cause",)
    list_select_related = ("comparison",)
    owners = ("comparison_id",)
    help_texts = {
        "comparison": "The provider and the day.",
        "starts_at": "The begin of the period (UTC): an hour, a day, or a request's.",
        "ends_at": "The end of the period (UTC).",
        "cause": "Why bill and log differ.",
        "model": "The model without the day of its snapshot; empty for costs of no model.",
        "request_id": "The request's id where the bill names single requests.",
        "billed": "The provider's numbers.",
        "logged": "The request log's numbers.",
        "difference": "The bill less the log in USD, estimated where the bill states no amount; empty: unknown.",
    }
