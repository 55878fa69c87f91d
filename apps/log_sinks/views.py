"""Views of log sinks, `/log-sinks`: parse, act or query, present."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.describe import described, message_field
from apps.kernel.rest.serializers import Nothing
from apps.log_sinks import actions
from apps.log_sinks.access import access_sink, access_sinks
from apps.log_sinks.serializers import NewSinkShape, SinkChangesShape, SinkShape, SinksQuery, changes_of, new_sink
from apps.organizations.access import access_organization
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.models import Role


class LogSinks(MemberEndpoint):
    """`POST /log-sinks`, `GET /log-sinks`."""

    def prepare(self) -> None:
        """Look the address up: before anything is written, so that nothing waits for the resolver."""
        fields = self.read(NewSinkShape)
        self.organization, _ = access_organization(self.user, fields.pop("organization_id"), Role.ADMIN)
        self.given = new_sink(fields)
        actions.check_sink(organization=self.organization, given=self.given)

    @described({"logSink": SinkShape()}, body=NewSinkShape, refuses=(403, 404))
    def post(self, request: Request) -> Response:
        """Register a log sink: it gets every row of the organization's log that is written from now on."""
        sink = actions.create_sink(organization=self.organization, given=self.given)
        return Response({"logSink": SinkShape(sink).data})

    @described({"logSinks": SinkShape(many=True)}, query=SinksQuery, refuses=(403, 404))
    def get(self, request: Request) -> Response:
        """List an organization's log sinks, by name, with how their delivery goes."""
        sinks = access_sinks(self.user, **self.read_query(SinksQuery))
        return Response({"logSinks": SinkShape(sinks, many=True).data})


class OneLogSink(MemberEndpoint):
    """`PATCH /log-sinks/{id}`, `DELETE /log-sinks/{id}`."""

    @described({"logSink": SinkShape()}, body=SinkChangesShape, refuses=(403, 404))
    def patch(self, request: Request, sink_id: str) -> Response:
        """Rename a log sink, switch it on or off, or replace its credentials; its address is for good."""
        sink = access_sink(self.user, sink_id)
        changed = actions.change_sink(sink=sink, changes=changes_of(sink.kind, self.read(SinkChangesShape)))
        return Response({"logSink": SinkShape(changed).data})

    @described({"message": message_field()}, refuses=(403, 404))
    def delete(self, request: Request, sink_id: str) -> Response:
        """Remove a log sink and erase its credentials; what waits for it is not sent."""
        actions.delete_sink(sink=access_sink(self.user, sink_id))
        return Response({"message": "Log sink deleted"})


class LogSinkTest(MemberEndpoint):
    """`POST /log-sinks/{id}/test`."""

    def prepare(self) -> None:
        """Send the sample: outside of the transaction of the POST, so that nothing waits for the sink."""
        self.read(Nothing)
        actions.test_sink(sink=access_sink(self.user, self.kwargs["sink_id"]))

    @described({"message": message_field()}, body=Nothing, refuses=(403, 404))
    def post(self, request: Request, sink_id: str) -> Response:
        """Send a log sink a row that is made up, and tell whether it took it."""
        return Response({"message": "The sink took a sample"})
