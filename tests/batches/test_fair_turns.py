"""Turns of batches: a crowd of one organization's keeps another's waiting for one piece at most, whatever is done."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError
from django.test import override_settings
from django.utils import timezone
from openai import OpenAI

from apps.batches import completion, line_runs, work
from apps.batches.completion import complete_some
from apps.batches.line_runs import LineJob, begin_lines
from apps.batches.models import Batch, BatchLine, BatchStatus, NativeJob
from apps.batches.native import jobs
from apps.batches.work import prepare_some
from tests.batches.batch_work import create, line, lines_in, work_all
from tests.responses.conftest import Clients, stranger
from tests.support.upstream import Caller

CROWD = 20


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.batches.input_lines.MAX_PIECE_LINES", 2)
    monkeypatch.setattr(completion, "MAX_PIECE_LINES", 2)
    monkeypatch.setattr(completion, "_READ_TOGETHER", 2)


@pytest.fixture
def other(keeper: Caller, clients: Clients) -> OpenAI:
    """The client of another organization."""
    return clients(stranger(keeper))


def make_crowd(client: OpenAI, count: int = CROWD, lines: int = 6) -> list[str]:
    """Create so many batches of one file; return their ids."""
    first = create(client, [line(str(number)) for number in range(lines)])
    given: dict[str, Any] = {"endpoint": first.endpoint, "completion_window": "24h"}
    again = [client.batches.create(input_file_id=first.input_file_id, **given) for _ in range(count - 1)]
    return [first.id, *(made.id for made in again)]


def turns_until(advance: Callable[[], bool], is_done: Callable[[], bool]) -> int:
    """Return after how many turns it is done."""
    for turn in range(1, 1000):
        assert advance()
        if is_done():
            return turn
    raise AssertionError("it was never done")


def status_of(batch_id: str) -> str:
    return Batch.objects.get(pk=batch_id).status


def test_a_crowd_of_batches_keeps_anothers_input_waiting_for_one_piece(openai: OpenAI, other: OpenAI) -> None:
    crowd = make_crowd(openai)
    assert prepare_some()
    small = create(other, [line("a")])
    assert turns_until(prepare_some, lambda: status_of(small.id) == BatchStatus.IN_PROGRESS) <= 2
    # A batch of the crowd goes on where it was, with all of its lines in order.
    assert turns_until(prepare_some, lambda: status_of(crowd[0]) == BatchStatus.IN_PROGRESS) <= 3
    positions = BatchLine.objects.filter(batch=crowd[0]).values_list("position", flat=True)
    assert sorted(positions) == [0, 1, 2, 3, 4, 5]


def test_two_organizations_inputs_take_turns(openai: OpenAI, other: OpenAI) -> None:
    one, two = create(openai, [line(str(n)) for n in range(8)]), create(other, [line(str(n)) for n in range(8)])
    read = []
    for _ in range(6):
        assert prepare_some()
        read.append((Batch.objects.get(pk=one.id).lines_read, Batch.objects.get(pk=two.id).lines_read))
    assert all(abs(first - second) <= 2 for first, second in read)
    assert read[-1] == (6, 6)


def test_an_input_that_another_worker_reads_is_passed_over(openai: OpenAI, other: OpenAI) -> None:
    held, small = create(openai, [line("a")]), create(other, [line("b")])
    with pytest.MonkeyPatch.context() as patch:
        # As a row is whose lock another transaction has.
        rows = work._first_of_each_organization
        patch.setattr(work, "_first_of_each_organization", lambda: ["batch_locked", *rows()])
        assert turns_until(prepare_some, lambda: status_of(small.id) == BatchStatus.IN_PROGRESS) <= 2
    assert status_of(held.id) in {BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS}


def test_a_crowd_of_results_keeps_anothers_waiting_for_one_piece(openai: OpenAI, other: OpenAI) -> None:
    crowd = make_crowd(openai, count=5)
    small = create(other, [line("a")])
    Batch.objects.filter(pk=small.id).update(created_at=timezone.now() + timedelta(hours=1))
    while prepare_some():
        pass
    BatchLine.objects.update(outcome="errored")
    assert turns_until(complete_some, lambda: status_of(small.id) == BatchStatus.COMPLETED) <= 2
    assert {status_of(batch_id) for batch_id in crowd} == {BatchStatus.FINALIZING}
    # No file of results shows, nor its id, before its last line is there.
    told = openai.batches.retrieve(crowd[0])
    assert (told.status, told.error_file_id) == ("finalizing", None)
    assert told.request_counts is not None
    assert told.request_counts.model_dump() == {"total": 6, "completed": 0, "failed": 6}
    assert {file.purpose for file in openai.files.list()} == {"batch"}
    while complete_some():
        pass
    told = openai.batches.retrieve(crowd[0])
    assert (told.status, BatchLine.objects.count()) == ("completed", 0)
    assert [error["custom_id"] for error in lines_in(openai, told.error_file_id)] == ["0", "1", "2", "3", "4", "5"]


def test_lines_that_expire_end_a_batch_at_a_time(openai: OpenAI, other: OpenAI) -> None:
    crowd = make_crowd(openai, count=5)
    small = create(other, [line("a")])
    while prepare_some():
        pass
    Batch.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    own = BatchLine.objects.filter(batch=small.id)
    assert turns_until(complete_some, lambda: own.get().outcome == "expired") <= 2
    assert BatchLine.objects.filter(batch__in=crowd, outcome="expired").count() <= 6


def test_each_round_of_work_does_a_piece_of_everything(
    openai: OpenAI, other: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches that are still to be read do not hold up results that are to be written."""
    small = create(other, [line("a")])
    while prepare_some():
        pass
    BatchLine.objects.update(outcome="errored")
    crowd = make_crowd(openai)

    def no_more() -> int:
        raise DatabaseError("one round is enough")

    monkeypatch.setattr(line_runs, "begin_lines", no_more)
    work.work(30)
    assert status_of(small.id) == BatchStatus.COMPLETED
    assert Batch.objects.get(pk=crowd[0]).lines_read == 2


