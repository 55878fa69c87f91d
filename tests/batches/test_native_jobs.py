"""Native jobs: found again, fetched again, cancelled and their holds released, even if a process dies in between."""

from __future__ import annotations

from decimal import Decimal
from uuid import uuid4

import pytest
from django.utils import timezone
from gevent import GreenletExit
from openai import OpenAI

from apps.batches.line_runs import LineJob
from apps.batches.models import Batch, NativeJob
from apps.batches.native import jobs, parked_lines
from apps.batches.work import work
from apps.billing.models import LedgerEntry
from apps.gateway.settlement.settle import sweep
from apps.logs.models import RequestLog
from tests.batches.batch_work import create, line, lines_in, work_all
from tests.batches.native_work import (
    MODELS,
    OPENAI,
    api_calls,
    asked,
    batch_providers,
    bill_of,
    look,
    nothing_is_held,
    refuse_jobs,
)
from tests.batches.test_lost_workers import become_another_worker, die
from tests.support.upstream import Caller, settle_all

__all__ = ["batch_providers"]

pytestmark = pytest.mark.usefixtures("batch_providers")

# Where each batch API is asked to cancel a job, by its format.
CANCELLING = {
    "openai": "/v1/batches/{}/cancel",
    "anthropic": "/v1/messages/batches/{}/cancel",
    "google": "/v1beta/{}:cancel",
    "mistral": "/v1/batch/jobs/{}/cancel",
}


def test_a_job_that_was_sent_when_its_worker_died_is_found_again(keeper: Caller, openai: OpenAI) -> None:
    tag = uuid4().hex
    made = create(openai, [asked(model, model, f"tag={tag}") for model in MODELS])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "_note_running", lambda *_: None)
        look()
    assert [(job.status, job.external_id) for job in NativeJob.objects.all()] == [("submitting", "")] * len(MODELS)
    assert len(keeper.sent(tag)) == len(MODELS)
    become_another_worker()
    for _ in range(2):
        look()
    assert len(keeper.sent(tag)) == len(MODELS)
    results = lines_in(openai, openai.batches.retrieve(made.id).output_file_id)
    assert [result["custom_id"] for result in results] == MODELS
    assert nothing_is_held(keeper)


def test_a_job_whose_worker_died_before_it_was_sent_is_sent(keeper: Caller, openai: OpenAI) -> None:
    tag = uuid4().hex
    made = create(openai, [asked(model, model, f"tag={tag}") for model in MODELS])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "_send", lambda *_: None)
        look()
    assert {job.status for job in NativeJob.objects.all()} == {"submitting"}
    assert keeper.sent(tag) == []
    for _ in range(2):
        look()
    assert openai.batches.retrieve(made.id).status == "completed"
    assert len(keeper.sent(tag)) == len(MODELS)


def test_a_job_that_is_refused_for_load_leaves_nothing_and_is_sent_again(keeper: Caller, openai: OpenAI) -> None:
    tag = uuid4().hex
    made = create(openai, [asked(model, model, f"tag={tag}") for model in MODELS])
    with pytest.MonkeyPatch.context() as patch:
        calls = refuse_jobs(patch)
        look()
    assert [(job.status, job.failures) for job in NativeJob.objects.all()] == [("gathering", 1)] * len(MODELS)
    # Anthropic has no file of lines. None of them is searched for: none was taken.
    assert (keeper.sent(tag), calls) == ([], ["DELETE"] * 3)
    for _ in range(2):
        look()
    told = openai.batches.retrieve(made.id)
    assert (told.status, told.request_counts.completed, len(keeper.sent(tag))) == ("completed", 4, len(MODELS))
    assert {bill_of(row).batch_share for row in RequestLog.objects.all()} == {Decimal("0.5")}
    assert nothing_is_held(keeper)


def test_a_worker_that_dies_before_its_line_is_parked_leaves_it_to_another(keeper: Caller, openai: OpenAI) -> None:
    made = create(openai, [asked(OPENAI, "a")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parked_lines, "park", die)
        with pytest.raises(GreenletExit):
            work(30)
    become_another_worker()
    for _ in range(2):
        look()
    sweep()
    settle_all()
    assert openai.batches.retrieve(made.id).request_counts.completed == 1
    row = RequestLog.objects.get()
    assert (row.status_code, row.swept, bill_of(row).batch_share) == (200, False, Decimal("0.5"))
    assert nothing_is_held(keeper)


def test_a_worker_that_dies_with_an_answer_recorded_is_followed_by_another(keeper: Caller, openai: OpenAI) -> None:
    made = create(openai, [asked(OPENAI, "a")])
    work_all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LineJob, "_end", die)
        with pytest.raises(GreenletExit):
            look()
    settle_all()
    become_another_worker()
    work_all()
    assert openai.batches.retrieve(made.id).request_counts.completed == 1
    assert RequestLog.objects.count() == LedgerEntry.objects.filter(kind="usage").count() == 1
    assert nothing_is_held(keeper)


def test_a_worker_that_dies_while_it_fetches_is_followed_by_another(keeper: Caller, openai: OpenAI) -> None:
    made = create(openai, [asked(OPENAI, name) for name in "ab"])
    work_all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "_end", lambda *_: None)
        patch.setattr(jobs, "_TOGETHER", 1)
        look()
    assert NativeJob.objects.get().status == "running"
    look()
    told = openai.batches.retrieve(made.id)
    assert (told.status, told.request_counts.completed) == ("completed", 2)
    assert RequestLog.objects.count() == LedgerEntry.objects.filter(kind="usage").count() == 2
    assert nothing_is_held(keeper)


@pytest.mark.parametrize("model", MODELS)
def test_cancelling_a_batch_cancels_its_job_and_gives_back_what_was_held(
    keeper: Caller, openai: OpenAI, model: str
) -> None:
    made = create(openai, [asked(model, "a", "batch=running"), line("b")])
    work_all()
    job = NativeJob.objects.get()
    assert job.status == "running"
    openai.batches.cancel(made.id)
    for _ in range(2):
        look()
    told = openai.batches.retrieve(made.id)
    assert told.status == "cancelled"
    (error,) = lines_in(openai, told.error_file_id)
    assert (error["custom_id"], error["error"]["code"]) == ("a", "batch_cancelled")
    path = CANCELLING[job.format].format(job.external_id)
    assert api_calls(keeper, path) == ["POST"]
    assert nothing_is_held(keeper)


def test_lines_of_a_batch_that_is_cancelled_before_they_are_sent_are_cancelled(keeper: Caller, openai: OpenAI) -> None:
    made = create(openai, [asked(OPENAI, "a")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "_is_gathered", lambda _: False)
        work_all()
    openai.batches.cancel(made.id)
    look()
    told = openai.batches.retrieve(made.id)
    assert (told.status, NativeJob.objects.get().external_id) == ("cancelled", "")
    assert nothing_is_held(keeper)


def test_what_expires_at_the_provider_after_the_batchs_window_is_expired(keeper: Caller, openai: OpenAI) -> None:
    made = create(openai, [asked(OPENAI, "a", "batch=running")])
    work_all()
    Batch.objects.update(expires_at=timezone.now())
    for _ in range(2):
        look()
    told = openai.batches.retrieve(made.id)
    (error,) = lines_in(openai, told.error_file_id)
    assert (told.status, error["error"]["code"]) == ("expired", "batch_expired")
    assert nothing_is_held(keeper)
