"""Usage of an organization: sums by model, project or key, and by tag; last use of keys.

It reads daily sums and the deltas that are not folded into them, as `activity.py` does; tags have no sums, so the log's
rows are read.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any, Final, Literal
from uuid import UUID

from django.db import connections
from django.db.models import Q

from apps.kernel.money import ZERO
from apps.kernel.postgres.replica import PRIMARY
from apps.logs.access import LogScope
from apps.logs.activity import ActivityScope, ActivityWindow
from apps.logs.models import ActivityDay, ActivityDelta, RequestLog

Dimension = Literal["model", "project", "key"]
# For tags: rows that are read, newest first, and tags in the answer.
MAX_ROWS, MAX_TAGS = 40_000, 200


@dataclass(frozen=True, slots=True)
class UsageSum:
    """The usage of a model, project, key or tag on a day; amounts in USD. For tags, `date` is None: all days."""

    date: date | None
    name: str
    requests: int
    errors: int
    input_tokens: int
    output_tokens: int
    cost: Decimal


@dataclass(frozen=True, slots=True)
class TagUsage:
    """The usage of tags, most expensive first, and whether there were more rows than are read."""

    rows: list[UsageSum]
    is_cut: bool


_COLUMNS: Final = {"model": "model", "project": "project_id", "key": "api_key_id"}
# The stored sums to use for each dimension: of organizations, of projects, of keys.
_DAYS_OF: Final = {
    "model": "project_id = coalesce(%(project)s, %(every)s) AND api_key_id = %(every)s",
    "project": "project_id <> %(every)s AND project_id = coalesce(%(project)s, project_id) AND api_key_id = %(every)s",
    "key": "api_key_id <> %(every)s AND project_id = coalesce(%(project)s, project_id)",
}


def find_usage(scope: ActivityScope, window: ActivityWindow, by: Dimension, *, using: str = PRIMARY) -> list[UsageSum]:
    """Return the usage by day and model, project or key (their ids), oldest day first, most expensive first in a day.

    A scope with one key supports only the dimensions model and key.
    """
    if not scope.organizations:
        return []
    wanted = "organization_id = ANY(%(organizations)s) AND date BETWEEN %(first)s AND %(last)s"
    of_days = _DAYS_OF[by] if scope.api_key_id is None else "api_key_id = %(key)s"
    of_deltas = "project_id = coalesce(%(project)s, project_id) AND api_key_id = coalesce(%(key)s, api_key_id)"
    if scope.key_ids is not None:
        of_days = of_deltas = "api_key_id = ANY(%(keys)s::uuid[])"
    sums = "request_count, error_count, input_tokens, output_tokens, cost"
    question = f"""
        WITH added AS MATERIALIZED (
            SELECT date, {_COLUMNS[by]}::text AS name, {sums} FROM {ActivityDay._meta.db_table}
            WHERE {wanted} AND {of_days}
            UNION ALL
            SELECT date, {_COLUMNS[by]}::text AS name, {sums} FROM {ActivityDelta._meta.db_table}
            WHERE {wanted} AND {of_deltas}
        )
        SELECT date, name, sum(request_count)::bigint, sum(error_count)::bigint, sum(input_tokens)::bigint,
            sum(output_tokens)::bigint, sum(cost)
        FROM added GROUP BY date, name HAVING sum(request_count) > 0 ORDER BY date, sum(cost) DESC, name
    """  # noqa: S608 - names are ours
    with connections[using].cursor() as cursor:
        cursor.execute(
            question,
            {
                "organizations": list(scope.organizations),
                "project": scope.project_id,
                "key": scope.api_key_id,
                "keys": list(scope.key_ids or ()),
                "every": ActivityDay.EVERY,
                "first": window.first,
                "last": window.last,
            },
        )
        return [UsageSum(*row) for row in cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """An organization's usage of a model at a provider on a day; amounts in USD.

    `cached_input_cost` is the part of the cost for input that the provider read from its prompt cache; `cache_hits` are
    answers of the gateway's response cache.
    """

    date: date
    model: str
    provider: str
    requests: int
    errors: int
    cache_hits: int
    input_tokens: int
    output_tokens: int
    cost: Decimal
    cached_input_cost: Decimal


_MODEL_SUMS: Final = (
    *("request_count", "error_count", "cache_count", "input_tokens", "output_tokens", "cost", "cached_input_cost"),
)
_OF_MODELS: Final = f"""
    WITH added AS MATERIALIZED (
        SELECT date, model, provider, {", ".join(_MODEL_SUMS)} FROM {ActivityDay._meta.db_table}
        WHERE organization_id = %(organization)s AND project_id = %(every)s AND api_key_id = %(every)s
            AND date BETWEEN %(first)s AND %(last)s AND model = ANY(%(models)s)
        UNION ALL
        SELECT date, model, provider, {", ".join(_MODEL_SUMS)} FROM {ActivityDelta._meta.db_table}
        WHERE organization_id = %(organization)s AND date BETWEEN %(first)s AND %(last)s AND model = ANY(%(models)s)
    )
    SELECT date, model, provider, sum(request_count)::bigint, sum(error_count)::bigint, sum(cache_count)::bigint,
        sum(input_tokens)::bigint, sum(output_tokens)::bigint, sum(cost), sum(cached_input_cost)
    FROM added GROUP BY date, model, provider HAVING sum(request_count) > 0 ORDER BY date, model, provider
