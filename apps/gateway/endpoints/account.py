"""`GET /v1/key`, `/v1/credits` and `/v1/generation`: what a key may ask about itself, in OpenRouter's words.

An API key sees its own project and organization. A management key may ask the first two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from apps.billing.models import Transaction
from apps.gateway.access.credentials import API_KEYS
from apps.gateway.dialects.reading.answers import exact_number
from apps.kernel.errors import Gone, InvalidRequest, NotFound, Unauthenticated
from apps.kernel.ids import find_id
from apps.kernel.money import ZERO
from apps.kernel.rest.request_headers import MISSING_KEY, find_presented_key
from apps.keys.authenticate import find_api_key, works
from apps.keys.models import ApiKey
from apps.limits.key_limits import KeyLimit, find_key_limits
from apps.logs.access import scope_of_key
from apps.logs.activity import kept_since, sum_spending
from apps.logs.query import LogRow
from apps.logs.search import find_row
from apps.organizations.credentials.management_keys import is_management_key, masked
from apps.organizations.credentials.sessions import find_caller
from apps.organizations.models import ManagementKey, Organization, Plan, Project

# Characters of an id that may be one.
_MAX_ID_LENGTH = 100


@require_safe
def current_key(request: HttpRequest) -> HttpResponse:
    """Answer with the key that asks: its limit, and what it has spent; a management key has neither."""
    managing = _find_managing(request)
    if managing is not None:
        return _answer(report_management_key(managing))
    return _answer(report_key(_authenticated(request), timezone.now()))


@require_safe
def credits_left(request: HttpRequest) -> HttpResponse:
    """Answer with what the key's organization was credited, and what it has spent."""
    managing = _find_managing(request)
    key = managing or _authenticated(request).project
    return _answer(report_credits(key.organization))


@require_safe
def generation(request: HttpRequest) -> HttpResponse:
    """Answer with what a request used and cost, by its answer's id (`id`)."""
    key = _authenticated(request)
    name = request.GET.get("id", "")
    if not name:
        raise InvalidRequest("id: Required", code="invalid_parameters", param="id")
    report = None if len(name) > _MAX_ID_LENGTH else find_generation(key, name, timezone.now())
    if report is None:
        raise NotFound("Generation not found")
    return _answer(report)


def _find_managing(request: HttpRequest) -> ManagementKey | None:
    """Return the management key that is presented; None for an API key. Raises Unauthenticated, Forbidden."""
    token = find_presented_key(request.headers)
    if not is_management_key(token):
        return None
    caller = find_caller(token, request)
    if caller is None:
        raise Unauthenticated(MISSING_KEY)
    key: ManagementKey = caller[1]
    return key


def _authenticated(request: HttpRequest) -> ApiKey:
    """Return the key that is presented. Raises Unauthenticated, Gone."""
    key = find_api_key(find_presented_key(request.headers))
    if key is None or not works(key):
        raise Unauthenticated(MISSING_KEY)
    if key.project.status != Project.Status.ACTIVE:
        raise Gone(f"This project has been {key.project.status}")
    return key


def _answer(report: Report) -> HttpResponse:
    return HttpResponse(msgspec.json.encode({"data": _plainly(report)}), content_type="application/json")


def _plainly(value: Any) -> Any:
    """Return a report with its amounts as numbers with every digit and no exponent."""
    match value:
        case Decimal():
            return exact_number(value)
        case dict():
            return {name: _plainly(one) for name, one in value.items()}
        case list():
            return [_plainly(one) for one in value]
    return value


Report = dict[str, Any]

