"""Search of logs: pages by cursor, one row by id, the models in use; every query uses an index.

It reads PostgreSQL by the connection `using`, then the archive for older days; in this order, a row that is just being
moved is found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from functools import reduce
from operator import and_, or_
from typing import Any
from uuid import UUID

from django.db.models import BooleanField, Func, Q, QuerySet, TextField, Value
from django.db.models.functions import Cast

from apps.kernel.ids import time_of
from apps.kernel.postgres.replica import PRIMARY
from apps.logs import archive, partitions
from apps.logs.access import LogScope
from apps.logs.answers import AnswerMedium, read_medium
from apps.logs.models import ActivityDay, ActivityDelta, RequestLog, find_time
from apps.logs.query import COLUMNS, JSON_COLUMNS, LogFilters, LogRow
from apps.organizations.models import Project

# The smallest difference between two times in the table.
_TICK = timedelta(microseconds=1)
# Index scans, each of one organization or project in one day, in one query.
_MAX_WALKS = 200

_TEXTS = {f"{name}_text": Cast(name, TextField()) for name in JSON_COLUMNS}
_SELECTED = tuple(f"{name}_text" if name in JSON_COLUMNS else name for name in COLUMNS)


def find_page(
    scope: LogScope, filters: LogFilters, *, count: int, after: UUID | None, ascending: bool, using: str = PRIMARY
) -> list[LogRow]:
    """Return at most `count` rows ordered by time, after the row with id `after`."""
    if not scope.since:
        return []
    now = datetime.now(UTC)
    low, high = min(scope.since.values()), now + timedelta(days=1)  # Clocks differ, but not by more.
    low, high = max(low, filters.start or low), min(high, filters.end or high)
    if after is not None:
        # An id begins with its time: the order of ids is the order of (created_at, id).
        moment = time_of(after)
        low, high = (max(low, moment), high) if ascending else (low, min(high, moment))
    bounds = {"low": low, "high": high}
    rows = _find_in_postgres(scope, filters, **bounds, after=after, count=count, ascending=ascending, using=using)
    older, boundary = archive.find_archive(), archive.archived_before(now)
    full_of_newer = len(rows) == count and not ascending and rows[-1]["created_at"] >= boundary
    if older is None or low >= boundary or full_of_newer:
        return rows
    high = min(high, boundary)
    moved = older.find_page(scope, filters, low=low, high=high, after=after, count=count, ascending=ascending)
    return archive.merge_rows(rows, moved, count=count, ascending=ascending)


def _find_in_postgres(
    scope: LogScope,
    filters: LogFilters,
    *,
    low: datetime,
    high: datetime,
    after: UUID | None,
    count: int,
    ascending: bool,
    using: str,
) -> list[LogRow]:
    """Return the rows of a page from PostgreSQL."""
    wanted = conditions_of(filters)
    if after is not None:
        wanted &= Q(id__gt=after) if ascending else Q(id__lt=after)
    elif ascending and (days := partitions.existing(using)):
        low = max(low, datetime.combine(days[0], time.min, UTC))  # Earlier days have no rows.
    rows: list[LogRow] = []
    ways = _index_walks(scope, filters, using)
    for start, end in time_ranges(low, high, ascending):
        within = wanted & Q(created_at__gte=start, created_at__lte=end)
        if len(ways) * ((end - start).days + 1) <= _MAX_WALKS:
            rows += _walk_indexes(ways, within, count - len(rows), ascending)
        else:
            rows += _scan_days(scope, within, count - len(rows), ascending, using)
        if len(rows) == count:
            break
    return rows


def time_ranges(low: datetime, high: datetime, ascending: bool) -> Iterator[tuple[datetime, datetime]]:
    """Yield time ranges from one end to the other, both ends included, each with more days than the one before.

    Days are partitions: a query over few of them is planned quickly, and most pages are full after a few.
    """
    days = 3
    while low <= high:
        if ascending:
            end = min(high, _midnight(low) + timedelta(days=days) - _TICK)
            yield low, end
            low = end + _TICK
        else:
            start = max(low, _midnight(high) - timedelta(days=days - 1))
            yield start, high
            high = start - _TICK
        days *= 4


def _index_walks(scope: LogScope, filters: LogFilters, using: str) -> list[QuerySet[RequestLog]]:
    """Return the index scans: organizations, or projects if they have an index."""
    if filters.session_id is not None:
        # Its index begins with the organization.
        return [rows_of_organization(scope, owner, using).filter(organization_id=owner) for owner in scope.since]
    values = (filters.finish_reason, filters.unified_finish_reason, filters.source)
    headers = (filters.header_key, filters.header_value)
    if scope.project_id is not None or {*values, *headers} == {None}:
        return [rows_of_organization(scope, organization_id, using) for organization_id in scope.since]
    owned = Project.objects.using(using).filter(organization__in=scope.since)
    projects = owned.values_list("organization_id", "id")
    return [rows_of_organization(replace(scope, project_id=project), owner, using) for owner, project in projects]


def _walk_indexes(ways: list[QuerySet[RequestLog]], wanted: Q, count: int, ascending: bool) -> list[LogRow]:
    """Return rows in order. Each index scan is limited to a page; the results are merged."""
    order = ("created_at", "id") if ascending else ("-created_at", "-id")
    walks = [_select(way.filter(wanted)).order_by(*order)[:count] for way in ways]
    if len(walks) > 1:
        walks = [walks[0].union(*walks[1:], all=True).order_by(*order)[:count]]
    return [dict(zip(COLUMNS, row, strict=True)) for walk in walks for row in walk]


def _scan_days(scope: LogScope, wanted: Q, count: int, ascending: bool, using: str) -> list[LogRow]:
    """Return rows in order with one scan per day over all organizations, if there would be too many index scans.

    Matches are rare here, or earlier days would have filled the page.
    """
    seen = [Q(organization_id=organization, created_at__gte=since) for organization, since in scope.since.items()]
    rows = RequestLog.objects.using(using).filter(wanted, reduce(or_, seen), organization_id__in=list(scope.since))
    if scope.provider_key_id is not None:
        rows = rows.filter(provider_key_id=scope.provider_key_id)
    if scope.key_ids is not None:
        rows = rows.filter(api_key_id__in=scope.key_ids)
    order = ("created_at", "id") if ascending else ("-created_at", "-id")
    return [dict(zip(COLUMNS, row, strict=True)) for row in _select(rows).order_by(*order)[:count]]


def rows_between(
    scope: LogScope, filters: LogFilters, low: datetime, high: datetime, using: str = PRIMARY
) -> list[QuerySet[RequestLog]]:
    """Return the matching rows in PostgreSQL as index scans; none if they would be too many to plan quickly."""
    ways = _index_walks(scope, filters, using)
    if len(ways) * ((high - low).days + 1) > _MAX_WALKS:
        return []
    wanted = conditions_of(filters) & Q(created_at__gte=low, created_at__lte=high)
    return [way.filter(wanted) for way in ways]


def rows_by_ids(scope: LogScope, ids: Sequence[UUID], using: str = PRIMARY) -> list[LogRow]:
    """Return rows of the scope's organizations by their ids, in the order of the ids; missing ones are left out."""
    if not ids:
        return []
    moments = [time_of(one) for one in ids]
    rows = RequestLog.objects.using(using).filter(
        id__in=ids, created_at__gte=min(moments), created_at__lte=max(moments), organization_id__in=list(scope.since)
    )
    found = {row[COLUMNS.index("id")]: dict(zip(COLUMNS, row, strict=True)) for row in _select(rows)}
    return [found[one] for one in ids if one in found]


