"""Background responses whose worker is lost: taken over by another, and charged once, whenever it happened."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.test import override_settings
from django.utils import timezone
from gevent import GreenletExit
from openai import OpenAI

from apps.billing.models import LedgerEntry
from apps.billing.worker_leases import worker_name
from apps.gateway.access import policy
from apps.gateway.settlement.settle import sweep
from apps.keys.models import ApiKey
from apps.logs.models import RequestLog
from apps.responses import background, event_stream, run_leases
from apps.responses.background import BackgroundState
from apps.responses.models import BackgroundRun, StoredResponse
from tests.responses.worker_death import a_worker_dies, become_another_worker, begin_and_die
from tests.support.upstream import Caller, settle_all

MODEL = "sandbox/echo"


def test_a_cancelled_response_stays_cancelled_and_is_not_taken_over(openai: OpenAI) -> None:
    response_id = begin_and_die(openai, at_event=3, stream=True)
    assert openai.responses.retrieve(response_id).status == "in_progress"
    assert openai.responses.cancel(response_id).status == "cancelled"
    assert openai.responses.cancel(response_id).status == "cancelled"
    become_another_worker()
    assert background.take_over() == 0
    assert openai.responses.retrieve(response_id).status == "cancelled"
    events = list(openai.responses.retrieve(response_id, stream=True))
    assert [event.sequence_number for event in events] == [0, 1, 2, 3, 4]
    assert events[-1].type == "response.cancelled"


@pytest.mark.parametrize("at_event", [0, 1, 4])
def test_a_lost_workers_response_is_answered_by_another_and_charged_once(
    keeper: Caller, openai: OpenAI, at_event: int
) -> None:
    tag = uuid4().hex
    response_id = begin_and_die(openai, at_event=at_event, input=f"hello [[sandbox tag={tag}]]")
    assert openai.responses.retrieve(response_id).status == ("in_progress" if at_event else "queued")
    become_another_worker()
    assert background.take_over() == 1
    assert openai.responses.retrieve(response_id).status == "completed"
    assert len(keeper.sent(tag)) == 2
    # The dead worker's reservation is swept, in whichever order the records arrive.
    sweep()
    settle_all()
    row = RequestLog.objects.get()
    assert (row.status_code, row.swept, row.cost > 0) == (200, False, True)
    assert [entry.reference for entry in LedgerEntry.objects.filter(kind="usage")] == [row.id]
    assert background.take_over() == 0


def test_the_sweepers_word_comes_first_and_the_answer_is_charged_all_the_same(openai: OpenAI) -> None:
    begin_and_die(openai, at_event=2)
    become_another_worker()
    sweep()
    settle_all()
    assert RequestLog.objects.get().swept is True
    background.take_over()
    settle_all()
    row = RequestLog.objects.get()
    assert (row.swept, row.status_code) == (False, 200)
    assert LedgerEntry.objects.filter(kind="usage").count() == 1


def test_a_worker_lost_after_the_charge_does_not_charge_twice(openai: OpenAI) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BackgroundState, "finished", _die)
        with pytest.raises(GreenletExit):
            openai.responses.create(model=MODEL, input="hello", background=True)
    background.JOBS.clear()
    settle_all()
    charged = LedgerEntry.objects.get(kind="usage").usage
    become_another_worker()
    assert background.take_over() == 1
    settle_all()
    assert (RequestLog.objects.count(), LedgerEntry.objects.get(kind="usage").usage) == (1, charged)
    assert openai.responses.retrieve(StoredResponse.objects.get().pk).status == "completed"


def _die(*_: Any) -> None:
    raise GreenletExit


def test_a_stream_goes_on_from_a_lost_worker_to_the_next(openai: OpenAI) -> None:
    response_id = begin_and_die(openai, at_event=4, stream=True)
    seen = list(event_stream.read(StoredResponse.objects.get().organization_id, response_id, -1))
    become_another_worker()
    background.take_over()
    rest = list(openai.responses.retrieve(response_id, stream=True, starting_after=seen[-1]["sequence_number"]))
    assert [event.sequence_number for event in rest] == list(range(5, 5 + len(rest)))
    assert "response.created" not in {event.type for event in rest}
    assert rest[-1].type == "response.completed"
    assert rest[-1].response.output_text == "You said: hello"


def test_a_response_that_takes_its_workers_down_is_given_up(openai: OpenAI) -> None:
    response_id = begin_and_die(openai, at_event=1)
    for _ in range(run_leases.MAX_ATTEMPTS - 1):
        become_another_worker()
        with a_worker_dies(0), pytest.raises(GreenletExit):
            background.take_over()
    become_another_worker()
    assert background.take_over() == 1
    assert openai.responses.retrieve(response_id).status == "failed"
    assert not BackgroundRun.objects.exists()


def test_what_a_worker_hands_over_is_taken_at_once_and_counts_as_no_attempt(openai: OpenAI) -> None:
    begin_and_die(openai, at_event=1)
    run_leases.hand_over(worker_name())
    worker_name.cache_clear()
    assert BackgroundRun.objects.get().attempts == 0
    assert background.take_over() == 1


def test_a_revoked_key_answers_nothing_more(keeper: Caller, openai: OpenAI, client: Any) -> None:
    response_id = begin_and_die(openai, at_event=1)
    keeper.key.status = ApiKey.Status.INACTIVE
    keeper.key.save()
    policy.forget_all()
    become_another_worker()
    background.take_over()
    row = StoredResponse.objects.get(pk=response_id)
    assert row.status == "failed"


def test_a_run_that_meets_a_rate_limit_waits_for_its_turn(keeper: Caller, openai: OpenAI) -> None:
    begin_and_die(openai, at_event=1)
    ApiKey.objects.filter(pk=keeper.key.pk).update(requests_per_minute=1)
    policy.forget_all()
    openai.responses.create(model=MODEL, input="first of the minute", store=False)
    become_another_worker()
    assert background.take_over() == 1
    run = BackgroundRun.objects.get()
    assert (run.attempts, run.lease_owner, run.lease_until > timezone.now()) == (1, "", True)


def test_no_credential_lies_with_a_run(keeper: Caller, openai: OpenAI) -> None:
    begin_and_die(openai, at_event=1, extra_headers={"x-source": "a test", "x-gateway-team": "red"})
    request = run_leases.request_of(BackgroundRun.objects.select_related("response").get())
    assert keeper.token not in str(request)
    assert (request.headers["x-source"], request.headers["x-gateway-team"]) == ("a test", "red")


def test_a_run_that_its_own_worker_no_longer_answers_is_not_held_for_ever(openai: OpenAI) -> None:
    response_id = begin_and_die(openai, at_event=1)
    before = BackgroundRun.objects.get().lease_until
    assert run_leases.renew(worker_name(), []) == set()
    assert BackgroundRun.objects.get().lease_until == before
    assert run_leases.renew(worker_name(), [response_id]) == {response_id}
    assert BackgroundRun.objects.get().lease_until > before
    BackgroundRun.objects.update(lease_until=timezone.now())
    assert run_leases.take_over(worker_name(), 10, [response_id], full=[], of_one=9) == []
    assert background.take_over() == 1
    assert openai.responses.retrieve(response_id).status == "completed"


def test_a_history_as_large_as_a_body_is_answered_in_the_background_too(openai: OpenAI) -> None:
    first = openai.responses.create(model=MODEL, input="x" * 6_000)
    with override_settings(BODY_LIMIT=10_000):
        made = openai.responses.create(model=MODEL, input="y" * 6_000, previous_response_id=first.id, background=True)
    assert openai.responses.retrieve(made.id).status == "completed"
