"""Log rows for a sink: rows that are still visible, with content if it is stored and included.

It reads PostgreSQL only: rows are sent long before they are archived.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime
from uuid import UUID

from django.db.models import TextField
from django.db.models.functions import Cast

from apps.kernel.ids import time_of
from apps.log_sinks.models import LogSink
from apps.logs.models import RequestLog
from apps.logs.query import COLUMNS, JSON_COLUMNS, LogRow
from apps.logs.retention import FORBIDDEN, visible_to
from apps.organizations.models import RetentionLevel

_TEXTS = {f"{name}_text": Cast(name, TextField()) for name in JSON_COLUMNS}
_SELECTED = tuple(f"{name}_text" if name in JSON_COLUMNS else name for name in COLUMNS)
_ORDER = [RetentionLevel.NONE, RetentionLevel.METADATA, RetentionLevel.RETAIN]


def find_rows(sink: LogSink, ids: Collection[UUID]) -> list[LogRow]:
    """Return those rows that the sink's organization still has, oldest first."""
    since = visible_to([sink.organization_id], datetime.now(UTC))[sink.organization_id]
    found = RequestLog.objects.filter(
        organization_id=sink.organization_id,
        created_at__in={time_of(one) for one in ids},
        id__in=list(ids),
        created_at__gte=since,
    )
    level = _level_of(sink)
    selected = found.annotate(**_TEXTS).order_by("created_at", "id").values_list(*_SELECTED)
    return [_limited(dict(zip(COLUMNS, row, strict=True)), level) for row in selected]


def _level_of(sink: LogSink) -> RetentionLevel:
    """Return the retention level of sent rows: the organization's current level, without content unless included. The
    row's content was already limited when it was written."""
    kept = RetentionLevel(sink.organization.retention_level)
    return kept if sink.include_content else min(kept, RetentionLevel.METADATA, key=_ORDER.index)


def _limited(row: LogRow, level: RetentionLevel) -> LogRow:
    if level in FORBIDDEN:
        row |= dict.fromkeys(FORBIDDEN[level])
        if row["error_details"] is not None:
            details = json.loads(row["error_details"])
            if isinstance(details, dict):
                details.pop("message", None)
            row["error_details"] = json.dumps(details)
    return row
