"""Printable documents: the invoice of a payment, the statement of a month; and which months have one."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.utils import timezone

from apps.billing.invoices import find_paid, has_invoice, issue
from apps.billing.models import Transaction
from apps.console.rendering import show
from apps.console.visit import workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import NotFound
from apps.logs.activity import ActivityScope, ActivityWindow, kept_since
from apps.logs.usage import UsageSum, find_usage
from apps.organizations.models import Organization, Role

_MONTH = re.compile("[0-9]{4}-[0-9]{2}")


def months_of(organization: Organization, now: datetime) -> list[date]:
    """Return the first day of each month with a statement, latest first: since the organization was made, and as far
    back as the sums of days are kept whole."""
    begin = max(organization.created_at.astimezone(UTC).date(), _next(kept_since(now)))
    month = now.astimezone(UTC).date().replace(day=1)
    months = [month]
    while month > begin:
        month = (month - timedelta(days=1)).replace(day=1)
        if month >= begin.replace(day=1):
            months.append(month)
    return months


def read_month(text: str, organization: Organization, now: datetime) -> date:
    """Return the month that `YYYY-MM` stands for. Raises NotFound for a month without a statement."""
    if _MONTH.fullmatch(text):
        for month in months_of(organization, now):
            if f"{month:%Y-%m}" == text:
                return month
    raise NotFound("There is no statement of this month")


def days_of(month: date) -> ActivityWindow:
    """Return the days of a month."""
    return ActivityWindow(month, _next(month) - timedelta(days=1))


def _next(day: date) -> date:
    """Return the first day of the next month."""
    return (day.replace(day=28) + timedelta(days=4)).replace(day=1)


@workspace_page(needs=Role.ADMIN)
def invoice(request: HttpRequest, workspace: Workspace, transaction_id: str) -> HttpResponse:
    """Show the invoice of a payment, which is issued when first opened."""
    row = find_paid(workspace.organization, transaction_id)
    issued = issue(row)
    related = row.related_transaction
    return show(
        request,
        "billing/invoice",
        workspace,
        entry="billing",
        row=row,
        invoice=issued,
        number=f"{settings.INVOICE_NUMBER_PREFIX}{issued.number:06}",
        is_refund=row.type == Transaction.Type.CREDIT_REFUND,
        of=None if related is None or not has_invoice(related) else issue(related),
        prefix=settings.INVOICE_NUMBER_PREFIX,
        amount=abs(row.amount),
    )


@workspace_page(needs=Role.ADMIN)
def statement(request: HttpRequest, workspace: Workspace, month: str) -> HttpResponse:
    """Show a month's usage and payments (UTC)."""
    organization, now = workspace.organization, timezone.now()
    window = days_of(read_month(month, organization, now))
    found = find_usage(ActivityScope(frozenset({organization.id})), window, "model")
    begin = datetime.combine(window.first, time.min, UTC)
    end = datetime.combine(window.last + timedelta(days=1), time.min, UTC)
    paid = Transaction.objects.filter(
        organization=organization,
        status=Transaction.Status.COMPLETED,
        created_at__gte=begin,
        created_at__lt=end,
    ).order_by("id")
    return show(
        request,
        "billing/statement",
        workspace,
        entry="billing",
        month=window.first,
        is_over=window.last < now.astimezone(UTC).date(),
        rows=_by_name(found),
        requests=sum(one.requests for one in found),
        cost=sum((one.cost for one in found), Decimal(0)),
        paid=paid,
    )


def _by_name(found: list[UsageSum]) -> list[UsageSum]:
    """Return the usage of a month by model, most expensive first."""
    whole: dict[str, UsageSum] = {}
    for one in found:
        before = whole.get(one.name) or UsageSum(None, one.name, 0, 0, 0, 0, Decimal(0))
        whole[one.name] = UsageSum(
            None,
            one.name,
            before.requests + one.requests,
            before.errors + one.errors,
            before.input_tokens + one.input_tokens,
            before.output_tokens + one.output_tokens,
            before.cost + one.cost,
        )
    return sorted(whole.values(), key=lambda one: (-one.cost, -one.requests, one.name))


_HERE = "o/<str:organization_id>/billing"
PATHS = [
    path(f"{_HERE}/invoices/<str:transaction_id>", invoice, name="invoice"),
    path(f"{_HERE}/statements/<str:month>", statement, name="statement"),
]
