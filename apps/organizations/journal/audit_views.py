"""`/audit-logs/{orgId}`: parse, query, present."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Q
from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.errors import Forbidden
from apps.kernel.ids import find_id
from apps.kernel.rest.describe import PaginationShape, described
from apps.kernel.rest.pages import Page, page_of
from apps.organizations.access import access_organization
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.models import AuditEntry, Organization, Role
from apps.organizations.plans import limits_of
from apps.organizations.serializers import AuditEntryShape, AuditQuery


class AuditLogs(MemberEndpoint):
    """`GET /audit-logs/{orgId}`."""

    @described(
        {"auditLogs": AuditEntryShape(many=True), "pagination": PaginationShape()}, query=AuditQuery, refuses=(403, 404)
    )
    def get(self, request: Request, organization_id: str) -> Response:
        """List the organization's audit log, newest first, one page at a time."""
        organization, _ = access_organization(self.user, organization_id, Role.ADMIN)
        if not limits_of(organization.plan).audit_logs:
            raise Forbidden("Audit logs require an enterprise plan")
        page = find_entries(organization, self.read_query(AuditQuery))
        return Response({"auditLogs": AuditEntryShape(page.rows, many=True).data, "pagination": page.pagination})


def find_entries(organization: Organization, query: Mapping[str, Any]) -> Page[AuditEntry]:
    """Return the page of an organization's entries that a query asks for, newest first."""
    rows = AuditEntry.objects.filter(_wanted(query), organization_id=organization.id).order_by("-id")
    return page_of(list(rows[: query["limit"] + 1]), query["limit"], lambda row: row.id)


def _wanted(query: Mapping[str, Any]) -> Q:
    """Return what a query asks entries to be like. An actor is an id or an e-mail address. Raises InvalidFields."""
    columns = {
        "action": "action",
        "resource_type": "resource_type",
        "resource_id": "resource_id",
        "start_date": "created_at__gte",
        "end_date": "created_at__lte",
    }
    wanted = Q(**{column: query[name] for name, column in columns.items() if name in query})
    if actor := query.get("actor"):
        identifier = find_id(actor)
        wanted &= Q(actor_id=identifier) if identifier else Q(actor_email=actor.lower())
    if cursor := query.get("cursor"):
        wanted &= Q(id__lt=cursor)
    return wanted
