"""Searches of a large log, and how long they take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from django.core.management import call_command
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from apps.console.browser_session import COOKIE
from apps.kernel.rest.pages import write_cursor
from apps.keys.models import ApiKey
from apps.logs import text_search, writer
from apps.logs.models import RequestLog
from apps.organizations.actions import create_operator
from apps.organizations.credentials.sessions import start_session
from apps.organizations.models import Organization, Project, User
from bench import log_rows
from bench.log_rows import Cast
from tests.logs.entries import entry, id_at
from tests.support.cast import PASSWORD, Caller, signed_in

RUNS = 3
# Texts to search for.
_TEXTS = (("common word", log_rows.COMMON_WORD), ("rare word", log_rows.RARE_WORD), ("no word", "zebra"))
WRITTEN, BATCH = 5_000, 500


class Question(NamedTuple):
    """One request: who asks, where, with which query; with a body it is a POST."""

    name: str
    caller: Caller
    path: str
    query: dict[str, str]
    body: dict[str, str] | None = None

    def ask(self) -> Any:
        """Return the answer."""
        if self.body is not None:
            return self.caller.post(self.path, self.body)
        return self.caller.get(self.path, **self.query)


def prepared(rows: int, tell: Callable[[str], None]) -> Cast:
    """Return who has rows, after making as many as asked for where there are none."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    call_command("migrate", verbosity=0)
    # The pages of models show its models.
    call_command("load_catalog", verbosity=0)
    user = User.objects.filter(email="olivia@example.com").first()
    if user is not None:
        return Cast(user, list(Organization.objects.order_by("created_at", "id")))
    cast = log_rows.make_cast()
    started = time.monotonic()
    log_rows.fill(rows, datetime.now(UTC).date(), tell)
    tell(f"\n{rows} rows in {time.monotonic() - started:.0f} s\n")
    started = time.monotonic()
    days = text_search.index_closed_days(datetime.now(UTC), 3_600)
    tell(f"{len(days)} days indexed for text in {time.monotonic() - started:.0f} s; {log_rows.describe_text_index()}\n")
    return cast


