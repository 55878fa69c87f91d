"""Large batches and files: ended, put back and removed in pieces, whichever worker or request dies in between."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import openai as sdk
import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from gevent import GreenletExit
from openai import OpenAI

from apps.batches import batch_rows, completion, retention
from apps.batches.completion import complete_some
from apps.batches.models import Batch, BatchLine, FileChunk, NativeJob, StoredFile
from apps.batches.native import jobs, parked_lines
from apps.batches.work import prepare_some
from apps.logs.models import RequestLog
from tests.batches.batch_work import create, line, lines_in, upload, work_all
from tests.batches.native_work import OPENAI, asked, look, nothing_is_held
from tests.batches.test_batch_bounds import set_credits
from tests.batches.test_message_batches import ask, client_of
from tests.support.upstream import Caller

LINES, PIECE = 2_500, 1_000


def make_prepared(client: OpenAI, count: int = LINES) -> str:
    """Create a batch of so many lines, ready to be answered; return its id."""
    made = create(client, [line(str(number)) for number in range(count)])
    while prepare_some():
        pass
    assert BatchLine.objects.filter(batch=made.id, outcome="").count() == count
    return str(made.id)


def ended(outcome: str) -> int:
    return BatchLine.objects.filter(outcome=outcome).count()


def statements(queries: CaptureQueriesContext, start: str) -> int:
    """Return how many statements begin so."""
    return sum(query["sql"].startswith(start) for query in queries.captured_queries)


@pytest.fixture
def _pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_rows, "MAX_ENDED_LINES", PIECE)


@pytest.mark.usefixtures("_pieces")
def test_cancelling_ends_lines_in_pieces_after_the_answer(openai: OpenAI) -> None:
    batch_id = make_prepared(openai)
    told = openai.batches.cancel(batch_id)
    assert (told.status, ended("cancelled")) == ("cancelling", 0)
    counts = []
    for _ in range(3):
        assert complete_some()
        counts.append(ended("cancelled"))
    assert counts == [1_000, 2_000, 2_500]
    assert openai.batches.cancel(batch_id).status == "cancelling"
    work_all()
    told = openai.batches.retrieve(batch_id)
    assert (told.status, told.output_file_id) == ("cancelled", None)
    assert told.request_counts is not None
    assert told.request_counts.model_dump() == {"total": 2_500, "completed": 0, "failed": 2_500}
    assert [(one["custom_id"], one["error"]["code"]) for one in lines_in(openai, told.error_file_id)] == [
        (str(number), "batch_cancelled") for number in range(2_500)
    ]
    assert not RequestLog.objects.exists()


@pytest.mark.usefixtures("_pieces")
def test_a_worker_that_dies_while_it_ends_lines_is_followed_by_another(
    openai: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id = make_prepared(openai)
    openai.batches.cancel(batch_id)
    assert complete_some()
    end = completion.end_some_lines

    def end_and_die(*given: Any) -> int:
        end(*given)
        raise GreenletExit

    with monkeypatch.context() as patch:
        patch.setattr(completion, "end_some_lines", end_and_die)
        with pytest.raises(GreenletExit):
            complete_some()
    assert (ended("cancelled"), Batch.objects.get().status) == (1_000, "cancelling")
    work_all()
    told = openai.batches.retrieve(batch_id)
    assert told.request_counts is not None
    assert told.request_counts.model_dump() == {"total": 2_500, "completed": 0, "failed": 2_500}


@pytest.mark.usefixtures("_pieces")
def test_cancelling_a_message_batch_ends_requests_in_pieces(keeper: Caller) -> None:
    with client_of(keeper.token) as client:
        made = client.messages.batches.create(requests=[ask(str(number)) for number in range(LINES)])
        while prepare_some():
            pass
        assert client.messages.batches.cancel(made.id).processing_status == "canceling"
        assert ended("cancelled") == 0
        assert complete_some()
        told = client.messages.batches.retrieve(made.id)
        assert (told.processing_status, told.request_counts.processing) == ("canceling", 2_500)
        assert ended("cancelled") == 1_000
        work_all()
        told = client.messages.batches.retrieve(made.id)
        assert (told.processing_status, told.request_counts.canceled) == ("ended", 2_500)
        assert (told.request_counts.processing, told.request_counts.errored) == (0, 0)


@pytest.mark.usefixtures("_pieces")
def test_lines_beyond_the_window_expire_in_pieces(openai: OpenAI) -> None:
    batch_id = make_prepared(openai)
    Batch.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert complete_some()
    assert (ended("expired"), Batch.objects.get().status) == (1_000, "in_progress")
    work_all()
    told = openai.batches.retrieve(batch_id)
    assert told.request_counts is not None
    assert (told.status, told.request_counts.failed) == ("expired", 2_500)


def test_cancelling_ends_only_lines_that_no_worker_answers(openai: OpenAI) -> None:
    batch_id = make_prepared(openai, 3)
    BatchLine.objects.filter(position=1).update(lease_owner="another", lease_until="2100-01-01T00:00Z")
    openai.batches.cancel(batch_id)
    work_all()
    outcomes = list(BatchLine.objects.order_by("position").values_list("outcome", flat=True))
    assert (outcomes, Batch.objects.get().status) == (["cancelled", "", "cancelled"], "cancelling")


def test_lines_that_nothing_pays_for_end_in_pieces(
    keeper: Caller, openai: OpenAI, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.BATCH_LINES_AT_ONCE = 1
    monkeypatch.setattr(batch_rows, "MAX_ENDED_LINES", 3)
    batch_id = make_prepared(openai, 8)
    set_credits(keeper, "0")
    with CaptureQueriesContext(connection) as queries:
        work_all()
    # 7 lines beside the first, three at a time; the last statement finds none.
    assert statements(queries, 'UPDATE "batch_line" SET "outcome" = \'unpaid\'') == 3
    told = openai.batches.retrieve(batch_id)
    assert told.request_counts is not None
    assert told.request_counts.model_dump() == {"total": 8, "completed": 0, "failed": 8}


def test_lines_of_a_job_are_put_back_in_pieces_though_its_worker_dies(
    keeper: Caller, openai: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parked_lines, "MAX_TOGETHER", 2)
    made = create(openai, [asked(OPENAI, str(number), "batch=running") for number in range(5)])
    work_all()
    Batch.objects.update(expires_at=timezone.now())
    put_back, pieces = parked_lines.put_back_some, list[int]()

    def put_back_and_die(job: NativeJob) -> int:
        if len(pieces) == 1:
            pieces.append(0)
            raise GreenletExit
        pieces.append(put_back(job))
        return pieces[-1]

    monkeypatch.setattr(parked_lines, "put_back_some", put_back_and_die)
    job = NativeJob.objects.get()
    with pytest.raises(GreenletExit):
        jobs._end(job)
    states = BatchLine.objects.order_by("position").values_list("native_state", flat=True)
    assert list(states) == ["declined", "declined", "parked", "parked", "parked"]
    assert NativeJob.objects.get().status == "running"
    jobs._end(job)
    assert (pieces, NativeJob.objects.get().status) == ([2, 0, 2, 1], "ended")
    look()
    told = openai.batches.retrieve(made.id)
    assert (told.status, told.request_counts.failed) == ("expired", 5)
    assert nothing_is_held(keeper)


@pytest.fixture
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.batches.stored_files.CHUNK", 10)
    monkeypatch.setattr(retention, "MAX_CHUNKS", 4)


@pytest.mark.usefixtures("_small_chunks")
def test_a_file_is_deleted_in_pieces(openai: OpenAI) -> None:
    file_id = upload(openai, ["x" * 98])
    assert FileChunk.objects.count() == 10
    with CaptureQueriesContext(connection) as queries:
        assert openai.files.delete(file_id).deleted
    # Four, four, two; the others find none left.
    assert statements(queries, 'DELETE FROM "stored_file_chunk" WHERE "stored_file_chunk"."id" IN') == 3
    assert (StoredFile.objects.count(), FileChunk.objects.count()) == (0, 0)


@pytest.mark.usefixtures("_small_chunks")
def test_a_deletion_that_is_cut_short_hides_the_file_and_is_completed_by_the_next_purge(
    openai: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_id = upload(openai, ["x" * 98])
    delete, pieces = retention.delete_piece, list[int]()

    def delete_and_fail(*given: Any) -> int:
        if pieces:
            raise OperationalError("the database went away")
        pieces.append(delete(*given))
        return pieces[-1]

    with monkeypatch.context() as patch:
        patch.setattr(retention, "delete_piece", delete_and_fail)
        assert openai.files.delete(file_id).deleted
    assert (StoredFile.objects.count(), FileChunk.objects.count()) == (1, 6)
    with pytest.raises(sdk.NotFoundError):
        openai.files.retrieve(file_id)
    assert openai.files.list().data == []
    assert retention.purge(timezone.now()) == 1
    assert (StoredFile.objects.count(), FileChunk.objects.count()) == (0, 0)


def test_a_batch_is_removed_in_pieces_and_no_worker_goes_on_with_it(
    openai: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MAX_LINES", 2)
    make_prepared(openai, 5)
    delete, seen = retention.delete_piece, list[tuple[int, str]]()

    def delete_and_see(*given: Any) -> int:
        if found := Batch.objects.first():
            seen.append((BatchLine.objects.count(), found.status))
        return delete(*given)

    monkeypatch.setattr(retention, "delete_piece", delete_and_see)
    Batch.objects.update(kept_until=timezone.now())
    assert retention.purge(timezone.now()) == 1
    assert seen == [(5, "failed"), (3, "failed"), (1, "failed"), (0, "failed")]
    assert not any(kind.objects.exists() for kind in (Batch, BatchLine))
