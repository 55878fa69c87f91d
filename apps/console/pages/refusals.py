"""Refused requests: by key and reason, with counts, the latest time, and advice."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils import timezone

from apps.console.forms import Form, read_query, refused
from apps.console.rendering import may_open, show
from apps.console.visit import workspace_page
from apps.console.workspace import Workspace
from apps.kernel.errors import ApiError
from apps.kernel.postgres import replica
from apps.kernel.rest.serializers import CamelSerializer, ChoiceField
from apps.keys.models import ApiKey
from apps.logs.refusals import Refusals, find_refusals

SPANS: Final = (("1", "24 hours"), ("7", "7 days"), ("30", "30 days"))
# By status and code: the reason, the advice, and the page for it. An empty code matches any other.
ADVICE: Final[dict[tuple[int, str], tuple[str, str, str]]] = {
    (402, "insufficient_credits"): (
        "The organization's credits did not cover the request.",
        "Add credits, or turn on automatic top-up. A lower max_tokens reserves less.",
        "billing",
    ),
    (402, "usage_limit_exceeded"): (
        "The key has reached its own spending limit.",
        "Raise the key's limit, or wait until its next period.",
        "keys",
    ),
    (403, "access_denied"): (
        "An access rule of the key blocks this model or provider.",
        "Change the key's access rules, or use a model that they allow.",
        "keys",
    ),
    (410, ""): (
        "The key's project or organization, or the requested model, is no longer active.",
        "Restore the project, or use a key of another project.",
        "projects",
    ),
    (429, "rate_limit_exceeded"): (
        "More requests per minute than the plan or the key allows.",
        "Send fewer requests, spread them, or raise the key's limit; larger plans allow more.",
        "keys",
    ),
    (429, "concurrency_exceeded"): (
        "More requests at once than the plan allows.",
        "Wait for answers before you send more; larger plans allow more.",
        "billing",
    ),
    (429, "bytes_in_flight_exceeded"): (
        "Too many large requests at once.",
        "Send large files one after the other.",
        "",
    ),
    (429, "too_many_outside_calls"): (
        "Too many file downloads at once, or their hosts do not respond.",
        "Send fewer files by URL at once, and check that their host names resolve.",
        "",
    ),
    (429, "batches_in_progress_exceeded"): (
        "Too many batches are running.",
        "Wait until one of them has ended.",
        "",
    ),
    (400, "guardrail_blocked"): (
        "A guardrail blocked the request.",
        "See the violations; remove the matched text, or change the rule's action.",
        "guardrails",
    ),
}
_OTHERWISE: Final = {
    402: ("The request was not paid for.", "See Billing.", "billing"),
    403: ("The key may not do this.", "See the key's access rules.", "keys"),
    429: ("Too many requests.", "Send fewer, or spread them.", ""),
}
_UNKNOWN: Final = ("The request was refused.", "See the error that your client received.", "")


class RefusalsQuery(CamelSerializer):
    """The query of the page: days to look back."""

    days = ChoiceField(SPANS, default="7")


@workspace_page()
def refusals(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show refused requests."""
    form, days = Form({"days": request.GET.get("days") or "7"}), "7"
    try:
        days = read_query(request, RefusalsQuery)["days"]
    except ApiError as error:
        form = refused(request.GET, error)
    organization_id, since = workspace.organization.id, timezone.now() - timedelta(days=int(days))
    found = replica.read(lambda using: find_refusals(organization_id, since, using=using))
    keys = ApiKey.objects.filter(id__in={one.api_key_id for one in found}).select_related("project")
    by_id = {key.id: key for key in keys}
    return show(
        request,
        "refusals",
        workspace,
        entry="refusals",
        status=form.status,
        form=form,
        spans=SPANS,
        total=sum(one.count for one in found),
        rows=[_table_row(one, by_id, workspace) for one in found],
    )


def _table_row(one: Refusals, keys: dict[UUID, ApiKey], workspace: Workspace) -> dict[str, Any]:
    what, advice, route = advice_of(one.status, one.code)
    named = {"organization_id": workspace.organization.id}
    where = reverse(f"console:{route}", kwargs=named) if may_open(workspace, route) else ""
    return {"refusal": one, "key": keys.get(one.api_key_id), "what": what, "advice": advice, "where": where}


def advice_of(status: int, code: str) -> tuple[str, str, str]:
    """Return the reason of a refusal, the advice, and the route of the page for it; empty without one."""
    known = ADVICE.get((status, code)) or ADVICE.get((status, ""))
    return known or _OTHERWISE.get(status, _UNKNOWN)


PATHS = [
    path("o/<str:organization_id>/refusals", refusals, name="refusals"),
]
