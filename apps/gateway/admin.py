"""What the nightly reconciliation found, in the admin: to be looked at."""

from __future__ import annotations

from django.contrib import admin

from apps.gateway.models import Difference, Reconciliation
from apps.kernel.admin import LongTableAdmin, RecordAdmin


@admin.register(Reconciliation)
class ReconciliationAdmin(RecordAdmin):
    """One row a run."""

    list_display = ("started_at", "finished_at", "compared", "found", "days")
    ordering = ("-id",)


@admin.register(Difference)
class DifferenceAdmin(LongTableAdmin):
    """One row a difference."""

    list_display = ("reconciliation", "kind", "subject_id", "expected", "found", "organization_id")
    list_filter = ("kind",)
    list_select_related = ("reconciliation",)
    owners = ("subject_id", "organization_id", "reconciliation_id")