def measure(cast: Cast, only: str, plans: Path | None, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return one row a question; write the plans where that is asked for."""
    figures, explained = [], []
    for question in questions(cast):
        if only not in question.name:
            continue
        times, rows, size = [], 0, 0
        for _ in range(RUNS):
            started = time.perf_counter()
            answer = question.ask()
            body = answer.getvalue() if answer.streaming else answer.content
            times.append((time.perf_counter() - started) * 1000)
            assert answer.status_code in {200, 302, 404}, body
            size = len(body)
            rows = body.count(b"\n") if answer.streaming else _rows_of(answer)
            if times[0] > 5_000:
                break
        figures.append(
            {
                "question": question.name,
                "median": statistics.median(times),
                "slowest": max(times),
                "rows": rows,
                "bytes": size,
            }
        )
        if plans:
            explained.append(f"== {question.name}: {statistics.median(times):.0f} ms\n{plan_of(question)}\n")
            plans.write_text("\n".join(explained))
        tell(".")
    if only in "write":
        figures.append({"question": f"write {WRITTEN} rows in batches of {BATCH}", **write(cast), "rows": WRITTEN})
    return figures


def _rows_of(answer: Any) -> int:
    """Return how many rows a page has, of the API or of tables for people, with their heads."""
    if answer["Content-Type"].startswith("text/html"):
        return int(answer.content.count(b"<tr"))
    return len(answer.json().get("logs", [0]))


def questions(cast: Cast) -> Iterator[Question]:
    """Yield the questions."""
    large, middle, small = cast.organizations[0], cast.organizations[4], cast.organizations[-1]
    session = signed_in(cast.user)
    project = Project.objects.filter(organization=large).order_by("created_at", "id")[0]
    key = ApiKey.objects.filter(project=project).order_by("created_at", "id")[0]
    scopes = {
        "20 organizations": {},
        "large": {"orgId": str(large.id)},
        "large's project": {"projectId": str(project.id)},
        "a key": {"apiKeyId": str(key.id)},
        "middling": {"orgId": str(middle.id)},
        "small": {"orgId": str(small.id)},
    }
    halfway = write_cursor(log_rows.middle_id(large.id))
    for name, scope in scopes.items():
        for order in ("createdAt_desc", "createdAt_asc"):
            yield Question(f"{name}, {order[10:]}", session, "/logs", {**scope, "orderBy": order})
            yield Question(
                f"{name}, {order[10:]}, middle", session, "/logs", {**scope, "orderBy": order, "cursor": halfway}
            )
        for wanted, query in _filters():
            yield Question(f"{name}, {wanted}", session, "/logs", {**scope, **query})
        used = {field: value for field, value in scope.items() if field != "apiKeyId"}
        yield Question(f"{name}, unique-models", session, "/logs/unique-models", used)
    yield Question("one row", session, f"/logs/{log_rows.middle_id(middle.id)}", {})
    yield Question("no such row", session, f"/logs/{large.id}", {})
    for name in ("large", "large's project", "a key"):
        yield Question(f"activity of a year, {name}", session, "/activity", {**scopes[name], "days": "365"})
    yield Question("activity of a year, 20 organizations", session, "/activity", {"days": "365"})
    for name, text in _TEXTS:
        yield Question(f"text, {name}", session, "/logs", {"orgId": str(large.id), "text": text})
    yield Question("sessions", session, "/logs/sessions", {"orgId": str(large.id)})
    yield Question("one session", session, f"/logs/sessions/{log_rows.SESSION}", {"orgId": str(large.id)})
    for window in ("hour", "day", "month"):
        draft = {"organizationId": str(large.id), "name": "Draft", "scope": "organization", "counts": "usd"}
        body = {**draft, "window": window, "amount": "1"}
        yield Question(f"preview of a limit, {window}", session, "/limits/preview", {}, body)
    yield from _pages_of_operators(large, project)
    yield from _pages_of_tenants(cast, large)
    now = datetime.now(UTC)
    window = {"startDate": (now - timedelta(days=10)).isoformat(), "endDate": (now - timedelta(days=9)).isoformat()}
    for form in ("jsonl", "csv"):
        yield Question(
            f"export of a day as {form}", session, "/logs/export", {**window, "format": form, **scopes["middling"]}
        )


def _pages_of_operators(large: Organization, project: Project) -> Iterator[Question]:
    operator = Caller()
    operator.client.force_login(
        User.objects.filter(is_superuser=True).first() or create_operator(email="op@example.com", password=PASSWORD)
    )
    for window in ("1h", "24h", "7d"):
        yield Question(f"admin: dashboard, {window}", operator, "/admin/", {"window": window})
    yield Question("admin: find a name", operator, "/admin/find/", {"q": "Organization 1"})
    yield Question("admin: find a request", operator, "/admin/find/", {"q": str(log_rows.middle_id(large.id))})
    logs, days = "/admin/logs/requestlog/", "/admin/logs/activityday/"
    for name, query in {
        "the last day": {},
        "large": {"q": str(large.id)},
        "words": {"q": "model-0"},
        "errors of a week": {"ended": "upstream_error", "time": "7d"},
        "rare errors of a month": {"ended": "gateway_error", "time": "30d"},
        "a provider's of a week": {"provider": "provider-8", "time": "7d"},
        "rare model of all time": {"model": log_rows.RARE_MODEL, "time": "all"},
    }.items():
        yield Question(f"admin: log, {name}", operator, logs, query)
    yield Question("admin: activity", operator, days, {})
    yield Question("admin: activity, large", operator, days, {"q": str(large.id)})
    yield Question("admin: activity, large's project", operator, days, {"q": str(project.id)})


def _pages_of_tenants(cast: Cast, large: Organization) -> Iterator[Question]:
    visitor = Caller()
    visitor.client.cookies[COOKIE] = start_session(cast.user)
    home = f"/app/o/{large.id}/"
    for days in ("7", "30"):
        yield Question(f"console: overview, {days} days", visitor, home, {"days": days})
    yield Question("console: usage by model", visitor, f"{home}usage", {})
    for aspect in ("key", "project", "tag"):
        yield Question(f"console: usage by {aspect}", visitor, f"{home}usage", {"by": aspect})
    yield Question("console: keys", visitor, f"{home}keys", {})
    yield Question("console: refused requests", visitor, f"{home}refusals", {"days": "30"})
    yield Question("console: logs", visitor, f"{home}logs", {})
    for period in ("24h", "7d"):
        yield Question(f"console: logs and histogram, {period}", visitor, f"{home}logs", {"range": period})
    one = log_rows.middle_id(large.id)
    rows = RequestLog.objects.filter(organization_id=large.id, created_at__gte=datetime.now(UTC) - timedelta(days=2))
    other = rows.order_by("-created_at").values_list("id", flat=True)[0]
    yield Question("console: logs of a model", visitor, f"{home}logs", {"model": "model-0", "range": "7d"})
    yield Question("console: one request", visitor, f"{home}logs/{one}", {})
    yield Question("console: two requests", visitor, f"{home}logs/{one}", {"with": str(other)})
    yield Question("console: sessions", visitor, f"{home}sessions", {})
    yield Question("console: one session", visitor, f"{home}sessions/{log_rows.SESSION}", {})
    yield Question("console: suggestions", visitor, f"{home}logs/suggestions", {"q": "model-1"})
    for name, text in _TEXTS:
        yield Question(f"console: text, {name}", visitor, f"{home}logs", {"q": text})
    for period in ("24h", "30d"):
        yield Question(f"console: model, {period}", visitor, f"{home}models/echo", {"period": period})
    compared = "?model=echo&model=echo-fast&model=free"
    yield Question("console: comparison", visitor, f"{home}models/compare{compared}", {})


def _filters() -> list[tuple[str, dict[str, str]]]:
    unused = {"model": "never-used", "provider": "never", "source": "never", "finishReason": "nope"}
    return [
        ("common model", {"model": "model-0"}),
        ("rare model", {"model": log_rows.RARE_MODEL}),
        ("unused model", {"model": unused["model"]}),
        ("common provider", {"provider": "provider-1"}),
        ("rare provider", {"provider": log_rows.RARE_PROVIDER}),
        ("provider/model", {"model": f"{log_rows.RARE_PROVIDER}/{log_rows.RARE_MODEL}"}),
        ("finish reason", {"finishReason": "tool_calls"}),
        ("rare finish reason", {"finishReason": "never"}),
        ("errors", {"unifiedFinishReason": "upstream_error"}),
        ("rare errors", {"unifiedFinishReason": "gateway_error"}),
        ("rare unified reason", {"unifiedFinishReason": "unknown"}),
        ("common source", {"source": "https://app-0.example"}),
        ("rare source", {"source": log_rows.RARE_SOURCE}),
        ("header", {"customHeaderKey": "team"}),
        ("header and value", {"customHeaderKey": "customer", "customHeaderValue": "customer-19999"}),
        ("rare header", {"customHeaderKey": log_rows.RARE_HEADER}),
        ("any header with value", {"customHeaderValue": "customer-19999"}),
        (
            "model, provider, errors",
            {"model": "model-3", "provider": "provider-3", "unifiedFinishReason": "client_error"},
        ),
        ("model and rare source", {"model": "model-0", "source": log_rows.RARE_SOURCE}),
        ("common, never together", {"model": "model-0", "provider": "provider-1"}),
    ]


def plan_of(question: Question) -> str:
    """Return how the database answers a question's last two statements."""
    with CaptureQueriesContext(connection) as captured:
        answer = question.ask()
        if answer.streaming:
            return ""
    plans = []
    with connection.cursor() as cursor:
        for statement in captured.captured_queries:
            if "request_log" in statement["sql"] or "activity" in statement["sql"]:
                cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) {statement['sql']}")
                plans.append("\n".join(line for (line,) in cursor.fetchall()))
    return "\n--\n".join(plans)