"""  # noqa: S608 - names are ours


def find_model_usage(
    organization_id: UUID, models: Collection[str], window: ActivityWindow, *, using: str = PRIMARY
) -> list[ModelUsage]:
    """Return an organization's usage of models by day and provider, oldest first; exact up to the latest row."""
    asked: dict[str, Any] = {
        "organization": organization_id,
        "models": list(models),
        "every": ActivityDay.EVERY,
        "first": window.first,
        "last": window.last,
    }
    with connections[using].cursor() as cursor:
        cursor.execute(_OF_MODELS, asked)
        return [ModelUsage(*row) for row in cursor.fetchall()]


@dataclass(frozen=True, slots=True)
class OrganizationSum:
    """An organization's usage of a model; the amount in USD."""

    id: UUID
    requests: int
    errors: int
    input_tokens: int
    output_tokens: int
    cost: Decimal


@dataclass(frozen=True, slots=True)
class OrganizationUsage:
    """The usage of a model by all organizations: totals, and the organizations that spent the most."""

    organizations: int
    requests: int
    errors: int
    cost: Decimal
    largest: list[OrganizationSum]


_SUMS_OF_MODEL: Final = ("request_count", "error_count", "input_tokens", "output_tokens", "cost")
_BY_ORGANIZATION: Final = f"""
    WITH added AS MATERIALIZED (
        SELECT organization_id, {", ".join(_SUMS_OF_MODEL)} FROM {ActivityDay._meta.db_table}
        WHERE date BETWEEN %(first)s AND %(last)s AND project_id = '{ActivityDay.EVERY}'
            AND api_key_id = '{ActivityDay.EVERY}' AND model = %(model)s
        UNION ALL
        SELECT organization_id, {", ".join(_SUMS_OF_MODEL)} FROM {ActivityDelta._meta.db_table}
        WHERE date BETWEEN %(first)s AND %(last)s AND model = %(model)s
    ), summed AS (
        SELECT organization_id, sum(request_count)::bigint AS requests, sum(error_count)::bigint AS errors,
            sum(input_tokens)::bigint AS input_tokens, sum(output_tokens)::bigint AS output_tokens, sum(cost) AS cost
        FROM added GROUP BY organization_id HAVING sum(request_count) > 0
    )
    SELECT count(*) OVER (), sum(requests) OVER ()::bigint, sum(errors) OVER ()::bigint, sum(cost) OVER (), summed.*
    FROM summed ORDER BY cost DESC, organization_id LIMIT %(count)s
"""  # noqa: S608 - names and the id are ours


def find_organization_usage(
    model: str, window: ActivityWindow, count: int, *, using: str = PRIMARY
) -> OrganizationUsage:
    """Return the usage of a model by all organizations, with the `count` that spent the most; exact up to the latest
    row. For operators: reads the days of all organizations in the window."""
    asked: dict[str, Any] = {"model": model, "first": window.first, "last": window.last, "count": count}
    with connections[using].cursor() as cursor:
        cursor.execute(_BY_ORGANIZATION, asked)
        rows = cursor.fetchall()
    organizations, requests, errors, cost = rows[0][:4] if rows else (0, 0, 0, ZERO)
    return OrganizationUsage(organizations, requests, errors, cost, [OrganizationSum(*row[4:]) for row in rows])


@dataclass(frozen=True, slots=True)
class KeyUse:
    """The last day (UTC) with requests of a key, and its requests of each day of a window, oldest first."""

    last_day: date
    requests: list[int]


