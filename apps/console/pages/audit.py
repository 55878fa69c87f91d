"""The audit log of an organization: who did what to which thing, and from where."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext

from apps.console.forms import Form, read_query, refused
from apps.console.rendering import show
from apps.console.visit import workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import InvalidRequest
from apps.kernel.pages.languages import translated
from apps.organizations.models import AuditEntry, Role
from apps.organizations.plans import limits_of
from apps.organizations.serializers import AuditQuery
from apps.organizations.views import find_entries

PER_PAGE = 50
# Details with values of the API that have labels; other texts are people's own.
_LABELLED = frozenset({"action", "mode", "period", "plan", "role", "status"})
_FILTERS = ("action", "actor", "resourceType", "startDate", "endDate")


@workspace_page(needs=Role.ADMIN)
def audit(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List entries, newest first, a page at a time."""
    if not limits_of(workspace.organization.plan).audit_logs:
        return show(request, "audit", workspace, entry="audit", missing_plan=True)
    form, entries, following = Form(values=request.GET.dict()), [], None
    try:
        page = find_entries(workspace.organization, read_query(request, AuditQuery, limit=str(PER_PAGE)))
        entries = [{"row": row, "details": _words_of(row)} for row in page.rows]
        following = page.next_cursor
    except InvalidRequest as error:
        form = refused(request.GET, error)
    kept = {name: request.GET[name] for name in _FILTERS if request.GET.get(name)}
    context: dict[str, Any] = {
        "form": form,
        "entries": entries,
        "is_filtered": bool(kept),
        "next": urlencode({**kept, "cursor": following}) if following else "",
        "first": urlencode(kept) if request.GET.get("cursor") else None,
    }
    return show(request, "audit", workspace, entry="audit", status=form.status, **context)


def _words_of(row: AuditEntry) -> list[str]:
    """Return what an entry tells beside its action: each change as from and to."""
    details: dict[str, Any] = dict(row.details)
    changes = details.pop("changes", {})
    change = gettext("{name}: {old} → {new}")
    words = [
        change.format(name=name, old=_text(name, one["from"]), new=_text(name, one["to"]))
        for name, one in changes.items()
    ]
    return words + [f"{name}: {_text(name, value)}" for name, value in details.items() if value not in (None, "", [])]


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    if value in (None, "", []):
        return gettext("none")
    if isinstance(value, str):
        return translated(value) if name in _LABELLED else value
    return json.dumps(value, ensure_ascii=False)


PATHS = [
    path("o/<str:organization_id>/audit", audit, name="audit"),
]
