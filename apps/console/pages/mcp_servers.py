"""MCP servers: list, register after listing their tools, set access, switch on and off, remove."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext

from apps.console.forms import Form, attempt, is_unticked, read_form
from apps.console.integration_pages import TEST, IntegrationPages
from apps.console.rendering import show
from apps.console.visit import back_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.pages.languages import gettext_lazy
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.mcp_servers import actions
from apps.mcp_servers.actions import ListedTool
from apps.mcp_servers.models import TIMEOUT, McpServer
from apps.mcp_servers.serializers import ServerChangesShape
from apps.mcp_servers.views import KIND
from apps.organizations.models import Role

# List fields of the form with their "all" checkbox: an empty list means none, never all.
_RETYPE = gettext_lazy("Type it again: secrets are not shown again")
_RETYPE_VALUES = gettext_lazy("Type the values again: secrets are not shown again")
_LISTS = {"allowedTools": "everyTool", "projectIds": "everyProject"}


class _McpServerPages(IntegrationPages[McpServer]):
    kind = KIND
    route, one, parameter = "mcp_servers", "mcp_server", "server_id"
    removed_words = gettext_lazy("The MCP server {name} was removed, and its credentials erased.")
    on_words = gettext_lazy("The MCP server {name} is active now.")
    off_words = gettext_lazy("The MCP server {name} is inactive now.")

    def blank(self) -> Form:
        return Form({"timeoutSeconds": TIMEOUT, **dict.fromkeys(_LISTS.values(), True)})

    def read(self, request: HttpRequest, **given: Any) -> dict[str, Any]:
        return read_form(request, self.kind.new, **given, **_lists(request))

    def refused(self, request: HttpRequest, form: Form) -> Form:
        return _without_secrets(request, form)

    def added(self, request: HttpRequest, name: str) -> str:
        if is_unticked(request, TEST):
            return gettext("The MCP server {name} was registered; it was not tested.").format(name=name)
        return gettext("The MCP server {name} was registered; it lists its tools.").format(name=name)

    def context(self, request: HttpRequest, workspace: Workspace, form: Form) -> Mapping[str, Any]:
        return {"picked": _picked(request, form)}


_PAGES = _McpServerPages()


@workspace_page("GET", "POST", needs=Role.ADMIN)
def mcp_server(request: HttpRequest, workspace: Workspace, server_id: str) -> HttpResponse:
    """Show a server, and change its access."""
    server = _PAGES.access(workspace, server_id)
    if request.method != "POST":
        return _show_server(request, workspace, server, _form_of(server))
    changed, form = attempt(request, lambda: actions.change_server(server=server, changes=_changes(request)))
    if changed is None:
        return _show_server(request, workspace, server, _without_secrets(request, form))
    messages.success(request, gettext("The MCP server {name} was changed.").format(name=changed))
    return back_to("mcp_servers", workspace)


@workspace_page("POST", needs=Role.ADMIN)
def look(request: HttpRequest, workspace: Workspace, server_id: str) -> HttpResponse:
    """List a server's tools and show them."""
    return _show_tools(request, workspace, _PAGES.access(workspace, server_id))


@workspace_page("POST", needs=Role.ADMIN)
def accept(request: HttpRequest, workspace: Workspace, server_id: str) -> HttpResponse:
    """Accept a changed tool in the version that was shown."""
    server = _PAGES.access(workspace, server_id)
    tool = request.POST.get("tool", "")
    accepted = {tool: request.POST.get("digest", "")}
    changes, form = attempt(request, lambda: read_form(request, ServerChangesShape, acceptedTools=accepted))
    if changes is None:
        return _show_server(request, workspace, server, form)
    changed = actions.change_server(server=server, changes=changes)
    messages.success(request, gettext("The changed tool {tool} was accepted.").format(tool=tool))
    return _show_tools(request, workspace, changed)


def _show_tools(request: HttpRequest, workspace: Workspace, server: McpServer) -> HttpResponse:
    tools, problem = attempt(request, lambda: actions.look_at_tools(server=server))
    return _show_server(request, workspace, server, _form_of(server), tools, problem)


def _changes(request: HttpRequest) -> dict[str, object]:
    """Return the changes of the form: an empty token keeps the current one."""
    kept = {name for name in ("token", "headers") if not request.POST.get(name, "").strip()}
    return read_form(request, ServerChangesShape, leave_out=kept, never_empty=("timeoutSeconds",), **_lists(request))


def _without_secrets(request: HttpRequest, form: Form) -> Form:
    """Return a refused form with the header names but without their values, and say so."""
    values, errors = dict(form.values), dict(form.errors)
    if request.POST.get("token", "").strip():
        errors.setdefault("token", _RETYPE)
    if typed := request.POST.get("headers", "").strip():
        try:
            headers = json.loads(typed)
        except (ValueError, RecursionError):
            headers = None
        if isinstance(headers, dict):
            values["headers"] = json.dumps(dict.fromkeys(headers, ""), indent=1, ensure_ascii=False)
        again = _RETYPE_VALUES if isinstance(headers, dict) else _RETYPE
        errors["headers"] = f"{errors['headers']}. {again}" if "headers" in errors else again
    return replace(form, values=values, errors=errors)


def _lists(request: HttpRequest) -> dict[str, Any]:
    """Return the lists of the form, None if "all" is ticked. Raises InvalidFields if both are given."""
    found: dict[str, Any] = {}
    for name, everything in _LISTS.items():
        lines = _lines(request.POST.getlist(name))
        is_all = request.POST.getlist(everything)[-1:] == ["true"]
        if lines and is_all:
            raise InvalidFields([Issue(name, "Leave this empty, or untick the box above")])
        found[name] = None if is_all else lines
    return found


def _lines(texts: Iterable[str]) -> list[str]:
    return [line.strip() for text in texts for line in text.splitlines() if line.strip()]


def _picked(request: HttpRequest, form: Form) -> list[str]:
    """Return the ids of ticked projects: as submitted, else as stored."""
    return _lines(request.POST.getlist("projectIds") or [str(form.values.get("projectIds", ""))])


def _form_of(server: McpServer) -> Form:
    lists = {"allowedTools": server.allowed_tools, "projectIds": server.project_ids}
    lines = {name: "\n".join(value or ()) for name, value in lists.items()}
    ticks = {_LISTS[name]: value is None for name, value in lists.items()}
    return Form({**lines, **ticks, "timeoutSeconds": server.timeout_seconds})


def _show_server(
    request: HttpRequest,
    workspace: Workspace,
    server: McpServer,
    form: Form,
    tools: list[ListedTool] | None = None,
    problem: Form | None = None,
) -> HttpResponse:
    failed = problem is not None and problem.status != 200
    return show(
        request,
        "mcp_server",
        workspace,
        entry="mcp_servers",
        status=400 if failed else form.status,
        form=form,
        picked=_picked(request, form),
        server=server,
        tools=tools,
        is_looked_at=tools is not None,
        look_problem=(problem.problem or next(iter(problem.errors.values()), "")) if problem and failed else "",
    )


PATHS = [
    *_PAGES.paths(),
    path(_PAGES.row, mcp_server, name="mcp_server"),
    path(f"{_PAGES.row}/look", look, name="look_at_mcp_server"),
    path(f"{_PAGES.row}/accept", accept, name="accept_mcp_tool"),
]