def find_key_use(
    organization_id: UUID, keys: Mapping[UUID, UUID], window: ActivityWindow, *, using: str = PRIMARY
) -> dict[UUID, KeyUse]:
    """Return the use of some keys by their ids, each given with its project; keys without requests are left out."""
    days = [window.first + timedelta(days=number) for number in range((window.last - window.first).days + 1)]
    wanted = "organization_id = %(organization)s AND project_id = ANY(%(projects)s) AND api_key_id = ANY(%(keys)s)"
    question = f"""
        WITH added AS MATERIALIZED (
            SELECT api_key_id, date, request_count FROM {ActivityDay._meta.db_table} WHERE {wanted}
            UNION ALL
            SELECT api_key_id, date, request_count FROM {ActivityDelta._meta.db_table} WHERE {wanted}
        ), by_day AS (
            SELECT api_key_id, date, sum(request_count)::bigint AS requests FROM added
            GROUP BY api_key_id, date HAVING sum(request_count) > 0
        )
        SELECT api_key_id, max(date), jsonb_object_agg(date, requests) FILTER (WHERE date = ANY(%(days)s))::text
        FROM by_day GROUP BY api_key_id
    """  # noqa: S608 - names are ours
    with connections[using].cursor() as cursor:
        cursor.execute(
            question,
            {"organization": organization_id, "projects": list(keys.values()), "keys": list(keys), "days": days},
        )
        found = {}
        for key, last, counted in cursor.fetchall():
            counts = json.loads(counted or "{}")
            found[key] = KeyUse(last, [int(counts.get(day.isoformat(), 0)) for day in days])
        return found


def find_tag_usage(scope: LogScope, window: ActivityWindow, *, using: str = PRIMARY) -> TagUsage:
    """Return the usage of each tag (`name: value`) and source, as far back as logs are kept; a row may have several. At
    most the newest `MAX_ROWS` rows are read."""
    if not scope.since:
        return TagUsage([], is_cut=False)
    begin = datetime.combine(window.first, time.min, UTC)
    end = datetime.combine(window.last + timedelta(days=1), time.min, UTC)
    seen = reduce(
        or_,
        (
            Q(organization_id=organization_id, created_at__gte=max(since, begin))
            for organization_id, since in scope.since.items()
        ),
    )
    rows = RequestLog.objects.using(using).filter(seen, created_at__gte=begin, created_at__lt=end)
    narrowed = {
        "project_id": scope.project_id,
        "api_key_id": scope.api_key_id,
        "provider_key_id": scope.provider_key_id,
    }
    rows = rows.filter(**{name: value for name, value in narrowed.items() if value is not None})
    if scope.key_ids is not None:
        rows = rows.filter(api_key_id__in=scope.key_ids)
    rows = rows.filter(Q(custom_headers__isnull=False) | Q(source__isnull=False)).order_by("-created_at", "-id")
    text, values = rows.values(
        *("custom_headers", "source", "has_error", "prompt_tokens", "completion_tokens", "cost", "data_storage_cost")
    )[:MAX_ROWS].query.sql_with_params()
    with connections[using].cursor() as cursor:
        cursor.execute(
            f"""
            WITH tagged AS MATERIALIZED ({text}), tags AS (
                SELECT tag.key || ': ' || tag.value AS name, tagged.* FROM tagged,
                    jsonb_each_text(CASE WHEN jsonb_typeof(custom_headers) = 'object' THEN custom_headers END) AS tag
                UNION ALL
                SELECT 'source: ' || source AS name, tagged.* FROM tagged WHERE source IS NOT NULL
            )
            SELECT name, count(*), count(*) FILTER (WHERE has_error), coalesce(sum(prompt_tokens), 0)::bigint,
                coalesce(sum(completion_tokens), 0)::bigint,
                coalesce(sum(coalesce(cost, 0) + coalesce(data_storage_cost, 0)), 0),
                (SELECT count(*) FROM tagged)
            FROM tags GROUP BY name ORDER BY 6 DESC, 2 DESC, 1 LIMIT {MAX_TAGS}
            """,  # noqa: S608 - Django's own text, and a number
            values,
        )
        found = cursor.fetchall()
    return TagUsage([UsageSum(None, *row[:-1]) for row in found], is_cut=bool(found) and found[0][-1] >= MAX_ROWS)
