"""Tabs and buttons of an organization's page in the admin, contributed by each app.

An app contributes with `TABS` and `BUTTONS` in its module `hooks` (`apps.organizations.app_hooks`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.urls import reverse
from django.utils.html import format_html

from apps.organizations.app_hooks import find_hooks
from apps.organizations.models import Organization

# Rows in a tab; the linked list has the rest.
SHOWN = 50


@dataclass(frozen=True, slots=True)
class Tab:
    """Rows of an organization, newest first; `permission` is Django's, such as `keys.view_apikey`.

    `full_list` is the address of the list with all of them. A tab without `rows` is a link to that list.
    """

    name: str
    title: str
    permission: str
    full_list: Callable[[Organization], str]
    headers: Sequence[str] = ()
    rows: Callable[[Organization], QuerySet[Any]] | None = None
    cells: Callable[[Any], Sequence[Any]] = tuple

    def shown(self, organization: Organization) -> list[Sequence[Any]]:
        """Return the newest rows, as cells under the headers."""
        return [self.cells(one) for one in self.rows(organization)[:SHOWN]] if self.rows else []


class OrganizationLink:
    """An admin list column with the row's organization."""

    @admin.display(description="Organization")
    def organization_link(self, row: Any) -> str:
        """Return a link to the organization."""
        return link_to(row.organization)


def found_tabs() -> list[Tab]:
    """Return the tabs of all apps."""
    return [tab for tabs in find_hooks("TABS") for tab in tabs]


def found_buttons() -> list[Callable[..., Any]]:
    """Return the buttons of all apps (`admin_buttons.button`)."""
    return [button for buttons in find_hooks("BUTTONS") for button in buttons]


def list_of(table: str, **filters: Any) -> str:
    """Return the address of a filtered admin list (`billing_transaction`)."""
    query = "&".join(f"{name}={value}" for name, value in filters.items())
    return f"{reverse(f'admin:{table}_changelist')}?{query}"


def link_to(row: Any, text: object = None) -> str:
    """Return a link to a row's page, labelled with its name or `text`."""
    table = f"admin:{row._meta.app_label}_{row._meta.model_name}_change"
    label = str(row if text is None else text) or str(row.pk)
    return format_html('<a href="{}" class="text-link">{}</a>', reverse(table, args=[row.pk]), label)


def link_by_id(table: str, identifier: object, text: str | None = None) -> str:
    """Return a link to the page of a row by id (`organizations_organization`), labelled with `text` or the id."""
    address = reverse(f"admin:{table}_change", args=[identifier])
    return format_html('<a href="{}" class="text-link">{}</a>', address, text or identifier)


def moment(at: datetime | None) -> str:
    """Format a moment for lists, in UTC."""
    return "-" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"
