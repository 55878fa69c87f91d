"""Views of limits, `/limits`."""

from __future__ import annotations

from collections.abc import Iterable

from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.describe import described, message_field
from apps.limits import actions
from apps.limits.access import access_limit, access_limits, access_new_limit
from apps.limits.models import Limit
from apps.limits.serializers import LimitChangesShape, LimitShape, NewLimitShape
from apps.limits.state import states_of
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.integrations.endpoints import OwnerQuery


class Limits(MemberEndpoint):
    """`POST /limits`, `GET /limits`."""

    @described({"limit": LimitShape()}, body=NewLimitShape, refuses=(403, 404))
    def post(self, request: Request) -> Response:
        """Create a limit; it counts from 0 and holds for requests that are admitted from now on."""
        fields = self.read(NewLimitShape)
        organization = access_new_limit(self.user, fields["organization_id"], fields["scope"], fields.get("scope_id"))
        return Response({"limit": _present(actions.create_limit(organization=organization, fields=fields))})

    @described({"limits": LimitShape(many=True)}, query=OwnerQuery, refuses=(403, 404))
    def get(self, request: Request) -> Response:
        """List an organization's limits, by name, with used, held and remaining amount of each; those of the teams that
        you lead, unless you are an admin or owner."""
        limits = list(access_limits(self.user, **self.read_query(OwnerQuery)))
        return Response({"limits": _present_all(limits)})


class OneLimit(MemberEndpoint):
    """`PATCH /limits/{id}`, `DELETE /limits/{id}`."""

    @described({"limit": LimitShape()}, body=LimitChangesShape, refuses=(403, 404))
    def patch(self, request: Request, limit_id: str) -> Response:
        """Rename a limit, or change its amount, its action or its temporary raise; its counter stays."""
        limit = access_limit(self.user, limit_id)
        return Response({"limit": _present(actions.change_limit(limit=limit, changes=self.read(LimitChangesShape)))})

    @described({"message": message_field()}, refuses=(403, 404))
    def delete(self, request: Request, limit_id: str) -> Response:
        """Delete a limit; requests are no longer counted by it."""
        actions.delete_limit(limit=access_limit(self.user, limit_id))
        return Response({"message": "Limit deleted"})


def _present(limit: Limit) -> object:
    return _present_all([limit])[0]


def _present_all(limits: Iterable[Limit]) -> list[object]:
    states = states_of(limits)
    return list(LimitShape(list(states), many=True, context={"states": states}).data)
