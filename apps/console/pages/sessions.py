"""Sessions: requests that share a client's session, such as an agent's run; one session as a tree in time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse, QueryDict
from django.urls import path
from django.utils import timezone
from django.utils.translation import gettext

from apps.console.forms import Form, read_query, refused
from apps.console.rendering import show
from apps.console.visit import workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import ApiError, NotFound
from apps.kernel.pages import number_formats as as_text
from apps.kernel.postgres import replica
from apps.kernel.rest.pages import page_of, write_cursor
from apps.logs.access import LogScope, access_logs, scope_of_user
from apps.logs.attempts import bar_of
from apps.logs.request_page import ENDS
from apps.logs.serializers import OneSessionQuery, SessionsQuery, requested_ids_of
from apps.logs.sessions import (
    MAX_SUMMED,
    LogSession,
    SessionStep,
    SessionTurn,
    find_session,
    find_sessions,
    find_steps,
    turns_of,
)

# Programs by the name in their `User-Agent`.
PROGRAMS: Final = {
    "claude-cli": "Claude Code",
    "codex_cli_rs": "Codex",
    "codex_exec": "Codex",
    "geminicli": "Gemini CLI",
    "opencode": "opencode",
}


@workspace_page()
def sessions(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List sessions, those with the newest requests first."""
    given = {name: str(value) for name, value in request.GET.items() if name != "cursor"}
    values = {name: value for name, value in given.items() if value.strip()}
    form, found, following = Form(values), list[LogSession](), None
    try:
        query = read_query(request, SessionsQuery, orgId=str(workspace.organization.id))
        asked = partial(
            find_sessions,
            _scope(workspace, query),
            start=query.get("start_date"),
            end=query.get("end_date"),
            after=query.get("cursor"),
            count=query["limit"],
        )
        found, next_after = replica.read(lambda using: asked(using=using))
        following = None if next_after is None else write_cursor(next_after)
    except ApiError as error:
        form = refused(request.GET, error)
    return show(
        request,
        "sessions/list",
        workspace,
        entry="sessions",
        status=form.status,
        form=form,
        rows=[{"session": one, "program": program_of(one.user_agent)} for one in found],
        is_filtered=bool(values),
        is_first=not request.GET.get("cursor"),
        newest=_query_with(values),
        following=None if following is None else _query_with(values, cursor=following),
        projects=[("", gettext("Any")), *((one.id, one.name) for one in workspace.projects)],
    )


@workspace_page()
def one_session(request: HttpRequest, workspace: Workspace, session_id: str) -> HttpResponse:
    """Show a session with its requests, the oldest first."""
    query = read_query(request, OneSessionQuery, orgId=str(workspace.organization.id))
    scope = _scope(workspace, query)
    session = replica.read(partial(find_session, scope, session_id))
    if session is None:
        raise NotFound("There is no such session in the log; it may be past its retention")
    asked = partial(find_steps, scope, session, after=query.get("cursor"), count=query["limit"] + 1)
    page = page_of(replica.read(lambda using: asked(using=using)), query["limit"], _id_of)
    return show(
        request,
        "sessions/one",
        workspace,
        entry="sessions",
        session=session,
        program=program_of(session.user_agent),
        most=MAX_SUMMED,
        turns=_shown_turns(page.rows),
        is_first=not request.GET.get("cursor"),
        following=page.next_cursor,
    )


def program_of(user_agent: str | None) -> str:
    """Return the name of a client's program; its user agent where it is not known."""
    name = (user_agent or "").partition("/")[0]
    return PROGRAMS.get(name.lower(), user_agent or "")


def _shown_turns(steps: Sequence[SessionStep]) -> list[dict[str, Any]]:
    """Return the turns of requests, each request with its place in the time of all of them."""
    if not steps:
        return []
    began = steps[0].created_at
    whole = max((step.ended_at - began).total_seconds() * 1000 for step in steps)
    return [
        {"turn": turn, "duration": as_text.milliseconds(turn.duration), "steps": _shown_steps(turn, began, whole)}
        for turn in turns_of(steps)
    ]


def _shown_steps(turn: SessionTurn, began: Any, whole: float) -> list[dict[str, Any]]:
    shown = []
    for step in turn.steps:
        start = (step.created_at - began).total_seconds() * 1000
        first = step.time_to_first_token
        shown.append(
            {
                "row": step,
                "end": dict(ENDS).get(step.unified_finish_reason or "unknown", step.unified_finish_reason),
                "offset": as_text.milliseconds(start),
                "tools": _tools_of(step),
                "bar": bar_of(start, None if first is None else start + first, start + step.duration, whole),
            }
        )
    return shown


def _tools_of(step: SessionStep) -> str:
    counts = step.tool_call_counts or {}
    return ", ".join(name if number == 1 else f"{name} ({number})" for name, number in counts.items())


def _scope(workspace: Workspace, query: dict[str, Any]) -> LogScope:
    return access_logs(scope_of_user(workspace.user, timezone.now()), requested_ids_of(query))


def _id_of(step: SessionStep) -> UUID:
    return step.id


def _query_with(values: dict[str, Any], **changes: str) -> str:
    query = QueryDict(mutable=True)
    query.update({**values, **changes})
    return query.urlencode()


PATHS = [
    path("o/<str:organization_id>/sessions", sessions, name="sessions"),
    path("o/<str:organization_id>/sessions/<path:session_id>", one_session, name="one_session"),
]
