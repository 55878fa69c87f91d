"""Violations: what rules found in requests, with filters and counts."""
# alone: one page; the folder's `__init__` lists the paths of all of them

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext

from apps.console.forms import Form, read_query, refused
from apps.console.pages.guardrails.settings import guarded_page, show_tab
from apps.console.workspace import Workspace
from apps.guardrails.configuration.load_config import list_custom_rules
from apps.guardrails.models import Violation
from apps.guardrails.rule_thread import loaded_rules
from apps.guardrails.serializers import ViolationsQuery
from apps.guardrails.stored_violations import count_since, find_page
from apps.kernel.errors import ApiError
from apps.kernel.pages.languages import translated, translated_choices

# Days that the counts above the list look back.
DAYS = 7


@guarded_page()
def violations(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List violations, newest first, those that the filters leave."""
    organization_id = workspace.organization.id
    rows: Sequence[Violation] = ()
    form, following = Form(_said(request.GET)), ""
    try:
        page = find_page(organization_id, read_query(request, ViolationsQuery))
        rows = page.rows
        if page.next_cursor is not None:
            following = _query_with(request.GET, cursor=page.next_cursor)
    except ApiError as error:
        form = refused(request.GET, error)
    rules = [("", gettext("Any")), *((rule.rule_id, translated(rule.name)) for rule in loaded_rules().values())]
    return show_tab(
        request,
        "violations",
        workspace,
        tab="violations",
        status=form.status,
        form=form,
        rows=rows,
        following=following,
        is_first=not request.GET.get("cursor"),
        newest=_query_with(request.GET),
        counts=count_since(organization_id, timezone.now() - timedelta(days=DAYS)),
        days=DAYS,
        taken=[("", gettext("Enforced")), *translated_choices(Violation.ActionTaken.choices)],
        rules=[*rules, *((str(rule.id), rule.name) for rule in list_custom_rules(organization_id))],
    )


def _said(said: QueryDict) -> dict[str, Any]:
    return {name: value for name, value in said.items() if str(value).strip() and name != "cursor"}


def _query_with(said: QueryDict, **changes: str) -> str:
    query = QueryDict(mutable=True)
    query.update({**_said(said), **changes})
    return query.urlencode()


PATHS = [path("o/<str:organization_id>/guardrails/violations", violations, name="violations")]
