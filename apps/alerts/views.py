"""Views of alerts, `/alerts`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.alerts import actions
from apps.alerts.access import DESTINATIONS, RULES, access_alerts, unread
from apps.alerts.evaluation import watch
from apps.alerts.models import Alert, AlertDestination, AlertRule
from apps.alerts.serializers import (
    AlertDestinationChangesShape,
    AlertDestinationShape,
    AlertPreferencesShape,
    AlertReaderShape,
    AlertRuleChangesShape,
    AlertRuleShape,
    AlertShape,
    AlertsQuery,
    AlertsReadShape,
    NewAlertDestinationShape,
    NewAlertRuleShape,
    destination_changes,
    new_destination,
    parameters_of,
)
from apps.kernel.postgres.rows import find_row
from apps.kernel.rest.endpoint import PaginationShape, described, message_field
from apps.kernel.rest.pages import Page, page_of
from apps.kernel.rest.serializers import Nothing
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.integrations.endpoints import (
    Create,
    Kind,
    ListEndpoint,
    OneEndpoint,
    OwnerQuery,
    documented,
)
from apps.organizations.models import Organization


def find_alerts(organization: Organization, query: Mapping[str, Any]) -> Page[Alert]:
    """Return the page of an organization's alerts that a query asks for, newest first."""
    rows = Alert.objects.filter(organization=organization)
    if "status" in query:
        rows = rows.filter(resolved_at__isnull=query["status"] == "open")
    if cursor := query.get("cursor"):
        rows = rows.filter(id__lt=cursor)
    return page_of(list(rows.order_by("-id")[: query["limit"] + 1]), query["limit"], lambda row: row.id)


class Alerts(MemberEndpoint):
    """`GET /alerts`."""

    @described(
        {"alerts": AlertShape(many=True), "unread": serializers.IntegerField(), "pagination": PaginationShape()},
        query=AlertsQuery,
        refuses=(403, 404),
    )
    def get(self, request: Request) -> Response:
        """List an organization's alerts, newest first, one page at a time; `unread` counts up to 100."""
        query = self.read_query(AlertsQuery)
        organization, reader = access_alerts(self.user, query["organization_id"])
        page = find_alerts(organization, query)
        rows = AlertShape(page.rows, many=True).data
        return Response({"alerts": rows, "unread": unread(organization, reader), "pagination": page.pagination})


class AlertsRead(MemberEndpoint):
    """`POST /alerts/read`."""

    @described({"unread": serializers.IntegerField()}, body=AlertsReadShape, refuses=(403, 404))
    def post(self, request: Request) -> Response:
        """Mark an organization's alerts as read for yourself, up to one of them or all so far."""
        fields = self.read(AlertsReadShape)
        organization, reader = access_alerts(self.user, fields["organization_id"])
        until = timezone.now()
        if "alert_id" in fields:
            until = find_row(organization.alerts.all(), fields["alert_id"], "Alert not found").fired_at
        reader = actions.mark_read(reader=reader, until=until)
        return Response({"unread": unread(organization, reader)})


class AlertPreferences(MemberEndpoint):
    """`GET /alerts/preferences`, `PATCH /alerts/preferences`."""

    @described({"preferences": AlertReaderShape()}, query=OwnerQuery, refuses=(403, 404))
    def get(self, request: Request) -> Response:
        """Read whether you get e-mails about an organization's alerts, and the time up to which you read them."""
        _, reader = access_alerts(self.user, self.read_query(OwnerQuery)["organization_id"])
        return Response({"preferences": AlertReaderShape(reader).data})

    @described({"preferences": AlertReaderShape()}, body=AlertPreferencesShape, refuses=(403, 404))
    def patch(self, request: Request) -> Response:
        """Switch e-mails about an organization's alerts on or off for yourself, or set quiet hours: e-mails wait for
        their end, and come as one."""
        fields = self.read(AlertPreferencesShape)
        _, reader = access_alerts(self.user, fields.pop("organization_id"))
        reader = actions.choose_emails(reader=reader, **fields)
        return Response({"preferences": AlertReaderShape(reader).data})