@override_settings(BATCH_LINES_AT_ONCE=5)
def test_one_organizations_lines_leave_a_fifth_of_a_workers_room_to_others(
    openai: OpenAI, other: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LineJob, "start", lambda job: line_runs.JOBS.update({job.line.pk: job}))
    crowd = make_crowd(openai, count=3)
    while prepare_some():
        pass
    try:
        assert (begin_lines(), begin_lines()) == (4, 0)
        small = create(other, [line("a")])
        while prepare_some():
            pass
        assert begin_lines() == 1
        held = Counter(BatchLine.objects.exclude(lease_owner="").values_list("batch_id", flat=True))
        assert held == {crowd[0]: 4, small.id: 1}
    finally:
        line_runs.JOBS.clear()


def test_a_crowd_of_jobs_at_providers_keeps_anothers_waiting_for_one_look(
    openai: OpenAI, other: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small = create(openai, [line("a")]), create(other, [line("b")])
    now = timezone.now()
    for number, batch in enumerate([large] * CROWD + [small]):
        due = now - timedelta(hours=1) + timedelta(seconds=number)
        NativeJob.objects.create(batch_id=batch.id, created_at=now, next_look_at=due, status="running")
    looked_at: list[str] = []
    monkeypatch.setattr(jobs, "_advance", lambda job: looked_at.append(job.batch_id))
    for _ in range(4):
        assert jobs.advance_one()
    assert looked_at.index(small.id) <= 1
    # A worker looks at four at a time, of which one organization has three.
    monkeypatch.setitem(jobs._under_way, Batch.objects.get(pk=large.id).organization_id, 3)
    assert not jobs.advance_one()
    assert looked_at.count(large.id) == 3


def test_a_batch_that_is_cancelled_while_it_is_read_gets_no_more_lines(openai: OpenAI) -> None:
    made = create(openai, [line(str(number)) for number in range(6)])
    assert prepare_some()
    assert BatchLine.objects.count() == 2
    assert openai.batches.cancel(made.id).status == "cancelling"
    assert prepare_some()
    assert (BatchLine.objects.count(), status_of(made.id)) == (0, BatchStatus.FINALIZING)
    assert not prepare_some()
    work_all()
    told = openai.batches.retrieve(made.id)
    assert (told.status, told.in_progress_at) == ("cancelled", None)
    errors = lines_in(openai, told.error_file_id)
    assert [(error["custom_id"], error["error"]["code"]) for error in errors] == [
        (str(number), "batch_cancelled") for number in range(6)
    ]
    assert told.request_counts is not None
    assert told.request_counts.model_dump() == {"total": 6, "completed": 0, "failed": 6}


def test_pieces_begin_where_the_one_before_ended_wherever_chunks_are_cut(
    openai: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apps.batches.stored_files.CHUNK", 37)
    texts = [line("ä"), "", line("b", "ü" * 50), "  ", line("c"), line("d"), ""]
    told = work_on(openai, texts)
    assert told.status == "completed"
    assert [result["custom_id"] for result in lines_in(openai, told.output_file_id)] == ["ä", "b", "c", "d"]


def test_what_is_wrong_is_told_of_all_pieces_and_a_custom_id_is_found_again(openai: OpenAI) -> None:
    told = work_on(openai, [line("a"), line("b"), line("c"), line("a"), line("d"), "no", line("e"), line("f")])
    assert (told.status, BatchLine.objects.count()) == ("failed", 0)
    assert told.errors is not None
    assert [(error.code, error.line) for error in told.errors.data or []] == [
        ("duplicate_custom_id", 4),
        ("invalid_json_line", 6),
    ]


def test_a_byte_order_mark_is_no_part_of_the_first_line(openai: OpenAI) -> None:
    content = b"\xef\xbb\xbf" + b"\r\n".join(json.dumps(line(custom_id)).encode() for custom_id in "abc")
    file = openai.files.create(file=("lines.jsonl", content), purpose="batch")
    made = openai.batches.create(input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h")
    work_all()
    told = openai.batches.retrieve(made.id)
    assert told.status == "completed"
    assert [result["custom_id"] for result in lines_in(openai, told.output_file_id)] == ["a", "b", "c"]


def work_on(client: OpenAI, lines: list[Any]) -> Any:
    made = create(client, lines)
    work_all()
    return client.batches.retrieve(made.id)
