"""Renders pages inside the console's frame: title, navigation, open entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from apps.alerts.access import MAX_COUNTED, reader_of, unread
from apps.console.workspace import Workspace
from apps.kernel.pages.languages import gettext_lazy
from apps.organizations.models import Role


class PageLink(NamedTuple):
    """A navigation entry: its label, its route, and the role that sees it."""

    words: str
    route: str
    needs: Role = Role.DEVELOPER


# Grouped, in display order.
NAVIGATION: Final[tuple[tuple[str, tuple[PageLink, ...]], ...]] = (
    ("", (PageLink(gettext_lazy("Overview"), "overview"), PageLink(gettext_lazy("Playground"), "playground"))),
    (
        gettext_lazy("Monitor"),
        (
            PageLink(gettext_lazy("Logs"), "logs"),
            PageLink(gettext_lazy("Sessions"), "sessions"),
            PageLink(gettext_lazy("Refused requests"), "refusals"),
            PageLink(gettext_lazy("Usage"), "usage"),
            PageLink(gettext_lazy("Log sinks"), "log_sinks", Role.ADMIN),
            PageLink(gettext_lazy("Alerts"), "alerts", Role.ADMIN),
        ),
    ),
    (
        gettext_lazy("Access"),
        (
            PageLink(gettext_lazy("API keys"), "keys"),
            PageLink(gettext_lazy("Programs"), "programs"),
            PageLink(gettext_lazy("Projects"), "projects"),
            PageLink(gettext_lazy("Provider keys"), "provider_keys", Role.ADMIN),
            PageLink(gettext_lazy("MCP servers"), "mcp_servers", Role.ADMIN),
            PageLink(gettext_lazy("Service accounts"), "service_accounts", Role.ADMIN),
            PageLink(gettext_lazy("Management keys"), "management_keys", Role.ADMIN),
        ),
    ),
    (
        gettext_lazy("Safety"),
        (
            PageLink(gettext_lazy("Guardrails"), "guardrails", Role.ADMIN),
            PageLink(gettext_lazy("Audit log"), "audit", Role.ADMIN),
        ),
    ),
    (
        gettext_lazy("Organization"),
        (
            PageLink(gettext_lazy("Members"), "members"),
            PageLink(gettext_lazy("Teams"), "teams"),
            PageLink(gettext_lazy("Limits"), "limits", Role.ADMIN),
            PageLink(gettext_lazy("Billing"), "billing", Role.ADMIN),
            PageLink(gettext_lazy("Settings"), "organization_settings", Role.ADMIN),
        ),
    ),
)


def show(
    request: HttpRequest,
    template: str,
    workspace: Workspace | None = None,
    *,
    entry: str = "",
    status: int = 200,
    **context: Any,
) -> HttpResponse:
    """Return a page: `console/<template>.html` in the frame; `entry` is the route of the current navigation entry."""
    frame = {"navigation": _navigation(workspace, entry), "unread_alerts": _unread_alerts(workspace)}
    whole: Mapping[str, Any] = {**context, "workspace": workspace, **frame}
    return render(request, f"console/{template}.html", dict(whole), status=status)


def may_open(workspace: Workspace, route: str) -> bool:
    """Return whether the visitor's role may open a page of the navigation."""
    return any(one.route == route and _is_seen(one, workspace) for _, entries in NAVIGATION for one in entries)


def _unread_alerts(workspace: Workspace | None) -> str:
    """Return how many alerts the visitor has not read, for the bell; empty for none."""
    if workspace is None or not workspace.is_admin:
        return ""
    count = unread(workspace.organization, reader_of(workspace.user, workspace.organization))
    return f"{count - 1}+" if count == MAX_COUNTED else str(count or "")


def _is_seen(link: PageLink, workspace: Workspace) -> bool:
    return link.needs is not Role.ADMIN or workspace.is_admin


def _navigation(workspace: Workspace | None, entry: str) -> list[dict[str, Any]]:
    if workspace is None:
        return []
    groups = []
    for words, entries in NAVIGATION:
        seen = [one for one in entries if _is_seen(one, workspace)]
        shown = [
            {
                "words": one.words,
                "url": reverse(f"console:{one.route}", kwargs={"organization_id": workspace.organization.id}),
                "is_open": one.route == entry,
            }
            for one in seen
        ]
        groups.append({"words": words, "entries": shown})
    return groups