def _check_rule(organization: Organization, fields: Mapping[str, Any]) -> Create[AlertRule]:
    parameters = parameters_of(fields)
    chosen = fields.get("destination_ids")
    return partial(
        actions.create_rule,
        organization=organization,
        kind=fields["kind"],
        parameters=parameters,
        destination_ids=chosen,
    )


def _change_rule(rule: AlertRule, fields: Mapping[str, Any]) -> AlertRule:
    return actions.change_rule(rule=rule, changes=fields)


RULE_KIND = Kind(
    table=RULES,
    name="rule",
    plural="rules",
    shape=AlertRuleShape,
    new=NewAlertRuleShape,
    changes=AlertRuleChangesShape,
    check=_check_rule,
    change=_change_rule,
)


@documented(
    post="Add an alert rule; each kind has parameters of its own.",
    get="List an organization's alert rules, oldest first. A new organization has some.",
)
class AlertRules(ListEndpoint):
    """`POST /alerts/rules`, `GET /alerts/rules`."""

    kind = RULE_KIND

    def get(self, request: Request) -> Response:
        """List the rules; those that an organization begins with are there before its first evaluation."""
        organization, _ = access_alerts(self.user, self.read_query(OwnerQuery)["organization_id"])
        watch(organization.id, timezone.now())
        return super().get(request)


@documented(
    patch="Switch an alert rule on or off, or choose its destinations; off, its open alerts are resolved.",
    delete="Delete an alert rule and resolve its open alerts.",
)
class OneAlertRule(OneEndpoint):
    """`PATCH /alerts/rules/{id}`, `DELETE /alerts/rules/{id}`."""

    kind = RULE_KIND


def _check_destination(organization: Organization, fields: Mapping[str, Any]) -> Create[AlertDestination]:
    given = new_destination(fields)
    actions.check_destination(organization=organization, given=given)
    return partial(actions.create_destination, organization=organization, given=given)


def _change_destination(destination: AlertDestination, fields: Mapping[str, Any]) -> AlertDestination:
    changes = destination_changes(destination.kind, fields)
    return actions.change_destination(destination=destination, changes=changes)


DESTINATION_KIND = Kind(
    table=DESTINATIONS,
    name="destination",
    plural="destinations",
    shape=AlertDestinationShape,
    new=NewAlertDestinationShape,
    changes=AlertDestinationChangesShape,
    check=_check_destination,
    change=_change_destination,
)


@documented(
    post="Add a destination: a webhook, Slack, Microsoft Teams or PagerDuty. It gets each alert from now on.",
    get="List an organization's alert destinations, by name, with how their delivery goes.",
)
class AlertDestinations(ListEndpoint):
    """`POST /alerts/destinations`, `GET /alerts/destinations`."""

    kind = DESTINATION_KIND


@documented(
    patch="Rename a destination, switch it on or off, or replace its credentials; its address stays.",
    delete="Delete a destination and erase its credentials; messages that wait for it are not sent.",
)
class OneAlertDestination(OneEndpoint):
    """`PATCH /alerts/destinations/{id}`, `DELETE /alerts/destinations/{id}`."""

    kind = DESTINATION_KIND


class AlertDestinationTest(MemberEndpoint):
    """`POST /alerts/destinations/{id}/test`."""

    def prepare(self) -> None:
        """Send the test outside of the transaction of the POST, so that nothing waits for the destination."""
        self.read(Nothing)
        actions.test_destination(destination=DESTINATIONS.access(self.user, self.kwargs["destination_id"]))

    @described({"message": message_field()}, body=Nothing, refuses=(403, 404))
    def post(self, request: Request, destination_id: str) -> Response:
        """Send a made-up alert to a destination; a refusal has its answer."""
        return Response({"message": "The destination accepted a test"})
