"""Views of limits, `/limits`."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.endpoint import described, message_field
from apps.limits import actions
from apps.limits.access import access_limit, access_limits, access_new_limit
from apps.limits.models import Limit
from apps.limits.preview import preview_limit
from apps.limits.serializers import (
    LimitChangesShape,
    LimitDraftShape,
    LimitElsewhereShape,
    LimitPreviewShape,
    LimitShape,
    NewLimitShape,
    shown_preview,
)
from apps.limits.set_elsewhere import find_limits_elsewhere
from apps.limits.state import states_of
from apps.organizations.access import access_organization, reaches
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.integrations.endpoints import OwnerQuery
from apps.organizations.models import Role


class Limits(MemberEndpoint):
    """`POST /limits`, `GET /limits`."""

    @described({"limit": LimitShape()}, body=NewLimitShape, refuses=(403, 404))
    def post(self, request: Request) -> Response:
        """Create a limit; it counts from 0 and holds for requests that are admitted from now on."""
        fields = self.read(NewLimitShape)
        organization = access_new_limit(self.user, fields["organization_id"], fields["scope"], fields.get("scope_id"))
        return Response({"limit": _present(actions.create_limit(organization=organization, fields=fields))})

    @described(
        {"limits": LimitShape(many=True), "elsewhere": LimitElsewhereShape(many=True)},
        query=OwnerQuery,
        refuses=(403, 404),
    )
    def get(self, request: Request) -> Response:
        """List an organization's limits, by name, with used, held and remaining amount of each; those of the teams that
        you lead, unless you are an admin or owner. `elsewhere` are those of API keys and the plan, for admins."""
        query = self.read_query(OwnerQuery)
        limits = list(access_limits(self.user, **query))
        organization, role = access_organization(self.user, query["organization_id"])
        elsewhere = find_limits_elsewhere(organization, timezone.now()) if reaches(role, Role.ADMIN) else []
        return Response({"limits": _present_all(limits), "elsewhere": LimitElsewhereShape(elsewhere, many=True).data})


class LimitPreviews(MemberEndpoint):
    """`POST /limits/preview`."""

    @described({"preview": LimitPreviewShape()}, body=LimitDraftShape, refuses=(403, 404))
    def post(self, request: Request) -> Response:
        """Replay the last 30 days under a limit that does not exist yet; nothing is stored."""
        fields = self.read(LimitDraftShape)
        organization = access_new_limit(self.user, fields["organization_id"], fields["scope"], fields.get("scope_id"))
        draft = actions.draft_limit(organization=organization, fields=fields)
        return Response({"preview": LimitPreviewShape(shown_preview(preview_limit(draft, timezone.now()))).data})


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
