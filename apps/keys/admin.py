"""API keys, access rules and provider credentials in the admin; secrets are never shown, nor made, here."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from apps.kernel.admin import KeptAdmin
from apps.keys.models import ApiKey, IamRule, ProviderKey
from apps.organizations.audited_admin import AuditedAdmin


class _MadeElsewhere(KeptAdmin, AuditedAdmin):
    """Rows that begin with a secret, which the admin never sees."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never."""
        return False


@admin.register(ApiKey)
class ApiKeyAdmin(_MadeElsewhere):
    """Who may call."""

    thing = "api_key"
    list_display = ("masked_token", "description", "project", "status", "usage", "usage_limit", "created_at")
    list_filter = ("status",)
    list_select_related = ("project",)
    search_fields = ("id__exact", "last_four__exact", "description", "project__name", "created_by__email")
    ordering = ("-id",)
    fields = (
        "id",
        "masked_token",
        "project",
        "created_by",
        "description",
        "status",
        "usage",
        "usage_limit",
        "period",
        "period_limit",
        "requests_per_minute",
        "expires_at",
        "allowed_origins",
        "created_at",
        "updated_at",
    )
    readonly_fields = ("id", "masked_token", "project", "created_by", "usage", "created_at", "updated_at")


@admin.register(IamRule)
class IamRuleAdmin(AuditedAdmin):
    """What a key may reach."""

    thing = "iam_rule"
    list_display = ("rule_type", "api_key", "status", "created_at")
    list_filter = ("rule_type", "status")
    list_select_related = ("api_key",)
    search_fields = ("id__exact", "api_key__description")
    autocomplete_fields = ("api_key",)
    ordering = ("-id",)


@admin.register(ProviderKey)
class ProviderKeyAdmin(_MadeElsewhere):
    """Organizations' own credentials at providers."""

    thing = "provider_key"
    list_display = ("provider", "provider_name", "masked_token", "organization", "status", "created_at")
    list_filter = ("status", "provider")
    list_select_related = ("organization",)
    search_fields = ("id__exact", "provider", "provider_name", "organization__name")
    ordering = ("-id",)
    # The address is where the credential is sent: whoever could change it could have the credential.
    readonly_fields = (
        "id",
        "organization",
        "provider",
        "provider_name",
        "base_url",
        "masked_token",
        "created_at",
        "updated_at",
    )
    fields = (*readonly_fields, "status")