def write(cast: Cast) -> dict[str, float]:
    """Return how long it takes to write rows of yesterday as the settler does; they are not kept."""
    keys = list(ApiKey.objects.select_related("project")[:20])
    moment = datetime.now(UTC) - timedelta(days=1)
    entries = [
        entry(
            keys[number % len(keys)],
            id=id_at(moment),
            used_model=f"model-{number % 40}",
            finish_reason="stop" if number % 7 else "tool_calls",
            custom_headers={"team": f"team-{number % 30}"} if number % 4 == 0 else None,
            source="web" if number % 3 else None,
        )
        for number in range(WRITTEN)
    ]
    times = []
    for start in range(0, WRITTEN, BATCH):
        started = time.perf_counter()
        with transaction.atomic():
            writer.write(entries[start : start + BATCH])
        times.append((time.perf_counter() - started) * 1000)
    RequestLog.objects.filter(id__in=[one.id for one in entries], created_at__gte=moment - timedelta(days=1)).delete()
    return {"median": statistics.median(times), "slowest": max(times), "per_second": WRITTEN / sum(times) * 1000}


def show(figures: list[dict[str, Any]]) -> None:
    """Print the table."""
    print(f"\n{'':44}{'median ms':>10}{'slowest':>10}{'rows':>8}{'bytes':>12}")
    for row in figures:
        times = f"{row['median']:>10.1f}{row['slowest']:>10.1f}"
        print(f"{row['question']:44}{times}{row['rows']:>8}{row.get('bytes', 0):>12}")
    print(f"written: {figures[-1].get('per_second', 0):.0f} rows a second")
