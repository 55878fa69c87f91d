"""The log's partitions: made ahead and on demand, once, and dropped whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from threading import Barrier

import pytest
from django.core.management import call_command
from django.db import connection, transaction

from apps.logs import partitions
from apps.logs.models import RequestLog
from apps.logs.tasks import make_partitions
from tests.logs.entries import entry, id_at, write

DAY = date(2031, 3, 4)
NOON = datetime(2031, 3, 4, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _no_partitions(db: None) -> None:
    partitions.drop_before(date.max)


def test_the_table_is_what_the_model_says() -> None:
    """It is made by hand, and must not drift."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull FROM pg_attribute
            WHERE attrelid = 'request_log'::regclass AND attnum > 0 AND NOT attisdropped
            """
        )
        columns = {name: (kind.replace("character varying", "varchar"), null) for name, kind, null in cursor.fetchall()}
    fields = RequestLog._meta.concrete_fields
    assert columns == {
        field.column: ((field.db_type(connection) or "").replace("numeric(24, 12)", "numeric(24,12)"), field.null)
        for field in fields
    }


def test_the_key_and_the_indexes_are_on_every_partition() -> None:
    partitions.ensure([DAY])
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, "request_log")
        inherited = connection.introspection.get_constraints(cursor, "request_log_20310304")
    [key] = [one["columns"] for one in constraints.values() if one["primary_key"]]
    assert key == ["created_at", "id"]
    named = {index.name for index in RequestLog._meta.indexes}
    assert named <= set(constraints)
    assert sorted(one["columns"] for one in inherited.values() if one["index"] or one["primary_key"]) == sorted(
        one["columns"] for one in constraints.values() if one["index"] or one["primary_key"]
    )


@pytest.mark.django_db
def test_statistics_are_kept_of_columns_that_queries_compare() -> None:
    """The rest would take most of the time of an ANALYZE: their values are long, or differ in each row."""
    [day] = partitions.ensure([date(2031, 5, 1)])
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND attstattarget = 0",
            [partitions.name_of(day)],
        )
        without = {name for (name,) in cursor.fetchall()}
        cursor.execute(
            "SELECT DISTINCT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)"
            " WHERE indrelid = %s::regclass",
            [partitions.name_of(day)],
        )
        indexed = {name for (name,) in cursor.fetchall()}
    assert without >= {"messages", "content", "routing_metadata", "cost", "prompt_tokens", "temperature"}
    assert not without & (indexed | {"used_model", "used_provider", "has_error", "unified_finish_reason"})


def test_upcoming_days_are_yesterday_to_a_week_ahead_in_utc() -> None:
    just_past_midnight_in_tokyo = datetime.fromisoformat("2031-03-05T00:30+09:00")
    days = partitions.upcoming(just_past_midnight_in_tokyo)
    assert days == [DAY + timedelta(days=offset) for offset in range(-1, 8)]


def test_partitions_are_made_once() -> None:
    assert partitions.ensure([DAY, DAY + timedelta(days=1), DAY]) == [DAY, DAY + timedelta(days=1)]
    assert partitions.ensure([DAY]) == []
    assert partitions.existing() == [DAY, DAY + timedelta(days=1)]


@pytest.mark.parametrize(
    "moment", [datetime(2031, 3, 4, tzinfo=UTC), datetime(2031, 3, 4, 23, 59, 59, 999000, tzinfo=UTC)]
)
def test_a_partition_holds_its_utc_day(moment: datetime) -> None:
    partitions.ensure([DAY - timedelta(days=1), DAY, DAY + timedelta(days=1)])
    write(entry(id=id_at(moment)))
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableoid::regclass::text, created_at FROM request_log")
        assert cursor.fetchall() == [("request_log_20310304", moment)]


@pytest.mark.django_db(transaction=True)
def test_any_number_may_make_them_at_once() -> None:
    start = Barrier(4)

    def make(_: int) -> int:
        start.wait()
        try:
            return len(partitions.ensure(partitions.upcoming(NOON)))
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(make, range(4))) == [0, 0, 0, 9]
    assert partitions.existing() == partitions.upcoming(NOON)


@pytest.mark.django_db(transaction=True)
def test_making_one_waits_for_no_writer_and_no_reader() -> None:
    partitions.ensure([DAY])
    with transaction.atomic():
        write(entry(id=id_at(NOON)))
        list(RequestLog.objects.all())
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(_make_next_day).result(timeout=10) == [DAY + timedelta(days=1)]


@pytest.mark.django_db(transaction=True)
def test_a_partition_in_use_is_left_to_the_next_time() -> None:
    partitions.ensure([DAY])
    with transaction.atomic():
        list(RequestLog.objects.filter(created_at__date=DAY))
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(_drop_all).result(timeout=10) == []
    assert partitions.existing() == [DAY]
    assert partitions.drop_before(DAY + timedelta(days=1)) == [DAY]


def test_a_drop_spares_the_day_itself() -> None:
    partitions.ensure([DAY - timedelta(days=1), DAY])
    assert partitions.drop_before(DAY) == [DAY - timedelta(days=1)]
    assert partitions.existing() == [DAY]


def test_the_command_and_the_task_make_what_is_missing() -> None:
    first, second = StringIO(), StringIO()
    call_command("make_partitions", stdout=first)
    call_command("make_partitions", stdout=second)
    days = partitions.upcoming(datetime.now(UTC))
    assert first.getvalue() == f"made {', '.join(map(str, days))}\n"
    assert second.getvalue() == "every partition is there\n"
    partitions.drop_before(date.max)
    make_partitions()
    assert partitions.existing() == days


def _make_next_day() -> list[date]:
    try:
        return partitions.ensure([DAY + timedelta(days=1)])
    finally:
        connection.close()


def _drop_all() -> list[date]:
    try:
        return partitions.drop_before(date.max)
    finally:
        connection.close()
