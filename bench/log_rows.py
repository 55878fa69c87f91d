"""Rows of the log by the million, made inside PostgreSQL: organizations of very different sizes, weeks of days."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from django.db import connection

from apps.logs import partitions, rollup, traffic
from apps.logs.models import PerformanceSlot
from apps.logs.performance import FIRST_TOKEN_STEPS, SPEED_STEPS
from apps.organizations.models import Organization, Plan, Project, User
from tests.support.cast import default_project, make_key, make_organization, make_user

ORGANIZATIONS, DAYS = 20, 60
# The first organization has half of all rows, the next half of the rest, and so on: the last has a handful.
_LARGEST = 0.5
# Values that occur once in all the log, in the largest organization's oldest day.
RARE_MODEL, RARE_SOURCE, RARE_HEADER, RARE_PROVIDER = "only-once", "only-once.example", "only-once", "rarely"

# A session of the largest organization, with a turn every hour; words of kept answers: in each of them, and in one.
SESSION, COMMON_WORD, RARE_WORD = "nightly-agent", "answer", "quagga"
# Models whose performance is filled in, and providers of each.
_MEASURED_MODELS, _MEASURED_PROVIDERS = 40, 9


@dataclass(frozen=True)
class Cast:
    """The owners of rows: a user who sees everything, and the organizations, the largest first."""

    user: User
    organizations: list[Organization]


def make_cast() -> Cast:
    """Make a user, organizations, and three projects with two keys each in every one of them."""
    user = make_user("Olivia")
    organizations = []
    for number in range(ORGANIZATIONS):
        organization = make_organization(owner=user, name=f"Organization {number}", plan=Plan.ENTERPRISE)
        others = [Project.objects.create(organization=organization, name=f"Project {one}") for one in (2, 3)]
        for project in (default_project(organization), *others):
            for key in (1, 2):
                make_key(user, project, f"key {key}")
        # As the rows are: see `_ROWS`.
        level = "retain" if number % 9 == 0 else "metadata" if number % 3 == 2 else "none"
        Organization.objects.filter(pk=organization.pk).update(retention_level=level)
        organizations.append(organization)
    return Cast(user, organizations)


def fill(count: int, today: date, tell: Callable[[str], None]) -> None:
    """Write `count` rows into as many partitions as there are days, and what they add up to.

    Indexes are made after the rows, a day at a time.
    """
    with connection.cursor() as cursor:
        cursor.execute(_KEYS)
        for age in reversed(range(DAYS)):
            day = today - timedelta(days=age)
            name = partitions.name_of(day)
            cursor.execute(f"DROP TABLE IF EXISTS {name}")
            cursor.execute(f"CREATE TABLE {name} (LIKE request_log INCLUDING DEFAULTS INCLUDING CONSTRAINTS)")
            cursor.execute(_ROWS.format(name=name), {"count": count // DAYS, "day": _begin_of(day), "share": _LARGEST})
            if age == DAYS - 1:
                cursor.execute(_RARE.format(name=name), [RARE_MODEL, RARE_PROVIDER, RARE_SOURCE, RARE_HEADER])
                cursor.execute(_RARE_WORD.format(name=name), [f" {RARE_WORD}"])
            cursor.execute(_SESSIONS.format(name=name), [SESSION])
            cursor.execute(
                f"ALTER TABLE request_log ATTACH PARTITION {name} "
                f"FOR VALUES FROM ('{day} 00:00+00') TO ('{day + timedelta(days=1)} 00:00+00')"
            )
            cursor.execute(f"VACUUM (ANALYZE) {name}")
            cursor.execute(f"{rollup._ADD} {name} GROUP BY {rollup._KEY}")
            traffic.append_table(cursor, name)
            tell(f"{name} ")
        cursor.execute("ANALYZE request_log")
        cursor.execute(_LAST_YEAR)
    _fill_performance(datetime.combine(today, datetime.min.time(), UTC))
    tell("folding ")
    while rollup.roll_up():
        pass
    traffic.fold()
    traffic.expire(datetime.now(UTC))
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE) logs_activityday")
        cursor.execute("VACUUM (ANALYZE) logs_trafficslot")


def _fill_performance(today: datetime) -> None:
    """Fill the slots of all models and providers, and those of models of the catalog."""
    names = [*(f"model-{number}" for number in range(_MEASURED_MODELS)), "echo", "echo-fast", "free"]
    steps = {"first_token_steps": [3] * FIRST_TOKEN_STEPS[1], "speed_steps": [3] * SPEED_STEPS[1]}
    for minutes, count in ((60, 8 * 24), (1440, 90)):
        PerformanceSlot.objects.bulk_create(
            (
                PerformanceSlot(
                    minutes=minutes,
                    starts_at=today - number * timedelta(minutes=minutes),
                    model=name,
                    provider="sandbox" if provider == 0 else f"provider-{provider}",
                    succeeded=300,
                    failed=2,
                    **steps,
                )
                for name in names
                for provider in range(_MEASURED_PROVIDERS)
                for number in range(count)
            ),
            batch_size=1_000,
        )


def describe_text_index() -> str:
    """Return the size of the indexes for text, in all and for each row with content."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT sum(pg_relation_size(indexrelid)), (
                SELECT count(*) FROM request_log
                WHERE retention_level = 'retain' AND created_at < date_trunc('day', now())
            ) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
            WHERE relname LIKE 'request\\_log\\_%\\_text'
            """
        )
        size, rows = (int(number or 0) for number in cursor.fetchone())
    return f"{size / 1e6:.0f} MB, {size / max(rows, 1):.0f} bytes for each of {rows} rows"


def _begin_of(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def middle_id(organization_id: UUID) -> UUID:
    """Return the id of a row about halfway through an organization's time."""
    noon = datetime.now(UTC) - timedelta(days=DAYS // 2)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM request_log WHERE organization_id = %s AND created_at >= %s ORDER BY created_at LIMIT 1",
            [organization_id, noon],
        )
        return UUID(str(cursor.fetchone()[0]))


