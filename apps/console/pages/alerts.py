"""Alerts: the list with read and unread ones and the visitor's e-mails, the rules, and the destinations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils.translation import gettext

from apps.alerts import actions
from apps.alerts.access import DESTINATIONS, access_alerts
from apps.alerts.kind_names import EVENTS, KindName
from apps.alerts.models import AlertDestination, AlertRule
from apps.alerts.serializers import (
    AlertPreferencesShape,
    AlertsQuery,
    destination_fields_of_others,
    rule_fields_of_others,
)
from apps.alerts.views import DESTINATION_KIND, RULE_KIND, find_alerts
from apps.console.forms import Form, attempt, error_words, read_form, read_query
from apps.console.integration_pages import IntegrationPages
from apps.console.rendering import show
from apps.console.visit import back_to, workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import InvalidRequest
from apps.kernel.pages.languages import gettext_lazy, translated_choices
from apps.kernel.postgres.rows import find_row
from apps.organizations.models import Role

PER_PAGE = 50
_TABS = (
    ("alerts", gettext_lazy("Alerts")),
    ("alert_rules", gettext_lazy("Rules")),
    ("alert_destinations", gettext_lazy("Destinations")),
)
# The form's field of where alerts go beside e-mail, and its value for nowhere.
_WHERE, _NOWHERE = "where", "none"
_ASPECTS = [("model", gettext_lazy("Each model")), ("provider", gettext_lazy("Each provider"))]


@workspace_page(needs=Role.ADMIN)
def alerts(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List alerts, newest first, a page at a time, and show the visitor's choice about e-mails."""
    organization = workspace.organization
    _, reader = access_alerts(workspace.user, str(organization.id))
    given = {"organizationId": str(organization.id), "limit": str(PER_PAGE)}
    form = Form()
    try:
        page = find_alerts(organization, read_query(request, AlertsQuery, **given))
    except InvalidRequest as error:
        form = Form(problem=error_words(error.message))
        page = find_alerts(organization, {"limit": PER_PAGE})
    rows = [
        {
            "alert": one,
            "state": "event" if one.kind in EVENTS else "resolved" if one.resolved_at else "open",
            "is_unread": reader.read_until is None or one.fired_at > reader.read_until,
        }
        for one in page.rows
    ]
    return show(
        request,
        "alerts",
        workspace,
        entry="alerts",
        status=form.status,
        form=form,
        rows=rows,
        newest=page.rows[0].id if page.rows and "cursor" not in request.GET else None,
        following=page.next_cursor,
        is_later=bool(request.GET.get("cursor")),
        reader=reader,
        quiet_from=f"{reader.quiet_from:%H:%M}" if reader.quiet_from else "",
        quiet_until=f"{reader.quiet_until:%H:%M}" if reader.quiet_until else "",
        tabs=_tabs(workspace, "alerts"),
    )


