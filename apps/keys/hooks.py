"""Hooks of organizations: keys in the admin, their erasure, and the revocation of a member's API keys."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from apps.kernel.pages.admin import usd
from apps.kernel.pages.number_formats import mark_numbers
from apps.keys.actions import end_api_key
from apps.keys.models import ApiKey, IamRule, ProviderKey
from apps.organizations.models import Organization
from apps.organizations.operators.organization_tabs import Tab, link_to, list_of, moment


def _keys(organization: Organization) -> Any:
    rows = ApiKey.objects.filter(project__organization=organization).select_related("project", "created_by")
    return rows.order_by("-id")


def _provider_keys(organization: Organization) -> Any:
    return ProviderKey.objects.filter(organization=organization).order_by("-id")


TABS = [
    Tab(
        "keys",
        "API keys",
        "keys.view_apikey",
        lambda row: list_of("keys_apikey", project__organization__id__exact=row.pk),
        ("Key", "Description", "Project", "Made by", "Status", "Usage (USD)", "Limit (USD)", "Created"),
        _keys,
        lambda row: (
            link_to(row, row.masked_token),
            row.description,
            link_to(row.project),
            link_to(row.created_by),
            row.status,
            mark_numbers(usd(row.usage)),
            mark_numbers(usd(row.usage_limit)),
            moment(row.created_at),
        ),
    ),
    Tab(
        "provider-keys",
        "Provider keys",
        "keys.view_providerkey",
        lambda row: list_of("keys_providerkey", organization__id__exact=row.pk),
        ("Provider", "Credential", "Status", "Created"),
        _provider_keys,
        lambda row: (link_to(row), row.masked_token, row.status, moment(row.created_at)),
    ),
]


def erase(organization_id: UUID) -> None:
    """Delete credentials and rules. API keys stay without personal data, so that late requests get an exact error."""
    ProviderKey.objects.filter(organization=organization_id).delete()
    IamRule.objects.filter(api_key__project__organization=organization_id).delete()
    ApiKey.objects.filter(project__organization=organization_id).update(description="")


def revoke(organization_id: UUID, user_id: UUID) -> int:
    """Delete the keys that a member created in an organization, inside the caller's transaction; return how many."""
    keys = ApiKey.objects.select_for_update(no_key=True).exclude(status=ApiKey.Status.DELETED)
    mine = list(keys.filter(project__organization=organization_id, created_by=user_id).order_by("id"))
    for key in mine:
        end_api_key(key)
    return len(mine)