_KEYS = """
    CREATE TEMPORARY TABLE bench_key AS
    SELECT key.id AS api_key_id, project.id AS project_id, organization.id AS organization_id,
        dense_rank() OVER (ORDER BY organization.created_at, organization.id)::int AS size,
        (row_number() OVER (PARTITION BY organization.id ORDER BY key.created_at, key.id))::int AS place
    FROM keys_apikey key JOIN organizations_project project ON project.id = key.project_id
    JOIN organizations_organization organization ON organization.id = project.organization_id;
    ANALYZE bench_key
"""
# Most organizations keep no content; one in three keeps parameters, one in nine the texts.
_ROWS = """
    INSERT INTO {name} (id, created_at, request_id, organization_id, project_id, api_key_id, provider_key_id, route,
        duration, time_to_first_token, requested_model, used_model, used_provider, underlying_model, messages, content,
        response_size, prompt_tokens, completion_tokens, total_tokens, cached_tokens, cost, input_cost, output_cost,
        unpriced, prices, temperature, finish_reason, unified_finish_reason, status_code, has_error, canceled,
        error_details, streamed, cached, custom_headers, mode, used_mode, source, routing_metadata, swept,
        retention_level)
    SELECT
        (substr(hex, 1, 8) || '-' || substr(hex, 9, 4) || '-7' || substr(noise, 1, 3) || '-8' || substr(noise, 4, 3)
            || '-' || substr(noise, 7, 12))::uuid,
        created_at, 'req-' || n, key.organization_id, key.project_id, key.api_key_id, NULL, 'chat_completions',
        200 + (c * 9000)::int, 100 + (c * 900)::int, 'model-' || model, 'model-' || model, 'provider-' || model %% 9,
        'model-' || model || '-2026-08-01',
        CASE WHEN level = 2 THEN
            jsonb_build_array(jsonb_build_object('role', 'user', 'content', words.prompt)) END,
        CASE WHEN level = 2 THEN 'An answer of words: ' || words.prompt END,
        1500, (c * 4000)::int, (d * 900)::int, (c * 4000)::int + (d * 900)::int, 0,
        round((c * 0.01)::numeric, 12), round((c * 0.006)::numeric, 12), round((c * 0.004)::numeric, 12), false,
        '{{"input": "2.5", "output": "10", "cached": "1.25"}}',
        CASE WHEN level > 0 THEN 0.7 END,
        CASE WHEN level > 0 THEN CASE WHEN e < 0.85 THEN 'stop' WHEN e < 0.95 THEN 'tool_calls' ELSE 'length' END END,
        CASE WHEN f < 0.015 THEN 'upstream_error' WHEN f < 0.02 THEN 'client_error' WHEN f < 0.0202 THEN 'gateway_error'
            WHEN e < 0.85 THEN 'completed' WHEN e < 0.95 THEN 'tool_calls' ELSE 'length_limit' END,
        CASE WHEN f < 0.015 THEN 502 WHEN f < 0.02 THEN 400 ELSE 200 END, f < 0.0202, false,
        CASE WHEN f < 0.0202 THEN '{{"status": 502, "message": "the provider had an error"}}'::jsonb END,
        c < 0.6, d < 0.05,
        CASE WHEN level > 0 AND e < 0.5 THEN
            jsonb_build_object(
                'team', 'team-' || (a * 30)::int, 'customer', 'customer-' || (power(d, 3) * 20000)::int) END,
        'credits', CASE WHEN c < 0.8 THEN 'credits' ELSE 'api-keys' END,
        CASE WHEN level > 0 AND d < 0.6 THEN 'https://app-' || (power(e, 2) * 40)::int || '.example' END,
        CASE WHEN level > 0 THEN jsonb_build_object('selectedProvider', 'provider-' || model %% 9, 'attempts', 1) END,
        false, CASE level WHEN 0 THEN 'none' WHEN 1 THEN 'metadata' ELSE 'retain' END
    FROM (
        SELECT n, created_at, lpad(to_hex((extract(epoch FROM created_at) * 1000)::bigint), 12, '0') AS hex,
            md5(n::text || a::text) AS noise, (power(b, 4) * 40)::int AS model, a, c, d, e, f,
            least(20, 1 + floor(ln(greatest(s, 1e-9)) / ln(%(share)s)))::int AS size,
            1 + floor(power(k, 1.5) * 6)::int AS place
        FROM (
            SELECT n, random() AS a, random() AS b, random() AS c, random() AS d, random() AS e, random() AS f,
                random() AS s, random() AS k,
                %(day)s + (n * 86400000::bigint / (%(count)s + 1)) * interval '1 millisecond' AS created_at
            FROM generate_series(1, %(count)s) AS n
        ) AS dice
    ) AS made
    JOIN bench_key AS key USING (size, place)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN size %% 9 = 1 THEN 2 WHEN size %% 3 = 0 THEN 1 ELSE 0 END AS level
    ) AS kept
    CROSS JOIN LATERAL (
        -- Forty words of twenty thousand, the first ones the most frequent. Naming the row makes others for each.
        SELECT CASE WHEN level = 2 THEN (
            SELECT string_agg('word' || (power(random(), 3) * 20000)::int, ' ') FROM generate_series(1, 40 + n - n)
        ) END AS prompt
    ) AS words
"""
_RARE_WORD = """
    UPDATE {name} SET content = content || %s WHERE id = (
        SELECT row.id FROM {name} AS row JOIN bench_key USING (api_key_id)
        WHERE size = 1 AND retention_level = 'retain' LIMIT 1
    )
"""
_SESSIONS = """
    UPDATE {name} SET session_id = %s, user_agent = 'bench/1' WHERE id IN (
        SELECT DISTINCT ON (date_trunc('hour', row.created_at)) row.id FROM {name} AS row
        JOIN bench_key USING (api_key_id) WHERE size = 1 ORDER BY date_trunc('hour', row.created_at), row.id
    )
"""
_RARE = """
    UPDATE {name} SET used_model = %s, requested_model = used_model, used_provider = %s, source = %s,
        custom_headers = jsonb_build_object(%s::text, 'yes'), finish_reason = 'never', unified_finish_reason = 'unknown'
    WHERE id = (SELECT row.id FROM {name} AS row JOIN bench_key USING (api_key_id) WHERE size = 1 AND place = 1 LIMIT 1)
"""
# The days before those of the log are like these.
_LAST_YEAR = f"""
    INSERT INTO logs_activitydelta ({rollup._NAMES})
    SELECT date - {DAYS} * ago, {rollup._NAMES.partition(", ")[2]} FROM logs_activitydelta, generate_series(1, 5) AS ago
"""
