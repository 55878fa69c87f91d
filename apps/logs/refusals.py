"""Refused requests: counted in memory, moved to Valkey every second and to PostgreSQL every minute.

Counting never delays a request. Counts may be lost, because this is not money: the last second of a process that is
killed; the last minute if Valkey loses its data, or if a task dies between reading the counts and writing them;
refusals beyond the memory limit while Valkey is down; and, in a flood, reasons beyond the limits of memory
(`MAX_WAITING`) or Valkey (`MAX_STORED`). A second may be counted twice if the connection breaks at that moment.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import connection
from django.db.models import Max, Sum
from redis.exceptions import RedisError

from apps.kernel.ids import find_id
from apps.kernel.postgres.replica import PRIMARY
from apps.kernel.valkey.redis import LuaScript, tagged_key
from apps.logs.models import RefusedHour

# Statuses of refusals; 401 has no key. Guardrails answer 400, distinguished from bad requests by their code.
STATUSES: Final = frozenset({402, 403, 410, 429})
GUARDRAIL: Final = "guardrail_blocked"
# Distinct pairs of key and reason in this process, and in Valkey until the next minute.
MAX_WAITING, MAX_STORED = 2_000, 20_000
KEPT = timedelta(days=30)
# Rows removed by one statement, and characters of a code.
BATCH, MAX_CODE = 5_000, 64
_COUNTS, _LAST = tagged_key("refusals", "refusals:counts"), tagged_key("refusals", "refusals:last")
_HOUR: Final = 3600

_Place = tuple[UUID, UUID, int, str, int]
# Organization, key, status, code and hour since 1970: how many, and the last one's second.
_waiting: dict[_Place, list[int]] = {}

_ADD = LuaScript("""
for i = 2, #ARGV, 3 do
    if redis.call('HEXISTS', KEYS[1], ARGV[i]) == 1 or redis.call('HLEN', KEYS[1]) < tonumber(ARGV[1]) then
        redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1])
        redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 2])
    end
end
""")
_TAKE = LuaScript("""
local taken = {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}
redis.call('DEL', KEYS[1], KEYS[2])
return taken
""")


@dataclass(frozen=True, slots=True)
class Refusals:
    """How often a key was refused for a reason, and the latest time."""

    api_key_id: UUID
    status: int
    code: str
    count: int
    last_at: datetime


def is_counted(status: int, code: str) -> bool:
    """Return whether an answer is a counted refusal."""
    return status in STATUSES or code == GUARDRAIL


def count(organization_id: UUID, api_key_id: UUID, status: int, code: str) -> None:
    """Count a refusal, in memory."""
    now = int(time.time())
    place = organization_id, api_key_id, status, code[:MAX_CODE], now // _HOUR
    noted = _waiting.get(place)
    if noted is not None:
        noted[0] += 1
        noted[1] = now
    elif len(_waiting) < MAX_WAITING:
        _waiting[place] = [1, now]


def flush() -> None:
    """Add the counts to Valkey. Raises RedisError; they are then kept for the next try."""
    if not _waiting:
        return
    noted = dict(_waiting)
    _waiting.clear()
    arguments: list[str | int | bytes] = [MAX_STORED]
    for place, (number, last) in noted.items():
        arguments += ["|".join(map(str, place)), number, last]
    try:
        _ADD.run_batched([_COUNTS, _LAST], arguments)
    except RedisError:
        for place, (number, last) in noted.items():
            if place in _waiting:
                _waiting[place][0] += number
            elif len(_waiting) < MAX_WAITING:
                _waiting[place] = [number, last]
        raise


def roll_up(now: datetime) -> int:
    """Move the counts from Valkey to PostgreSQL, and delete old rows there; return how many were written."""
    counts, last = (_pairs(found) for found in _TAKE([_COUNTS, _LAST], []))
    rows = [row for name, number in counts.items() if (row := _row_of(name, number, last.get(name, ""))) is not None]
    if rows:
        table = RefusedHour._meta.db_table
        columns = "organization_id, api_key_id, status, code, hour, count, last_at"
        with connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {table} ({columns}) VALUES (%s, %s, %s, %s, %s, %s, %s) "  # noqa: S608 - names are ours
                "ON CONFLICT (organization_id, hour, api_key_id, status, code) DO UPDATE SET "
                f"count = {table}.count + excluded.count, last_at = greatest({table}.last_at, excluded.last_at)",
                rows,
            )
    old = RefusedHour.objects.filter(hour__lt=now - KEPT).order_by("hour").values_list("id", flat=True)
    while ids := list(old[:BATCH]):
        RefusedHour.objects.filter(id__in=ids).delete()
    return len(rows)


def find_refusals(
    organization_id: UUID, since: datetime, keys: Collection[UUID] | None = None, *, using: str = PRIMARY
) -> list[Refusals]:
    """Return how often the organization's keys (or only `keys`) were refused, by reason, most frequent first."""
    rows = RefusedHour.objects.using(using).filter(organization_id=organization_id, hour__gte=since)
    if keys is not None:
        rows = rows.filter(api_key_id__in=keys)
    summed = rows.values("api_key_id", "status", "code").annotate(total=Sum("count"), last=Max("last_at"))
    return [
        Refusals(row["api_key_id"], row["status"], row["code"], row["total"], row["last"])
        for row in summed.order_by("-total", "-last")
    ]


def _pairs(found: list[str]) -> dict[str, str]:
    return dict(zip(found[::2], found[1::2], strict=True))


def _row_of(name: str, number: str, last: str) -> tuple[UUID, UUID, int, str, datetime, int, datetime] | None:
    """Return the row of a field in Valkey; None for an invalid field."""
    organization, key, status, *code, hour = name.split("|")
    organization_id, api_key_id = find_id(organization), find_id(key)
    if organization_id is None or api_key_id is None:
        return None
    begin = datetime.fromtimestamp(int(hour) * _HOUR, UTC)
    return organization_id, api_key_id, int(status), "|".join(code), begin, int(number), _moment(last, begin)


def _moment(last: str, begin: datetime) -> datetime:
    return datetime.fromtimestamp(int(last), UTC) if last else begin
