"""`/organization/{orgId}/transactions`: parse, query, present."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from apps.billing.models import Transaction
from apps.billing.serializers import TransactionShape, TransactionsQuery
from apps.kernel.rest.describe import PaginationShape, described
from apps.kernel.rest.pages import Page, page_of
from apps.organizations.access import access_organization
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.models import Role


class Transactions(MemberEndpoint):
    """`GET /organization/{orgId}/transactions`."""

    @described(
        {"transactions": TransactionShape(many=True), "pagination": PaginationShape()},
        query=TransactionsQuery,
        refuses=(403, 404),
    )
    def get(self, request: Request, organization_id: str) -> Response:
        """List the organization's transactions, newest first, one page at a time."""
        organization, _ = access_organization(self.user, organization_id, Role.ADMIN)
        query = self.read_query(TransactionsQuery)
        limit = query["limit"]
        rows = Transaction.objects.filter(organization=organization).order_by("-id")
        if cursor := query.get("cursor"):
            rows = rows.filter(id__lt=cursor)
        page: Page[Transaction] = page_of(list(rows[: limit + 1]), limit, lambda row: row.id)
        return Response({"transactions": TransactionShape(page.rows, many=True).data, "pagination": page.pagination})
