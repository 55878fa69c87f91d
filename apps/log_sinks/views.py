"""Views of log sinks, `/log-sinks`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.endpoint import described, message_field
from apps.kernel.rest.serializers import Nothing
from apps.log_sinks import actions
from apps.log_sinks.access import SINKS
from apps.log_sinks.models import LogSink
from apps.log_sinks.serializers import NewSinkShape, SinkChangesShape, SinkShape, changes_of, new_sink
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.integrations.endpoints import Create, Kind, ListEndpoint, OneEndpoint, documented
from apps.organizations.models import Organization


def _check(organization: Organization, fields: Mapping[str, Any]) -> Create[LogSink]:
    given = new_sink(fields)
    actions.check_sink(organization=organization, given=given)
    return partial(actions.create_sink, organization=organization, given=given)


def _change(sink: LogSink, fields: Mapping[str, Any]) -> LogSink:
    return actions.change_sink(sink=sink, changes=changes_of(sink.kind, fields))


KIND = Kind(
    table=SINKS,
    name="logSink",
    plural="logSinks",
    shape=SinkShape,
    new=NewSinkShape,
    changes=SinkChangesShape,
    check=_check,
    change=_change,
)


@documented(
    post="Register a log sink: it gets every row of the organization's log that is written from now on.",
    get="List an organization's log sinks, by name, with how their delivery goes.",
)
class LogSinks(ListEndpoint):
    """`POST /log-sinks`, `GET /log-sinks`."""

    kind = KIND


@documented(
    patch="Rename a log sink, switch it on or off, or replace its credentials; its address is for good.",
    delete="Remove a log sink and erase its credentials; what waits for it is not sent.",
)
class OneLogSink(OneEndpoint):
    """`PATCH /log-sinks/{id}`, `DELETE /log-sinks/{id}`."""

    kind = KIND


class LogSinkTest(MemberEndpoint):
    """`POST /log-sinks/{id}/test`."""

    def prepare(self) -> None:
        """Send the sample: outside of the transaction of the POST, so that nothing waits for the sink."""
        self.read(Nothing)
        actions.test_sink(sink=SINKS.access(self.user, self.kwargs["sink_id"]))

    @described({"message": message_field()}, body=Nothing, refuses=(403, 404))
    def post(self, request: Request, sink_id: str) -> Response:
        """Send a log sink a row that is made up, and tell whether it took it."""
        return Response({"message": "The sink took a sample"})
