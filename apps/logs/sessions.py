"""Sessions: requests of the log that share a client's session, such as an agent's run, with their sums, in index scans.

A session belongs to its organization. It is listed at the time of its newest request. Only requests that keep metadata
have a session, and only days in PostgreSQL are read: with an archive these are the newest ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from django.db import connections
from django.db.models import QuerySet, Sum
from django.db.models.fields.json import KeyTransform

from apps.kernel.ids import time_of
from apps.kernel.money import ZERO
from apps.kernel.postgres.replica import PRIMARY
from apps.logs.access import LogScope
from apps.logs.models import RequestLog
from apps.logs.search import time_ranges

# The newest requests of a session that its sums count; a session with more says so.
MAX_SUMMED: Final = 5_000
# Index entries that a page of the list may pass over in all, and in one query.
MAX_PASSED: Final = 20_000
_BATCH: Final = 1_000
# Names of tools and models of a session.
MAX_NAMES: Final = 20
_TOOL_CALLS: Final = "tool_calls"
# A call of a tool that the gateway made itself.
_TOOL_ROUTE: Final = "mcp_"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSession:
    """A session's sums. `turns` are answers that ended without asking for a tool; durations are milliseconds.

    `is_partial`: it has more requests than `MAX_SUMMED`, and the sums are of the newest ones.
    """

    id: str
    organization_id: UUID
    started_at: datetime
    ended_at: datetime
    user_agent: str | None
    models: Sequence[str]
    requests: int
    turns: int
    errors: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost: Decimal
    tools: Mapping[str, int]

    @property
    def duration(self) -> int:
        """Milliseconds from the first request to the end of the last one."""
        return round((self.ended_at - self.started_at).total_seconds() * 1000)

    @property
    def cached_share(self) -> float | None:
        """The share of the input tokens that was read from a provider's prompt cache; None without input."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else None

    @property
    def is_partial(self) -> bool:
        """Whether older requests of the session are not counted."""
        return self.requests >= MAX_SUMMED


class SessionPage(NamedTuple):
    """Sessions, and the id after which the next page begins; None after the last page."""

    sessions: list[LogSession]
    next_after: UUID | None


@dataclass(slots=True)
class SessionTurn:
    """The requests of one turn: one that a user begins, and those that continue it with results of tools."""

    model: str
    steps: list[SessionStep] = field(default_factory=list)
    is_over: bool = False

    @property
    def cost(self) -> Decimal:
        """The cost of its requests."""
        return sum((step.cost or ZERO for step in self.steps), ZERO)

    @property
    def duration(self) -> int:
        """Milliseconds from its first request to the end of its last one."""
        ended_at = max(step.ended_at for step in self.steps)
        return round((ended_at - self.steps[0].created_at).total_seconds() * 1000)


