"""Limits in the admin: read-only; organizations manage their own."""

from __future__ import annotations

from django.contrib import admin

from apps.kernel.pages.admin import LongTableAdmin, RecordAdmin
from apps.limits.models import Limit, LimitCharge, LimitCounter
from apps.organizations.operators.organization_tabs import OrganizationLink


@admin.register(Limit)
class LimitAdmin(OrganizationLink, RecordAdmin):
    """Limits of organizations."""

    list_display = ("name", "organization_link", "scope", "model", "provider", "counts", "window", "amount", "action")
    list_filter = ("scope", "counts", "window", "action")
    list_select_related = ("organization",)
    search_fields = ("id__exact", "name", "organization__name")
    sortable_by = ()
    ordering = ("-id",)
    help_texts = {
        "scope": "Whose requests count.",
        "team": "The team, of limits of a team.",
        "project": "The project, of limits of a project or of its end users.",
        "member": "The member whose keys count.",
        "api_key": "The key whose requests count.",
        "end_user": "The one end user that it is for; empty: each end user has a counter.",
        "model": "A model's id, or a pattern with *; empty: all models.",
        "provider": "The id of the provider whose answers count; empty: all.",
        "counts": "The part of a request that counts.",
        "window": "When it counts from 0 again.",
        "rolling": "How many hours or days count together, the present one and those before; empty: one.",
        "starts_on": "Weeks or months begin on this date's weekday, or day of the month; empty: Monday, the first.",
        "time_zone": "The time zone of days, weeks and months.",
        "amount": "USD, or a whole number.",
        "action": "How a request beyond the limit is handled.",
        "raised_amount": "The amount that holds instead for a time; empty: none.",
        "raised_until": "The raised amount holds until this moment (UTC).",
        "raise_reason": "Why it was raised.",
    }


@admin.register(LimitCounter)
class LimitCounterAdmin(LongTableAdmin):
    """Usage of limits, by window."""

    list_display = ("id", "limit_id", "starts_at", "ends_at", "used")
    search_help_text = "The exact id of a counter, a limit or an organization"
    owners = ("limit_id", "organization_id")
    help_texts = {
        "limit_id": "The limit that it counts for.",
        "organization_id": "The organization of the limit.",
        "starts_at": "The first moment of the window (UTC).",
        "ends_at": "The first moment after the window (UTC); empty: it never ends.",
        "is_money": "Whether it counts USD.",
        "used": "USD, or a whole number.",
        "folded": "The part of it whose requests are no longer kept one by one.",
        "used_version": "Counts the changes; its copy in Valkey has the same number.",
    }


@admin.register(LimitCharge)
class LimitChargeAdmin(LongTableAdmin):
    """Amounts that settled requests added to counters."""

    list_display = ("reference", "organization_id", "created_at")
    ordering = ("-reference",)
    search_fields = ("reference",)
    search_help_text = "The exact id of a request or an organization"
    owners = ("organization_id",)
    help_texts = {
        "reference": "The id of the request in the request log.",
        "organization_id": "The organization whose request it was.",
        "counted": "Pairs of a counter and the amount that was added.",
    }
