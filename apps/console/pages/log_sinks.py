"""Log sinks: list with how their delivery goes, register, try with a sample, switch on and off, remove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path

from apps.console.forms import Form, attempt, read_form
from apps.console.integration_pages import IntegrationPages
from apps.console.visit import back_to, workspace_page
from apps.console.workspace import Workspace
from apps.log_sinks import actions
from apps.log_sinks.models import LogSink
from apps.log_sinks.serializers import fields_of_others
from apps.log_sinks.views import KIND
from apps.organizations.models import Role

_FORMATS = [("jsonl", "JSON lines"), ("json", "One JSON array")]


class _LogSinkPages(IntegrationPages[LogSink]):
    kind = KIND
    route, one, parameter = "log_sinks", "log_sink", "sink_id"
    noun = "log sink"

    def read(self, request: HttpRequest, **given: Any) -> dict[str, Any]:
        # The form has the fields of every kind.
        others = fields_of_others(request.POST.get("kind", ""))
        return read_form(request, self.kind.new, leave_out=others, **given)

    def added(self, request: HttpRequest, name: str) -> str:
        return f"The log sink {name} was registered. Send it a sample to see that it answers."

    def context(self, request: HttpRequest, workspace: Workspace, form: Form) -> Mapping[str, Any]:
        return {"kinds": LogSink.Kind.choices, "formats": _FORMATS}


_PAGES = _LogSinkPages()


@workspace_page("POST", needs=Role.ADMIN)
def send_sample(request: HttpRequest, workspace: Workspace, sink_id: str) -> HttpResponse:
    """Send a sink a row that is made up."""
    sink = _PAGES.access(workspace, sink_id)
    _, form = attempt(request, lambda: actions.test_sink(sink=sink))
    if form.status != 200:
        messages.error(request, f"The log sink {sink} did not take the sample. {form.problem}")
    else:
        messages.success(request, f"The log sink {sink} took the sample.")
    return back_to("log_sinks", workspace)


PATHS = [*_PAGES.paths(), path(f"{_PAGES.row}/sample", send_sample, name="send_log_sink_sample")]
