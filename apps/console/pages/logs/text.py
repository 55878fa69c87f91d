"""The search box of the log's list: suggestions as visitors type, and the search of prompts and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils import timezone

from apps.console.rendering import show
from apps.console.visit import workspace_page
from apps.console.workspace import Workspace
from apps.kernel.postgres import replica
from apps.kernel.rest.pages import write_cursor
from apps.logs import archive
from apps.logs.access import LogScope, access_logs, scope_of_user
from apps.logs.query import MAX_TEXT, LogFilters, LogRow
from apps.logs.serializers import requested_ids_of
from apps.logs.suggestions import Suggestion, find_suggestions
from apps.logs.text_search import TextPage, find_text, has_words
from apps.organizations.models import RetentionLevel

# The parameter of the typed text.
TEXT: Final = "q"


@dataclass(frozen=True, slots=True)
class TextSearch:
    """A search by the typed text, as the list shows it.

    `next_cursor` leads on, also where the time limit ended the search at `searched_since`; `archived_before` is set if
    older requests are in the archive, which is not searched.
    """

    text: str
    suggestions: list[dict[str, str]]
    rows: list[LogRow]
    next_cursor: str | None
    searched_since: datetime | None
    archived_before: datetime | None
    has_words: bool


def typed_text(request: HttpRequest) -> str:
    """Return the text of the search box; empty without any."""
    return request.GET.get(TEXT, "").strip()[:MAX_TEXT]


def search_text(
    workspace: Workspace, scope: LogScope, filters: LogFilters, text: str, *, after: UUID | None, count: int
) -> TextSearch:
    """Return the matching requests of the scope, which has one organization, and suggestions for the text."""
    found, is_text = TextPage([], None), has_words(text)
    # Content from before an organization stopped keeping it is cleared within minutes.
    if is_text and scope.since and keeps_content(workspace):
        asked = partial(find_text, scope, filters, text, after=after, count=count)
        found = replica.read(lambda using: asked(using=using))
    now = datetime.now(UTC)
    return TextSearch(
        text=text,
        suggestions=_shown(workspace, replica.read(lambda using: find_suggestions(scope, text, using))),
        rows=found.rows,
        next_cursor=None if found.next_after is None else write_cursor(found.next_after),
        searched_since=found.searched_since,
        archived_before=archive.archived_before(now) if archive.find_archive() is not None else None,
        has_words=is_text,
    )


def keeps_content(workspace: Workspace) -> bool:
    """Return whether the organization keeps prompts and answers."""
    return workspace.organization.retention_level == RetentionLevel.RETAIN


@workspace_page()
def suggestions(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show suggestions for the typed text, as a part of the list's page."""
    scope = access_logs(
        scope_of_user(workspace.user, timezone.now()), requested_ids_of({"org_id": str(workspace.organization.id)})
    )
    text = typed_text(request)
    found = replica.read(lambda using: find_suggestions(scope, text, using))
    return show(request, "logs/suggestions", workspace, suggestions=_shown(workspace, found))


def _shown(workspace: Workspace, found: Sequence[Suggestion]) -> list[dict[str, str]]:
    """Return suggestions with the address that each leads to."""
    names: dict[str, Any] = {"organization_id": workspace.organization.id}
    requests = reverse("console:logs", kwargs=names)
    return [
        {
            "kind": one.kind,
            "value": one.value,
            "address": reverse("console:one_log", kwargs={**names, "log_id": one.parameters["id"]})
            if "id" in one.parameters
            else f"{requests}?{urlencode(one.parameters)}",
        }
        for one in found
    ]


PATHS = [path("o/<str:organization_id>/logs/suggestions", suggestions, name="log_suggestions")]