# The names of a key's spending: in all, and since the begin of the day, week and month.
_SPENDING = tuple(
    f"{name}{ending}" for name in ("usage", "byok_usage") for ending in ("", "_daily", "_weekly", "_monthly")
)
_CREDITS = (Transaction.Type.CREDIT_TOPUP, Transaction.Type.CREDIT_GIFT, Transaction.Type.CREDIT_REFUND)
RESETS = {"hour": "hourly", "day": "daily", "week": "weekly", "month": "monthly"}
# The end of an answer's id is its log entry's.
_ANSWER_ID = re.compile(r"[a-z]{1,16}[-_]([0-9a-f]{32})")
_FINISH_REASONS = {
    "completed": "stop",
    "length_limit": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "canceled": None,
}
_API_TYPES = {
    "images": "image",
    "embeddings": "embeddings",
    "rerank": "rerank",
    "moderations": "moderations",
    "audio": "audio",
}


def report_key(key: ApiKey, now: datetime) -> Report:
    """Return what a key may spend and has spent, in USD. `usage` leaves out what its organization's own credentials
    paid for, which the limit counts all the same."""
    [report] = report_keys([key], key.project.organization, now)
    return report


def report_keys(keys: Sequence[ApiKey], organization: Organization, now: datetime) -> list[Report]:
    """Return the reports of an organization's keys, as `report_key` does, with one query for their spending."""
    today = now.astimezone(UTC).date()
    begins = {
        "daily": today,
        "weekly": datetime.fromordinal(today.toordinal() - today.weekday()).date(),
        "monthly": today.replace(day=1),
    }
    spent = sum_spending(organization.id, {key.id: key.project_id for key in keys}, first=kept_since(now), since=begins)
    nothing = dict.fromkeys(_SPENDING, ZERO)
    return [_report_key(key, organization, {**nothing, **spent.get(key.id, {})}, now) for key in keys]


def report_management_key(key: ManagementKey) -> Report:
    """Return the report of a management key, which has no limit and spends nothing."""
    return {
        "label": masked(key),
        **dict.fromkeys(("limit", "limit_remaining", "limit_reset", "effective_budget")),
        "budgets": [],
        **dict.fromkeys(_SPENDING, ZERO),
        **_of_any_key(key.organization, key.expires_at),
        "is_management_key": True,
        "is_provisioning_key": True,
        "creator_user_id": None if key.created_by_id is None else str(key.created_by_id),
        "workspace_id": None,
        "rate_limit": _rate_limit(None),
    }


def _report_key(key: ApiKey, organization: Organization, spent: Mapping[str, Decimal], now: datetime) -> Report:
    budgets = _budgets_of(key, organization, now)
    tightest = min(budgets, key=lambda budget: budget["remaining_usd"], default=None)
    return {
        "label": key.masked_token,
        "limit": budgets[0]["limit_usd"] if budgets else None,
        "limit_remaining": max(tightest["remaining_usd"], ZERO) if tightest else None,
        "limit_reset": budgets[0]["reset_interval"] if budgets else None,
        "budgets": budgets,
        "effective_budget": tightest,
        **spent,
        # Activity ends after some time, usage does not.
        "usage": max(key.usage - spent["byok_usage"], ZERO),
        **_of_any_key(organization, key.expires_at),
        "is_management_key": False,
        "is_provisioning_key": False,
        "creator_user_id": str(key.created_by_id),
        "workspace_id": str(key.project_id),
        "rate_limit": _rate_limit(key.requests_per_minute),
    }


def _of_any_key(organization: Organization, expires_at: datetime | None) -> Report:
    return {
        "include_byok_in_limit": True,
        "is_free_tier": organization.plan == Plan.FREE,
        "organization_id": str(organization.id),
        "expires_at": None if expires_at is None else expires_at.astimezone(UTC).isoformat(),
        "allowed_data_regions": ["global"],
        # Free models are limited by the minute, not by the day.
        "free_model_daily_requests": {"limit": -1, "used": 0, "remaining": -1},
    }


def _rate_limit(per_minute: int | None) -> Report:
    return {"requests": per_minute or -1, "interval": "1m", "note": "Answers carry ratelimit-* headers"}


