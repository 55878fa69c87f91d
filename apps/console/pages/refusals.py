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
from apps.kernel.pages.languages import gettext_lazy
from apps.kernel.postgres import replica
from apps.kernel.rest.serializers import CamelSerializer, ChoiceField
from apps.keys.models import ApiKey
from apps.logs.refusals import Refusals, find_refusals

SPANS: Final = (
    ("1", gettext_lazy("24 hours")),
    ("7", gettext_lazy("7 days")),
    ("30", gettext_lazy("30 days")),
)
# By status and code: the reason, the advice, and the page for it. An empty code matches any other.
ADVICE: Final[dict[tuple[int, str], tuple[str, str, str]]] = {
    (402, "insufficient_credits"): (
        gettext_lazy("The organization's credits did not cover the request."),
        gettext_lazy("Add credits, or turn on automatic top-up. A lower max_tokens reserves less."),
        "billing",
    ),
    (402, "usage_limit_exceeded"): (
        gettext_lazy("The key has reached its own spending limit."),
        gettext_lazy("Raise the key's limit, or wait until its next period."),
        "keys",
    ),
    (403, "access_denied"): (
        gettext_lazy("An access rule of the key blocks this model or provider."),
        gettext_lazy("Change the key's access rules, or use a model that they allow."),
        "keys",
    ),
    (410, ""): (
        gettext_lazy("The key's project or organization, or the requested model, is no longer active."),
        gettext_lazy("Restore the project, or use a key of another project."),
        "projects",
    ),
    (429, "rate_limit_exceeded"): (
        gettext_lazy("More requests per minute than the plan or the key allows."),
        gettext_lazy("Send fewer requests, spread them, or raise the key's limit; larger plans allow more."),
        "keys",
    ),
    (429, "concurrency_exceeded"): (
        gettext_lazy("More requests at once than the plan allows."),
        gettext_lazy("Wait for answers before you send more; larger plans allow more."),
        "billing",
    ),
    (429, "bytes_in_flight_exceeded"): (
        gettext_lazy("Too many large requests at once."),
        gettext_lazy("Send large files one after the other."),
        "",
    ),
    (429, "too_many_outside_calls"): (
        gettext_lazy("Too many file downloads at once, or their hosts do not respond."),
        gettext_lazy("Send fewer files by URL at once, and check that their host names resolve."),
        "",
    ),
    (429, "batches_in_progress_exceeded"): (
        gettext_lazy("Too many batches are running."),
        gettext_lazy("Wait until one of them has ended."),
        "",
    ),
    (400, "guardrail_blocked"): (
        gettext_lazy("A guardrail blocked the request."),
        gettext_lazy("See the violations; remove the matched text, or change the rule's action."),
        "guardrails",
    ),
}
_OTHERWISE: Final = {
    402: (gettext_lazy("The request was not paid for."), gettext_lazy("See Billing."), "billing"),
    403: (gettext_lazy("The key may not do this."), gettext_lazy("See the key's access rules."), "keys"),
    429: (gettext_lazy("Too many requests."), gettext_lazy("Send fewer, or spread them."), ""),
}
_UNKNOWN: Final = (
    gettext_lazy("The request was refused."),
    gettext_lazy("See the error that your client received."),
    "",
)


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