@workspace_page("POST", needs=Role.ADMIN)
def read_alerts(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Mark the alerts as read, up to the newest one that the visitor has seen."""
    organization, reader = access_alerts(workspace.user, str(workspace.organization.id))
    seen = find_row(organization.alerts.all(), request.POST.get("alertId", ""), "Alert not found")
    actions.mark_read(reader=reader, until=seen.fired_at)
    return back_to("alerts", workspace)


@workspace_page("POST", needs=Role.ADMIN)
def alert_emails(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Switch the visitor's e-mails on or off, or set their quiet hours."""
    _, reader = access_alerts(workspace.user, str(workspace.organization.id))
    fields, form = attempt(
        request, lambda: read_form(request, AlertPreferencesShape, organizationId=str(workspace.organization.id))
    )
    if fields is None:
        messages.error(request, form.problem or "; ".join(form.errors.values()))
    else:
        fields.pop("organization_id")
        chosen = actions.choose_emails(reader=reader, **fields)
        if "by_email" in fields:
            on, off = gettext("E-mails about alerts are on for you."), gettext("E-mails about alerts are off for you.")
            messages.success(request, on if chosen.by_email else off)
        else:
            messages.success(request, gettext("Your quiet hours were saved."))
    return back_to("alerts", workspace)


class _RulePages(IntegrationPages[AlertRule]):
    kind = RULE_KIND
    route, one, parameter = "alert_rules", "alert_rule", "rule_id"
    entry = "alerts"
    removed_words = gettext_lazy("The alert rule was removed: {name}.")
    on_words = gettext_lazy("The alert rule {name} is active now.")
    off_words = gettext_lazy("The alert rule {name} is inactive now.")

    def read(self, request: HttpRequest, **given: Any) -> dict[str, Any]:
        # The form has the fields of every kind.
        others = rule_fields_of_others(request.POST.get("kind", ""))
        where = request.POST.get(_WHERE, "")
        if where:
            given["destinationIds"] = [] if where == _NOWHERE else [where]
        return read_form(request, self.kind.new, leave_out=others, **given)

    def added(self, request: HttpRequest, name: str) -> str:
        return gettext("The alert rule was added: {name}.").format(name=name)

    def context(self, request: HttpRequest, workspace: Workspace, form: Form) -> Mapping[str, Any]:
        rows = DESTINATIONS.living.filter(organization=workspace.organization).order_by("name")
        names = {str(one.pk): one.name for one in rows}
        where = [
            ("", gettext_lazy("E-mail and every destination")),
            (_NOWHERE, gettext_lazy("E-mail only")),
            *names.items(),
        ]
        return {
            "kinds": translated_choices(KindName.choices),
            "aspects": _ASPECTS,
            "where": where,
            "names": names,
            "tabs": _tabs(workspace, self.route),
        }


class _DestinationPages(IntegrationPages[AlertDestination]):
    kind = DESTINATION_KIND
    route, one, parameter = "alert_destinations", "alert_destination", "destination_id"
    entry = "alerts"
    removed_words = gettext_lazy("The alert destination {name} was removed, and its credentials erased.")
    on_words = gettext_lazy("The alert destination {name} is active now.")
    off_words = gettext_lazy("The alert destination {name} is inactive now.")

    def read(self, request: HttpRequest, **given: Any) -> dict[str, Any]:
        others = destination_fields_of_others(request.POST.get("kind", ""))
        return read_form(request, self.kind.new, leave_out=others, **given)

    def added(self, request: HttpRequest, name: str) -> str:
        return gettext("The alert destination {name} was added. Send it a test to see that it answers.").format(
            name=name
        )

    def context(self, request: HttpRequest, workspace: Workspace, form: Form) -> Mapping[str, Any]:
        return {"kinds": translated_choices(AlertDestination.Kind.choices), "tabs": _tabs(workspace, self.route)}


_RULES, _DESTINATIONS = _RulePages(), _DestinationPages()


@workspace_page("POST", needs=Role.ADMIN)
def send_test(request: HttpRequest, workspace: Workspace, destination_id: str) -> HttpResponse:
    """Send a destination a made-up alert."""
    destination = _DESTINATIONS.access(workspace, destination_id)
    _, form = attempt(request, lambda: actions.test_destination(destination=destination))
    if form.status != 200:
        messages.error(
            request,
            gettext("The alert destination {destination} did not accept the test. {problem}").format(
                destination=destination, problem=form.problem
            ),
        )
    else:
        messages.success(
            request, gettext("The alert destination {destination} accepted the test.").format(destination=destination)
        )
    return back_to("alert_destinations", workspace)


def _tabs(workspace: Workspace, current: str) -> list[tuple[str, str, bool]]:
    """Return the pages of alerts: label, address, and whether it is the current one."""
    where = {"organization_id": workspace.organization.id}
    return [(words, reverse(f"console:{route}", kwargs=where), route == current) for route, words in _TABS]


_HERE = "o/<str:organization_id>/alerts"
PATHS = [
    path(_HERE, alerts, name="alerts"),
    path(f"{_HERE}/read", read_alerts, name="read_alerts"),
    path(f"{_HERE}/emails", alert_emails, name="alert_emails"),
    *_RULES.paths(),
    *_DESTINATIONS.paths(),
    path(f"{_DESTINATIONS.row}/test", send_test, name="send_alert_test"),
]