class SessionStep(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a session: columns of the log, and the cost of the session up to its end."""

    id: UUID
    created_at: datetime
    route: str
    duration: int
    time_to_first_token: int | None
    requested_model: str
    used_model: str
    used_provider: str
    status_code: int | None
    unified_finish_reason: str | None
    has_error: bool | None
    canceled: bool | None
    cached: bool | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    cost: Decimal | None
    tool_call_counts: dict[str, int] | None
    # Arguments of its answer's tool calls that only results of tools contain: tool, argument, kind and source of each.
    marked_arguments: list[dict[str, str]] | None = None
    running_cost: Decimal = ZERO

    @property
    def ended_at(self) -> datetime:
        """The end of the answer."""
        return self.created_at + timedelta(milliseconds=self.duration)

    @property
    def is_tool_call(self) -> bool:
        """Whether the gateway called a tool, and no model was asked."""
        return self.route.startswith(_TOOL_ROUTE)


_STEP_COLUMNS: Final = tuple(
    name for name in SessionStep.__struct_fields__ if name not in {"marked_arguments", "running_cost"}
)
_MARKS: Final = KeyTransform("tool_argument_origins", "routing_metadata")


def find_sessions(
    scope: LogScope,
    *,
    start: datetime | None,
    end: datetime | None,
    after: UUID | None,
    count: int,
    using: str = PRIMARY,
) -> SessionPage:
    """Return at most `count` sessions whose newest request is between `start` and `end`, the newest first.

    `after` is where the page before ended. A page that passed over `MAX_PASSED` requests may be shorter.
    """
    heads, floors = list[_Head](), list[UUID]()
    for organization_id in scope.since:
        scan = _Scan(scope, organization_id, using)
        heads += scan.find_heads(start, end, after, count + 1)
        floors += [] if scan.stopped_at is None else [scan.stopped_at]
    floor = max(floors, default=None)
    heads = sorted((head for head in heads if floor is None or head.newest_id >= floor), reverse=True)
    next_after = heads[count - 1].newest_id if len(heads) > count else floor
    return SessionPage(_summed(scope, heads[:count], using), next_after)


def find_session(scope: LogScope, session_id: str, using: str = PRIMARY) -> LogSession | None:
    """Return a session, or None if the scope has no request of it."""
    if "\0" in session_id:
        # No text in the database has it.
        return None
    for organization_id in scope.since:
        if found := _sums_of(scope, organization_id, [session_id], using):
            return found[session_id]
    return None


def find_steps(
    scope: LogScope, session: LogSession, *, after: UUID | None, count: int, using: str = PRIMARY
) -> list[SessionStep]:
    """Return at most `count` requests of a session in order, after the request `after`."""
    rows = _rows_of(scope, session.organization_id, using).filter(session_id=session.id)
    running = ZERO
    if after is not None:
        moment = time_of(after)
        before = rows.filter(created_at__lte=moment, id__lte=after)
        running = before.aggregate(sum=Sum("cost"))["sum"] or ZERO
        rows = rows.filter(created_at__gte=moment, id__gt=after)
    steps = []
    for values in rows.order_by("created_at", "id").values(*_STEP_COLUMNS, marked_arguments=_MARKS)[:count]:
        running += values["cost"] or ZERO
        steps.append(SessionStep(**values, running_cost=running))
    return steps


def turns_of(steps: Sequence[SessionStep]) -> list[SessionTurn]:
    """Return requests in order as turns: a request continues the turn of its model that still waits for tools.

    Calls of tools by the gateway belong to the turn that is open, or was the last one.
    """
    turns, open_turns = list[SessionTurn](), dict[str, SessionTurn]()
    for step in steps:
        if step.is_tool_call:
            turn = next(reversed(open_turns.values()), turns[-1] if turns else None)
        else:
            turn = open_turns.pop(step.requested_model, None)
        if turn is None:
            turn = SessionTurn(step.requested_model)
            turns.append(turn)
        turn.steps.append(step)
        if step.is_tool_call:
            continue
        # A failed request may be repeated: its turn goes on.
        turn.is_over = step.unified_finish_reason != _TOOL_CALLS and not step.has_error
        if not turn.is_over:
            open_turns[step.requested_model] = turn
    return turns


class _Head(NamedTuple):
    """The newest request of a session."""

    newest_id: UUID
    session_id: str
    organization_id: UUID


class _Scan:
    """A scan over the requests of one organization that have a session, the newest first."""

    def __init__(self, scope: LogScope, organization_id: UUID, using: str) -> None:
        self._scope, self._organization_id, self._using = scope, organization_id, using
        # The request at which it was given up.
        self.stopped_at: UUID | None = None

    def find_heads(self, start: datetime | None, end: datetime | None, after: UUID | None, count: int) -> list[_Head]:
        """Return the newest requests of at most `count` sessions; see `find_sessions`."""
        low, high = self._scope.since[self._organization_id], datetime.now(UTC) + timedelta(days=1)
        low, high = max(low, start or low), min(high, end or high)
        if after is not None:
            high = min(high, time_of(after))
        is_bounded, passed = after is not None or end is not None, 0
        heads: dict[str, _Head] = {}
        others: set[str] = set()
        rows = _rows_of(self._scope, self._organization_id, self._using).filter(session_id__isnull=False)
        for begin, until in time_ranges(low, high, ascending=False):
            last = after
            while True:
                found = rows.filter(created_at__gte=begin, created_at__lte=until)
                found = found if last is None else found.filter(id__lt=last)
                newest = found.order_by("-created_at", "-id").values_list("session_id", "id")[:_BATCH]
                batch = [(str(name), row_id) for name, row_id in newest]
                new = {name: row_id for name, row_id in reversed(batch) if name not in heads and name not in others}
                if new and is_bounded:
                    newer = self._find_newer(list(new), high, after)
                    others |= newer
                    new = {name: row_id for name, row_id in new.items() if name not in newer}
                heads |= {name: _Head(row_id, name, self._organization_id) for name, row_id in new.items()}
                passed += len(batch)
                if len(heads) >= count:
                    return sorted(heads.values(), reverse=True)[:count]
                if len(batch) < _BATCH:
                    break
                last = batch[-1][1]
                if passed >= MAX_PASSED:
                    self.stopped_at = last
                    return list(heads.values())
        return list(heads.values())

    def _find_newer(self, names: list[str], high: datetime, after: UUID | None) -> set[str]:
        """Return those of the sessions that have a request after the page's begin: they are not listed here."""
        narrowed, values = _narrowed(self._scope)
        # The first condition leaves out earlier partitions.
        bound, bounds = "created_at > %s", list[datetime | UUID]([high])
        if after is not None:
            bound, bounds = "created_at >= %s AND (created_at, id) >= (%s, %s)", [high, time_of(after), after]
        with connections[self._using].cursor() as cursor:
            cursor.execute(
                f"""
                SELECT name FROM unnest(%s::text[]) AS named (name) WHERE EXISTS (
                    SELECT FROM request_log WHERE organization_id = %s AND session_id = name AND {bound} {narrowed}
                )
                """,  # noqa: S608 - the text is ours
                [names, self._organization_id, *bounds, *values],
            )
            return {name for (name,) in cursor.fetchall()}


_SUMS: Final = """
    SELECT wanted.session_id, sums.* FROM unnest(%s::text[]) AS wanted (session_id) CROSS JOIN LATERAL (
        WITH counted AS MATERIALIZED (
            SELECT created_at, duration, route, user_agent, used_model, unified_finish_reason, has_error,
                prompt_tokens, completion_tokens, cached_tokens, cost, tool_call_counts
            FROM request_log
            WHERE organization_id = %s AND session_id = wanted.session_id AND created_at >= %s {narrowed}
            ORDER BY created_at DESC, id DESC LIMIT %s
        )
        SELECT min(created_at), max(created_at + duration * interval '1 millisecond'),
            (array_agg(user_agent ORDER BY created_at DESC) FILTER (WHERE user_agent IS NOT NULL))[1],
            (array_agg(DISTINCT used_model) FILTER (WHERE used_model <> ''))[1:%s],
            count(*),
            count(*) FILTER (
                WHERE unified_finish_reason IS DISTINCT FROM 'tool_calls' AND has_error IS NOT TRUE
                AND route NOT LIKE 'mcp\\_%%'
            ),
            count(*) FILTER (WHERE has_error),
            coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0), coalesce(sum(cached_tokens), 0),
            coalesce(sum(cost), 0),
            (SELECT jsonb_object_agg(tool, calls) FROM (
                SELECT call.key AS tool, sum(call.value::bigint) AS calls
                FROM counted CROSS JOIN LATERAL jsonb_each_text(
                    CASE WHEN jsonb_typeof(tool_call_counts) = 'object' THEN tool_call_counts END
                ) AS call GROUP BY call.key ORDER BY calls DESC, tool LIMIT %s
            ) AS most)
        FROM counted
    ) AS sums (
        started_at, ended_at, user_agent, models, requests, turns, errors, input_tokens, output_tokens, cached_tokens,
        cost, tools
    ) WHERE requests > 0
"""
_SUM_NAMES: Final = (
    *("id", "started_at", "ended_at", "user_agent", "models", "requests", "turns", "errors"),
    *("input_tokens", "output_tokens", "cached_tokens", "cost", "tools"),
)


def _summed(scope: LogScope, heads: Sequence[_Head], using: str) -> list[LogSession]:
    """Return the sessions with their sums, in the same order."""
    found: dict[tuple[UUID, str], LogSession] = {}
    for organization_id in {head.organization_id for head in heads}:
        names = [head.session_id for head in heads if head.organization_id == organization_id]
        sums = _sums_of(scope, organization_id, names, using)
        found |= {(organization_id, name): session for name, session in sums.items()}
    keys = [(head.organization_id, head.session_id) for head in heads]
    # Rows may expire meanwhile.
    return [found[key] for key in keys if key in found]


def _sums_of(scope: LogScope, organization_id: UUID, names: list[str], using: str) -> dict[str, LogSession]:
    narrowed, values = _narrowed(scope)
    since = scope.since[organization_id]
    with connections[using].cursor() as cursor:
        cursor.execute(
            _SUMS.format(narrowed=narrowed),
            [names, organization_id, since, *values, MAX_SUMMED, MAX_NAMES, MAX_NAMES],
        )
        rows = [dict(zip(_SUM_NAMES, row, strict=True)) for row in cursor.fetchall()]
    return {
        row["id"]: LogSession(
            **{**row, "models": row["models"] or [], "tools": _sorted(row["tools"])}, organization_id=organization_id
        )
        for row in rows
    }


def _sorted(tools: Any) -> dict[str, int]:
    """Return the tools, the most called first."""
    counts = msgspec.json.decode(tools) if isinstance(tools, str) else tools or {}
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _rows_of(scope: LogScope, organization_id: UUID, using: str) -> QuerySet[RequestLog]:
    ids = {"project_id": scope.project_id, "api_key_id": scope.api_key_id, "provider_key_id": scope.provider_key_id}
    rows = RequestLog.objects.using(using).filter(
        organization_id=organization_id,
        created_at__gte=scope.since[organization_id],
        **{name: value for name, value in ids.items() if value is not None},
    )
    return rows if scope.key_ids is None else rows.filter(api_key_id__in=scope.key_ids)


def _narrowed(scope: LogScope) -> tuple[str, list[UUID | list[UUID]]]:
    """Return further conditions of a scope, as SQL with its values."""
    ids = {"project_id": scope.project_id, "api_key_id": scope.api_key_id, "provider_key_id": scope.provider_key_id}
    set_ids = {name: value for name, value in ids.items() if value is not None}
    text, values = "".join(f" AND {name} = %s" for name in set_ids), list[UUID | list[UUID]](set_ids.values())
    if scope.key_ids is not None:
        return f"{text} AND api_key_id = ANY(%s::uuid[])", [*values, list(scope.key_ids)]
    return text, values
