"""The admin of destinations: delivery state, switching, deleting; only organizations register them."""

from __future__ import annotations

from typing import ClassVar

from apps.organizations.integrations.integration_admin import IntegrationAdmin


class DestinationAdmin(IntegrationAdmin):
    """Rows of a kind of destinations. A kind's own page adds its `delete_button` and how a row is switched."""

    list_display = ("name", "kind", "url", "organization_link", "status", "failures", "last_delivered_at")
    list_filter = ("kind", "status")
    search_fields = ("id__exact", "name", "organization__name")
    # Changing the address would redirect deliveries.
    readonly_fields: ClassVar[tuple[str, ...]] = (
        *("id", "organization", "name", "kind", "url", "masked_credentials", "created_at", "updated_at"),
        *("last_delivered_at", "failures", "failing_since", "last_error", "last_error_at", "next_attempt_at"),
        "leased_until",
    )
    fields: ClassVar[tuple[str, ...]] = (*readonly_fields, "status")
    help_texts = {
        "kind": "How it is called.",
        "url": "Where deliveries go; masked where the address is the secret.",
        "masked_credentials": "The public part of the credentials, or their last characters.",
        "last_delivered_at": "Time of the last delivery (UTC); empty: never.",
        "failures": "Consecutive failures; after three days of them the destination is switched off.",
        "failing_since": "Time of the first consecutive failure (UTC); empty: it works.",
        "last_error": "The last error; empty: none yet.",
        "last_error_at": "Time of the last error (UTC).",
        "next_attempt_at": "Nothing is sent before this moment (UTC).",
        "leased_until": "End of the current run, or of the last one (UTC).",
        "status": "An inactive destination receives nothing. Remove it with the button above.",
    }