def find_row(scope: LogScope, identifier: UUID) -> LogRow | None:
    """Return a row by its id, or None if the scope has none.

    Reads the primary, because the request may have finished a moment ago.
    """
    for organization_id in scope.since:
        row = _select(rows_of_organization(scope, organization_id, PRIMARY).filter(id=identifier)).first()
        if row is not None:
            return dict(zip(COLUMNS, row, strict=True))
    older, moment = archive.find_archive(), find_time(identifier)
    if older is None or moment is None or moment >= archive.archived_before(datetime.now(UTC)):
        return None
    return older.find_row(scope, identifier)


def find_medium(scope: LogScope, identifier: UUID, number: int) -> AnswerMedium | None:
    """Return an image or audio of a row by its place, None where the scope has none whose bytes are stored."""
    row = find_row(scope, identifier)
    if row is None or row["media"] is None:
        return None
    stored = RequestLog.objects.filter(id=identifier).values_list("media_data", flat=True)
    older = archive.find_archive()
    data = stored[0] if stored else None if older is None else older.find_media_data(scope, identifier)
    return read_medium(identifier, json.loads(row["media"]), data, number)


def find_used_models(scope: LogScope, using: str = PRIMARY) -> tuple[list[str], list[str]]:
    """Return the models and providers that answered the scope's projects, sorted; exact to the day of its start.

    Reads daily sums, not rows.
    """
    if not scope.since:
        return [], []
    seen = reduce(or_, (Q(organization_id=one, date__gte=since.date()) for one, since in scope.since.items()))
    # Deltas first: one that is folded meanwhile is then found in its day.
    notes = ActivityDelta.objects.using(using).filter(seen, organization_id__in=list(scope.since))
    if scope.project_id is not None:
        notes = notes.filter(project_id=scope.project_id)
    # A request without an answering provider has the requested model, but no provider.
    pairs = set(notes.exclude(provider="").values_list("model", "provider").distinct())
    days = ActivityDay.objects.using(using).filter(
        seen,
        organization_id__in=list(scope.since),
        project_id=scope.project_id or ActivityDay.EVERY,
        api_key_id=ActivityDay.EVERY,
    )
    pairs |= set(days.exclude(provider="").values_list("model", "provider").distinct())
    return sorted({model for model, _ in pairs}), sorted({provider for _, provider in pairs})


