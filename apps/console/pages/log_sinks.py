"""Log sinks: list with how their delivery goes, register, try with a sample, switch on and off, remove."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path

from apps.console.forms import Form, attempt, do_once, read_form
from apps.console.rendering import show
from apps.console.visit import back_to, workspace_page
from apps.console.workspace import Workspace
from apps.log_sinks import actions
from apps.log_sinks.access import NO_SINK, access_sink, access_sinks
from apps.log_sinks.models import LogSink
from apps.log_sinks.serializers import NewSinkShape, SinkChangesShape, fields_of_others, new_sink
from apps.organizations.models import Role

_FORMATS = [("jsonl", "JSON lines"), ("json", "One JSON array")]


@workspace_page("GET", "POST", needs=Role.ADMIN)
def log_sinks(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List the organization's sinks, and register one."""
    if request.method != "POST":
        return _page(request, workspace, Form())
    added, form = attempt(request, lambda: _add(request, workspace))
    if added is None:
        return _page(request, workspace, form)
    messages.success(request, f"The log sink {added['name']} was registered. Send it a sample to see that it answers.")
    return back_to("log_sinks", workspace)


@workspace_page("POST", needs=Role.ADMIN)
def send_sample(request: HttpRequest, workspace: Workspace, sink_id: str) -> HttpResponse:
    """Send a sink a row that is made up."""
    sink = _access(workspace, sink_id)
    _, form = attempt(request, lambda: actions.test_sink(sink=sink))
    if form.status != 200:
        messages.error(request, f"The log sink {sink} did not take the sample. {form.problem}")
    else:
        messages.success(request, f"The log sink {sink} took the sample.")
    return back_to("log_sinks", workspace)


@workspace_page("POST", needs=Role.ADMIN)
def switch(request: HttpRequest, workspace: Workspace, sink_id: str) -> HttpResponse:
    """Switch a sink on or off."""
    sink = _access(workspace, sink_id)
    changes, form = attempt(request, lambda: read_form(request, SinkChangesShape))
    if changes is None:
        return _page(request, workspace, form)
    changed = actions.change_sink(sink=sink, changes={"status": changes["status"]})
    messages.success(request, f"The log sink {changed} is {changed.status} now.")
    return back_to("log_sinks", workspace)


@workspace_page("POST", needs=Role.ADMIN)
def remove(request: HttpRequest, workspace: Workspace, sink_id: str) -> HttpResponse:
    """Remove a sink; its credentials are erased."""
    sink = _access(workspace, sink_id)
    actions.delete_sink(sink=sink)
    messages.success(request, f"The log sink {sink} was removed, and its credentials erased.")
    return back_to("log_sinks", workspace)


def _add(request: HttpRequest, workspace: Workspace) -> dict[str, str]:
    # The form has the fields of every kind.
    others = fields_of_others(request.POST.get("kind", ""))
    fields = read_form(request, NewSinkShape, leave_out=others, organizationId=str(workspace.organization.id))
    given = new_sink(fields)
    # The address is looked up first: nothing that is open waits for it.
    actions.check_sink(organization=workspace.organization, given=given)

    def create() -> dict[str, str]:
        return {"name": actions.create_sink(organization=workspace.organization, given=given).name}

    return do_once(request, workspace.user, create)


def _access(workspace: Workspace, sink_id: str) -> LogSink:
    """Return a sink of this organization. Raises NotFound, also for one of another organization of the visitor's."""
    sink = access_sink(workspace.user, sink_id)
    workspace.require_own(sink.organization_id, NO_SINK)
    return sink


def _page(request: HttpRequest, workspace: Workspace, form: Form) -> HttpResponse:
    return show(
        request,
        "log_sinks",
        workspace,
        entry="log_sinks",
        status=form.status,
        form=form,
        kinds=LogSink.Kind.choices,
        formats=_FORMATS,
        sinks=access_sinks(workspace.user, str(workspace.organization.id)),
    )


_HERE = "o/<str:organization_id>/log-sinks"
PATHS = [
    path(_HERE, log_sinks, name="log_sinks"),
    path(f"{_HERE}/<str:sink_id>/sample", send_sample, name="send_log_sink_sample"),
    path(f"{_HERE}/<str:sink_id>/switch", switch, name="switch_log_sink"),
    path(f"{_HERE}/<str:sink_id>/remove", remove, name="remove_log_sink"),
]