def _budgets_of(key: ApiKey, organization: Organization, now: datetime) -> list[Report]:
    """Return a key's limits as OpenRouter's budgets: first the limit of its period, then its usage limit."""
    return [_budget(one) for one in reversed(find_key_limits(key, organization.id, now))]


def _budget(limit: KeyLimit) -> Report:
    return {
        "scope": "key_limit",
        "limit_usd": limit.amount,
        "spend_usd": limit.used,
        "remaining_usd": limit.left,
        "reset_interval": RESETS.get(limit.applied.rule.window),
        "resets_at": None if limit.ends_at is None else limit.ends_at.isoformat(),
        "include_byok": True,
        "budget_id": None,
        "guardrail_id": None,
    }


def report_credits(organization: Organization) -> Report:
    """Return what an organization was ever credited, and what it has spent of it: their difference is left."""
    given = Transaction.objects.filter(
        organization=organization, type__in=_CREDITS, status=Transaction.Status.COMPLETED
    ).aggregate(sum=Sum("credit_amount"))["sum"]
    total = (given or ZERO) + organization.referral_earnings
    return {"total_credits": total, "total_usage": total - organization.credits}


def find_generation(key: ApiKey, name: str, now: datetime) -> Report | None:
    """Return the report of a request by the id of its answer, or of its log entry; None where the key's project has
    none of that id, or not yet: it is written within seconds."""
    identifier = _log_id_of(name)
    row = None if identifier is None else find_row(scope_of_key(key, now), identifier)
    return None if row is None else _report_request(name, row)


def _log_id_of(name: str) -> UUID | None:
    matched = _ANSWER_ID.fullmatch(name)
    return UUID(matched[1]) if matched else find_id(name)


def _report_request(name: str, row: LogRow) -> Report:
    own = row["used_mode"] == API_KEYS
    cost = row["cost"] or ZERO
    first = row["time_to_first_token"]
    return {
        "id": name,
        "request_id": row["request_id"],
        "upstream_id": None,
        "api_type": _API_TYPES.get(row["route"].partition("_")[0], "completions"),
        "created_at": row["created_at"].astimezone(UTC).isoformat(),
        "model": row["used_model"],
        "provider_name": row["used_provider"] or None,
        "streamed": row["streamed"],
        "cancelled": row["canceled"],
        "finish_reason": _FINISH_REASONS.get(row["unified_finish_reason"], "error"),
        "native_finish_reason": row["finish_reason"],
        "total_cost": cost,
        "usage": ZERO if own else cost,
        "upstream_inference_cost": cost if own else None,
        "cache_discount": None,
        "is_byok": own,
        "latency": row["duration"] if first is None else first,
        "generation_time": row["duration"] if first is None else row["duration"] - first,
        "moderation_latency": None,
        "tokens_prompt": row["prompt_tokens"],
        "tokens_completion": row["completion_tokens"],
        "native_tokens_prompt": row["prompt_tokens"],
        "native_tokens_completion": row["completion_tokens"],
        "native_tokens_reasoning": row["reasoning_tokens"] or 0,
        "native_tokens_cached": row["cached_tokens"] or 0,
        "native_tokens_completion_images": row["image_output_tokens"],
        "provider_responses": _attempts_of(row),
        "workspace_id": str(row["project_id"]),
        "data_region": "global",
        "origin": "",
        **dict.fromkeys(
            (
                *("app_id", "external_user", "http_referer", "user_agent", "preset_id", "router", "service_tier"),
                *("session_id", "response_cache_source_id", "web_search_engine", "num_search_results", "num_fetches"),
                *("num_media_prompt", "num_input_audio_prompt", "num_media_completion"),
            )
        ),
    }


def _attempts_of(row: LogRow) -> list[Report]:
    """Return which providers were called, where the log may tell."""
    metadata = msgspec.json.decode(row["routing_metadata"]) if row["routing_metadata"] else {}
    return [
        {"provider_name": one["provider"], "status": one["status_code"], "is_byok": row["used_mode"] == API_KEYS}
        for one in metadata.get("routing", ())
    ]
