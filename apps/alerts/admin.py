"""Alerts in the admin: destinations and rules that operators may switch; alerts, deliveries, readers and schedules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import admin

from apps.alerts import actions
from apps.alerts.access import DESTINATIONS, RULES
from apps.alerts.models import Alert, AlertDelivery, AlertDestination, AlertReader, AlertRule, AlertWatch
from apps.destinations.destination_admin import DestinationAdmin
from apps.kernel.pages.admin import LongTableAdmin, RecordAdmin
from apps.organizations.integrations.integration_admin import IntegrationAdmin, delete_button
from apps.organizations.operators.organization_tabs import OrganizationLink


@admin.register(AlertDestination)
class AlertDestinationAdmin(DestinationAdmin):
    """Destinations of organizations."""

    thing = DESTINATIONS.thing
    actions_detail = ("delete_destination",)
    delete_destination = delete_button(
        DESTINATIONS,
        "delete_destination",
        text="{row} gets no more alerts, and its credentials are erased. This cannot be undone.",
    )

    def change_row(self, row: AlertDestination, changes: Mapping[str, Any]) -> None:
        """Switch a destination on or off."""
        actions.change_destination(destination=row, changes=changes)


@admin.register(AlertRule)
class AlertRuleAdmin(IntegrationAdmin):
    """Rules of organizations."""

    thing = RULES.thing
    actions_detail = ("delete_rule",)
    delete_rule = delete_button(
        RULES, "delete_rule", text="{row} fires no more alerts, and its open alerts are resolved."
    )
    list_display = ("summary", "kind", "organization_link", "status", "created_at")
    list_filter = ("kind", "status")
    search_fields = ("id__exact", "organization__name")
    readonly_fields = ("id", "organization", "kind", "parameters", "destination_ids", "created_at", "updated_at")
    fields = (*readonly_fields, "status")
    help_texts = {
        "kind": "The condition.",
        "parameters": "Thresholds of the kind; amounts in USD.",
        "destination_ids": "The destinations that get its alerts beside e-mail; empty: each.",
        "status": "An inactive rule fires no alerts. Remove it with the button above.",
    }

    def change_row(self, row: AlertRule, changes: Mapping[str, Any]) -> None:
        """Switch a rule on or off."""
        actions.change_rule(rule=row, changes=changes)


@admin.register(Alert)
class AlertAdmin(OrganizationLink, LongTableAdmin):
    """Alerts of organizations."""

    list_display = ("title", "kind", "organization_link", "fired_at", "resolved_at")
    list_filter = ("kind",)
    list_select_related = ("organization",)
    owners = ("organization_id", "rule_id")
    help_texts = {
        "rule": "The rule that fired.",
        "kind": "The condition.",
        "subject": "The key, model, sink, … that it is about; empty: the organization.",
        "title": "Its heading in messages.",
        "text": "The facts and the next step.",
        "page": "The page of the console with the next step.",
        "figures": "The numbers when it fired.",
        "owners_told": "Owners get another e-mail about the cause.",
        "fired_at": "When the condition was met (UTC).",
        "resolved_at": "When it no longer was (UTC); empty: open, or an event.",
    }


@admin.register(AlertDelivery)
class AlertDeliveryAdmin(LongTableAdmin):
    """Messages about alerts."""

    list_display = ("id", "alert", "destination", "phase", "status", "created_at", "sent_at")
    list_filter = ("status",)
    list_select_related = ("alert", "destination")
    owners = ("alert_id", "destination_id")
    help_texts = {
        "alert": "The alert.",
        "destination": "Where it is sent; empty: by e-mail to owners and admins.",
        "phase": "Whether the alert fired or was resolved.",
        "status": "Dropped: it waited for three days, or its destination was deleted.",
        "created_at": "When it was queued (UTC).",
        "next_attempt_at": "An e-mail is not sent before this moment (UTC).",
        "sent_at": "When it was accepted (UTC); empty: not yet.",
    }


@admin.register(AlertReader)
class AlertReaderAdmin(RecordAdmin):
    """Choices of members."""

    list_display = ("membership", "by_email", "read_until")
    list_filter = ("by_email",)
    list_select_related = ("membership",)
    search_fields = ("membership__id__exact",)
    ordering = ("-membership_id",)
    help_texts = {
        "membership": "The member.",
        "by_email": "Whether the member gets e-mails about alerts.",
        "read_until": "Later alerts are unread (UTC); empty: all are.",
        "quiet_from": "When the member's daily hours without e-mails begin; empty: none.",
        "quiet_until": "When they end.",
        "time_zone": "The time zone of these hours.",
        "held_since": "E-mails wait since then (UTC) for the end of these hours; empty: none waits.",
        "next_digest_at": "Waiting e-mails are not sent before this moment (UTC).",
    }


@admin.register(AlertWatch)
class AlertWatchAdmin(RecordAdmin):
    """Schedules of evaluation."""

    list_display = ("organization", "next_evaluation_at")
    list_select_related = ("organization",)
    search_fields = ("organization__id__exact", "organization__name")
    ordering = ("next_evaluation_at",)
    help_texts = {
        "organization": "The organization.",
        "next_evaluation_at": "When its rules are evaluated next (UTC).",
    }
