"""API keys and provider keys on an organization's page in the admin."""

from __future__ import annotations

from typing import Any

from apps.kernel.pages.admin import usd
from apps.kernel.pages.number_formats import mark_numbers
from apps.keys.models import ApiKey, ProviderKey
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
