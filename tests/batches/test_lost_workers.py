"""Lines whose worker is lost: taken up by another, each told and charged once, whenever it happened."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from gevent import GreenletExit
from openai import OpenAI

from apps.batches import completion, line_call, line_runs
from apps.batches.line_runs import LineJob
from apps.batches.models import Batch, BatchLine, FileChunk, StoredFile
from apps.batches.work import work
from apps.billing import reservations, worker_leases
from apps.billing.models import LedgerEntry
from apps.billing.reservations import RateLimit
from apps.billing.worker_leases import worker_name
from apps.gateway.access import policy
from apps.gateway.run import ChatRun
from apps.gateway.settlement.settle import sweep
from apps.kernel.valkey.redis import client
from apps.keys.models import ApiKey
from apps.logs.models import RequestLog
from tests.batches.batch_work import create, line, lines_in, work_all
from tests.support.upstream import Caller, settle_all


def become_another_worker() -> None:
    """Leave the dead worker's name behind, with what its leases and its reservations stand for."""
    line_runs.JOBS.clear()
    worker_leases.expire_lease(worker_name())
    worker_name.cache_clear()
    BatchLine.objects.filter(outcome="").update(lease_until=timezone.now())


def die(*_: Any, **__: Any) -> Any:
    """End as a process does that is killed: nothing of it runs any more."""
    for job in line_runs.JOBS.values():
        job.switch.is_abandoned = True
    raise GreenletExit


def set_rate(caller: Caller, per_minute: int | None) -> None:
    """Set the rate limit of the caller's key."""
    ApiKey.objects.filter(pk=caller.key.pk).update(requests_per_minute=per_minute)
    policy.forget_all()


@pytest.mark.parametrize(
    ("place", "name", "sent"),
    [
        # Claimed and nothing more; reserved and not answered; recorded, and its result not stored.
        (LineJob, "answer", 1),
        (ChatRun, "_complete", 2),
        (LineJob, "_end", 2),
    ],
)
def test_a_lost_workers_line_is_answered_by_another_and_charged_once(
    keeper: Caller, openai: OpenAI, place: Any, name: str, sent: int
) -> None:
    tag = uuid4().hex
    made = create(openai, [line("a", f"hello [[sandbox tag={tag}]]")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, die)
        with pytest.raises(GreenletExit):
            work(30)
    (held,) = BatchLine.objects.all()
    assert (held.attempts, held.lease_owner, held.outcome) == (1, worker_name(), "")
    settle_all()
    become_another_worker()
    work_all()
    sweep()
    settle_all()
    (result,) = lines_in(openai, openai.batches.retrieve(made.id).output_file_id)
    assert result["response"]["status_code"] == 200
    assert len(keeper.sent(tag)) == sent
    row = RequestLog.objects.get()
    assert (row.id, row.status_code, row.swept, row.cost > 0) == (held.log_id, 200, False, True)
    assert [entry.reference for entry in LedgerEntry.objects.filter(kind="usage")] == [row.id]


def test_a_line_charged_before_its_worker_was_lost_is_not_charged_again_after_a_refusal(
    keeper: Caller, openai: OpenAI
) -> None:
    made = create(openai, [line("a")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LineJob, "_end", die)
        with pytest.raises(GreenletExit):
            work(30)
    settle_all()
    charged = RequestLog.objects.get()
    become_another_worker()
    set_rate(keeper, 1)
    # As after a line of another batch.
    bucket = reservations.rate_key(RateLimit(f"key:{keeper.key.pk}:batch", 1), 0)
    client().set(bucket, worker_leases.store_time() + 60)
    work_all()
    waiting = BatchLine.objects.get()
    assert (waiting.outcome, waiting.log_id) == ("", charged.id)
    set_rate(keeper, None)
    client().delete(bucket)
    BatchLine.objects.update(lease_until=timezone.now())
    Batch.objects.update(paused_until=timezone.now())
    work_all()
    (result,) = lines_in(openai, openai.batches.retrieve(made.id).output_file_id)
    assert result["response"]["status_code"] == 200
    assert RequestLog.objects.get() == charged
    assert [entry.reference for entry in LedgerEntry.objects.filter(kind="usage")] == [charged.id]


def test_a_line_that_another_has_by_now_is_not_answered_twice(openai: OpenAI, monkeypatch: pytest.MonkeyPatch) -> None:
    made = create(openai, [line("a")])
    answer = LineJob.answer

    def answer_too_late(job: LineJob) -> None:
        BatchLine.objects.update(lease_owner="another")
        answer(job)

    monkeypatch.setattr(LineJob, "answer", answer_too_late)
    work_all()
    assert (BatchLine.objects.get().outcome, BatchLine.objects.get().sealed_result) == ("", "")
    monkeypatch.setattr(LineJob, "answer", answer)
    become_another_worker()
    work_all()
    assert len(lines_in(openai, openai.batches.retrieve(made.id).output_file_id)) == 1
    assert RequestLog.objects.count() == LedgerEntry.objects.filter(kind="usage").count() == 1


def test_a_line_that_takes_its_workers_down_is_given_up(openai: OpenAI) -> None:
    made = create(openai, [line("a")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LineJob, "answer", die)
        for _ in range(line_runs.MAX_ATTEMPTS):
            with pytest.raises(GreenletExit):
                work(30)
            become_another_worker()
    work_all()
    told = openai.batches.retrieve(made.id)
    (error,) = lines_in(openai, told.error_file_id)
    assert (told.status, error["response"]["status_code"]) == ("completed", 500)


def test_what_a_worker_hands_over_is_taken_at_once_and_counts_as_no_attempt(openai: OpenAI) -> None:
    create(openai, [line("a")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LineJob, "answer", die)
        with pytest.raises(GreenletExit):
            work(30)
    line_runs.hand_over(worker_name())
    worker_name.cache_clear()
    assert BatchLine.objects.get().attempts == 0
    work_all()
    assert Batch.objects.get().status == "completed"


def test_a_worker_lost_while_it_reads_the_input_is_followed_from_the_piece_before(openai: OpenAI) -> None:
    made = create(openai, [line("a"), line("b")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("apps.batches.input_lines.MAX_PIECE_LINES", 1)
        encrypt, calls = line_call.encrypt_request, iter([False, True])
        patch.setattr(line_call, "encrypt_request", lambda *given: die() if next(calls) else encrypt(*given))
        with pytest.raises(GreenletExit):
            work(30)
    row = Batch.objects.get()
    assert (BatchLine.objects.count(), row.status, row.lines_read) == (1, "validating", 1)
    work_all()
    told = openai.batches.retrieve(made.id)
    assert told.status == "completed"
    assert [result["custom_id"] for result in lines_in(openai, told.output_file_id)] == ["a", "b"]


def test_a_worker_lost_while_it_writes_results_leaves_no_file(openai: OpenAI) -> None:
    made = create(openai, [line("a"), line("b")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(completion._ResultFile, "end", die)
        with pytest.raises(GreenletExit):
            work(30)
    assert (BatchLine.objects.count(), Batch.objects.get().status) == (2, "finalizing")
    assert (StoredFile.objects.count(), FileChunk.objects.count()) == (1, 1)
    work_all()
    told = openai.batches.retrieve(made.id)
    assert [result["custom_id"] for result in lines_in(openai, told.output_file_id)] == ["a", "b"]
    assert StoredFile.objects.count() == 2