def rows_of_organization(scope: LogScope, organization_id: UUID, using: str) -> QuerySet[RequestLog]:
    """Return the rows of an organization in the scope.

    Only the narrowest id is used: it implies the others, but the planner would multiply their selectivities.
    """
    seen = RequestLog.objects.using(using).filter(created_at__gte=scope.since[organization_id])
    if scope.provider_key_id is not None:
        seen = seen.filter(provider_key_id=scope.provider_key_id)
    if scope.key_ids is not None:
        seen = seen.filter(api_key_id__in=scope.key_ids)
    if scope.api_key_id is not None:
        return seen.filter(api_key_id=scope.api_key_id)
    if scope.project_id is not None:
        return seen.filter(project_id=scope.project_id)
    return seen.filter(organization_id=organization_id)


def _select(rows: QuerySet[RequestLog]) -> QuerySet[RequestLog, tuple[Any, ...]]:
    return rows.annotate(**_TEXTS).values_list(*_SELECTED)


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def conditions_of(filters: LogFilters) -> Q:
    """Return the conditions of filters, without their period."""
    equal = {
        "used_provider": filters.provider,
        "finish_reason": filters.finish_reason,
        "unified_finish_reason": filters.unified_finish_reason,
        "source": filters.source,
        "session_id": filters.session_id,
    }
    conditions = [Q(**{column: value for column, value in equal.items() if value is not None})]
    if filters.model is not None:
        conditions.append(_is_model(filters.model))
    if filters.header_key is not None or filters.header_value is not None:
        conditions.append(_has_header(filters.header_key, filters.header_value))
    return reduce(and_, conditions)


def _is_model(name: str) -> Q:
    provider, slash, model = name.partition("/")
    return Q(used_model=name) | Q(used_provider=provider, used_model=model) if slash else Q(used_model=name)


def _has_header(key: str | None, value: str | None) -> Q:
    if key is None:
        path = Value(f"$.* ? (@ == {json.dumps(value)})")
        # Only the operator uses the index, not the equivalent function.
        return Q(Func(path, template="custom_headers @? %(expressions)s::jsonpath", output_field=BooleanField()))
    name = key.lower()
    return Q(custom_headers__has_key=name) if value is None else Q(custom_headers__contains={name: value})
