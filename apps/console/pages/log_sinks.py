"""Log sinks: list with how their delivery goes, register, try with a sample, switch on and off, remove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils.translation import gettext

from apps.console.forms import Form, attempt, read_form
from apps.console.integration_pages import IntegrationPages
from apps.console.visit import back_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.pages.languages import gettext_lazy, translated_choices
from apps.log_sinks import actions
from apps.log_sinks.models import LogSink
from apps.log_sinks.serializers import fields_of_others
from apps.log_sinks.views import KIND
from apps.organizations.models import Role

_FORMATS = [("jsonl", gettext_lazy("JSON lines")), ("json", gettext_lazy("One JSON array"))]


class _LogSinkPages(IntegrationPages[LogSink]):
    kind = KIND
    route, one, parameter = "log_sinks", "log_sink", "sink_id"
    removed_words = gettext_lazy("The log sink {name} was removed, and its credentials erased.")
    on_words = gettext_lazy("The log sink {name} is active now.")
    off_words = gettext_lazy("The log sink {name} is inactive now.")

    def read(self, request: HttpRequest, **given: Any) -> dict[str, Any]:
        # The form has the fields of every kind.
        others = fields_of_others(request.POST.get("kind", ""))
        return read_form(request, self.kind.new, leave_out=others, **given)

    def added(self, request: HttpRequest, name: str) -> str:
        return gettext("The log sink {name} was registered. Send it a sample to see that it answers.").format(name=name)

    def context(self, request: HttpRequest, workspace: Workspace, form: Form) -> Mapping[str, Any]:
        return {"kinds": translated_choices(LogSink.Kind.choices), "formats": _FORMATS}


_PAGES = _LogSinkPages()


@workspace_page("POST", needs=Role.ADMIN)
def send_sample(request: HttpRequest, workspace: Workspace, sink_id: str) -> HttpResponse:
    """Send a sink a row that is made up."""
    sink = _PAGES.access(workspace, sink_id)
    _, form = attempt(request, lambda: actions.test_sink(sink=sink))
    if form.status != 200:
        messages.error(
            request,
            gettext("The log sink {name} did not take the sample. {problem}").format(name=sink, problem=form.problem),
        )
    else:
        messages.success(request, gettext("The log sink {name} took the sample.").format(name=sink))
    return back_to("log_sinks", workspace)


PATHS = [*_PAGES.paths(), path(f"{_PAGES.row}/sample", send_sample, name="send_log_sink_sample")]
