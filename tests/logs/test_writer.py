"""The log's writer: each request once, whatever its record says."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from threading import Barrier
from typing import Any

import msgspec
import pytest
from django.db import DatabaseError, connection, transaction

from apps.kernel.ids import new_id, time_of
from apps.kernel.money import LARGEST
from apps.logs import partitions, writer
from apps.logs.entry import Entry
from apps.logs.models import RequestLog
from apps.logs.writer import COLUMNS
from tests.logs.entries import FULL, entry, id_at, write

pytestmark = pytest.mark.django_db


# Findings of guardrails, amounts for limits and outcomes of provider calls have tables of their own.
FIELDS = tuple(name for name in Entry.__struct_fields__ if name not in {"violations", "limits", "outcomes"})


def only() -> RequestLog:
    """Return the one row there is."""
    return RequestLog.objects.get()


def test_an_entry_is_kept_to_the_last_digit() -> None:
    """Every field of it; the time is the one inside the id."""
    record = entry(**FULL)
    assert {name for name in FIELDS if getattr(record, name) is None} == set()
    with transaction.atomic():
        assert writer.write([record]) == {record.id}
    row = only()
    assert {name: getattr(row, name) for name in FIELDS} == {name: getattr(record, name) for name in FIELDS}
    assert row.created_at == time_of(record.id)
    assert set(COLUMNS) == {"created_at", *FIELDS}


def test_absent_is_null() -> None:
    write(entry())
    row = only()
    assert {name for name in COLUMNS if getattr(row, name) is None} == {
        name for name in FIELDS if getattr(entry(), name) is None
    }
    with connection.cursor() as cursor:
        cursor.execute("SELECT messages IS NULL, content IS NULL FROM request_log")
        assert cursor.fetchone() == (True, True)


def test_a_request_is_written_once() -> None:
    first = entry(content="first")
    again = msgspec.structs.replace(first, content="again")
    assert (writer.write([first]), writer.write([again]), writer.write([again, entry(id=first.id)])) == (
        {first.id},
        set(),
        set(),
    )
    assert only().content == "first"


def test_nothing_is_written_for_nothing() -> None:
    assert writer.write([]) == set()


def test_a_batch_returns_what_was_new_in_it() -> None:
    old, new = entry(), entry()
    writer.write([old])
    assert writer.write([old, new]) == {new.id}
    assert RequestLog.objects.count() == 2


def test_the_workers_own_word_replaces_the_sweepers_once() -> None:
    own = entry(content="an answer", cost=Decimal("0.5"))
    swept = msgspec.structs.replace(own, swept=True, content=None, cost=None, unified_finish_reason="gateway_error")
    assert writer.write([swept]) == {own.id}
    assert (only().swept, only().cost) == (True, None)
    assert writer.write([swept]) == set()
    assert writer.write([own]) == {own.id}
    assert writer.write([own]) == set()
    assert writer.write([swept]) == set()
    row = only()
    assert (row.swept, row.content, row.cost, row.unified_finish_reason) == (
        False,
        "an answer",
        Decimal("0.5"),
        "completed",
    )


@pytest.mark.parametrize(("batch", "kept"), [("s1", "1"), ("1s", "1"), ("12", "2"), ("1s2s", "2"), ("ss", "s")])
def test_of_one_batch_the_last_word_that_is_not_the_sweepers_counts(batch: str, kept: str) -> None:
    identifier = new_id()
    assert writer.write([entry(id=identifier, content=word, swept=word == "s") for word in batch]) == {identifier}
    assert only().content == kept


def test_a_missing_partition_is_made() -> None:
    moment = datetime(2030, 6, 1, 12, tzinfo=UTC)
    assert moment.date() not in partitions.existing()
    write(entry(id=id_at(moment)))
    assert only().created_at == moment


REPLACED = "\N{REPLACEMENT CHARACTER}"
HOSTILE = [
    ("content", "a\0b", f"a{REPLACED}b"),
    ("content", "a\ud800b", "a?b"),
    ("used_model", "x" * 300, "x" * 255),
    ("requested_model", "世" * 300, "世" * 255),
    ("source", "a\0" * 200, f"a{REPLACED}" * 127 + "a"),
    ("messages", [{"role": "us\0er", "content": "\0"}], [{"role": f"us{REPLACED}er", "content": REPLACED}]),
    ("messages", {"\0key": ["\ud83d", "plain"]}, {f"{REPLACED}key": ["?", "plain"]}),
    # Text that only looks like an escape is left alone.
    ("messages", "a\\u0000b", "a\\u0000b"),
    ("messages", float("nan"), None),
    ("messages", [float("inf"), 10**400, -(10**5000), 10**300], [None, None, None, 10**300]),
    ("custom_headers", {"a": "\0"}, {"a": REPLACED}),
    ("error_details", "\0", REPLACED),
    ("prompt_tokens", 10**30, 2**63 - 1),
    ("prompt_tokens", -(10**30), -(2**63)),
    ("response_size", 2**40, 2**31 - 1),
    ("duration", -(2**40), -(2**31)),
    ("status_code", 10**6, 2**15 - 1),
    ("status_code", -1, 0),
    ("temperature", float("nan"), None),
    ("top_p", float("-inf"), None),
    ("cost", Decimal("1e40"), LARGEST),
    ("cost", Decimal("-1e40"), -LARGEST),
    ("cost", Decimal("NaN"), Decimal(0)),
    ("cost", Decimal("0.0000000000005"), Decimal(0)),
    ("cost", Decimal("0.0000000000015"), Decimal("0.000000000002")),
]


@pytest.mark.parametrize(("field", "value", "kept"), HOSTILE)
def test_what_the_database_does_not_take_is_brought_into_a_form_that_it_does(field: str, value: Any, kept: Any) -> None:
    record, neighbor = entry(**{field: value}), entry(content="untouched")
    assert writer.write([record, neighbor]) == {record.id, neighbor.id}
    row = RequestLog.objects.get(id=record.id)
    assert getattr(row, field) == kept
    assert row.error_details == (REPLACED if field == "error_details" else None)
    assert RequestLog.objects.get(id=neighbor.id).content == "untouched"


def nested(depth: int) -> Any:
    """Return a list in a list in a list …"""
    value: Any = "core"
    for _ in range(depth):
        value = [value]
    return value


def test_json_is_kept_as_deep_as_it_can_be_read() -> None:
    write(entry(messages=nested(500)))
    assert only().messages == nested(500)


def test_json_nested_deeper_than_that_is_cut_off() -> None:
    write(entry(messages=nested(100_000)))
    text = str(only().messages)
    assert "nested too deep" in text
    assert text.count("[") == 201 + 1


def test_what_is_no_json_at_all_costs_its_entry_the_content_and_nothing_else() -> None:
    record = entry(**FULL | {"messages": object()})
    neighbor = entry(content="untouched")
    assert writer.write([record, neighbor]) == {record.id, neighbor.id}
    _assert_degraded(record, "TypeError")


@pytest.fixture
def _fastidious(db: None) -> None:
    """A database that refuses the content `poison`, as it would refuse content that no test foresees."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            CREATE FUNCTION refuse_poison() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN
                IF NEW.content = 'poison' THEN
                    RAISE EXCEPTION 'refused' USING ERRCODE = 'untranslatable_character';
                ELSIF NEW.content = 'away' THEN
                    RAISE EXCEPTION 'not now' USING ERRCODE = 'cannot_connect_now';
                END IF;
                RETURN NEW;
            END $$;
            CREATE TRIGGER refuse_poison BEFORE INSERT ON request_log FOR EACH ROW EXECUTE FUNCTION refuse_poison();
            """
        )


@pytest.mark.usefixtures("_fastidious")
def test_a_record_that_the_database_refuses_loses_its_content_and_holds_up_no_other() -> None:
    record = entry(**FULL | {"content": "poison"})
    neighbors = [entry(content="before"), entry(content="after")]
    assert writer.write([neighbors[0], record, neighbors[1]]) == {record.id, *(one.id for one in neighbors)}
    _assert_degraded(record, "SQLSTATE 22P05")
    assert list(RequestLog.objects.exclude(id=record.id).order_by("id").values_list("content", flat=True)) == [
        "before",
        "after",
    ]
    assert writer.write([record]) == set()


@pytest.mark.usefixtures("_fastidious")
def test_a_refusal_that_is_not_about_the_record_is_raised_and_nothing_is_written() -> None:
    with pytest.raises(DatabaseError, match="not now"), transaction.atomic():
        writer.write([entry(), entry(content="away")])
    assert RequestLog.objects.count() == 0


def _assert_degraded(record: Entry, reason: str) -> None:
    row = RequestLog.objects.get(id=record.id)
    assert row.error_details == {"code": "content_not_stored", "reason": reason}
    lost = {
        *("messages", "content", "reasoning_content", "prices", "response_format", "tools", "tool_choice"),
        *("tool_results", "custom_headers", "routing_metadata"),
        *("refusal", "tool_calls", "tool_call_counts", "choices", "citations", "media", "media_data"),
    }
    assert {name for name in lost if getattr(row, name) is not None} == set()
    kept = set(FIELDS) - lost - {"error_details"}
    assert {name: getattr(row, name) for name in kept} == {name: getattr(record, name) for name in kept}


@pytest.fixture
def _slow(transactional_db: None) -> Iterator[None]:
    """A database that takes 5 ms a row, so that writers do meet."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            CREATE FUNCTION take_time() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN PERFORM pg_sleep(0.005); RETURN NEW; END $$;
            CREATE TRIGGER take_time BEFORE INSERT ON request_log FOR EACH ROW EXECUTE FUNCTION take_time();
            """
        )
        yield
        cursor.execute("DROP FUNCTION take_time CASCADE")


@pytest.mark.usefixtures("_slow")
def test_writers_that_meet_on_the_same_records_write_each_once() -> None:
    records = [entry() for _ in range(50)]
    partitions.ensure({time_of(record.id).date() for record in records})
    start = Barrier(4)

    def settle(number: int) -> int:
        start.wait()
        try:
            with transaction.atomic():
                return len(writer.write(records if number % 2 else records[::-1]))
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(settle, range(4))) == [0, 0, 0, 50]
    assert RequestLog.objects.count() == 50


@pytest.mark.django_db(transaction=True)
def test_a_batch_goes_with_its_transaction() -> None:
    record = entry()
    with transaction.atomic():
        writer.write([record])
        transaction.set_rollback(True)
    assert RequestLog.objects.count() == 0
    assert write(record) == [record.id]
    assert RequestLog.objects.count() == 1
