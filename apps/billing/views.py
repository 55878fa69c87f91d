"""`/organization/{orgId}/transactions`: parse, query, present."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from apps.billing.models import Transaction
from apps.billing.serializers import TransactionShape
from apps.kernel.rest.pages import Page, page_of, read_cursor, read_limit
from apps.organizations.access import access_organization
from apps.organizations.models import Role
from apps.organizations.sessions import MemberEndpoint


class Transactions(MemberEndpoint):
    """`GET /organization/{orgId}/transactions`."""

    def get(self, request: Request, organization_id: str) -> Response:
        """List the organization's transactions, newest first, a page at a time."""
        organization, _ = access_organization(self.user, organization_id, Role.ADMIN)
        limit = read_limit(request.query_params.get("limit"))
        rows = Transaction.objects.filter(organization=organization).order_by("-id")
        if cursor := request.query_params.get("cursor"):
            rows = rows.filter(id__lt=read_cursor(cursor))
        page: Page[Transaction] = page_of(list(rows[: limit + 1]), limit, lambda row: row.id)
        return Response({"transactions": TransactionShape(page.rows, many=True).data, "pagination": page.pagination})
