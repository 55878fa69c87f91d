"""Background responses of several organizations: one's crowd leaves room in every worker, and turns, to another."""

from __future__ import annotations

from collections import Counter
from typing import Any

import openai as sdk
import pytest
from openai import OpenAI

from apps.billing.worker_leases import worker_name
from apps.kernel.concurrency.fairness import FairShare
from apps.responses import background, event_stream, run_leases
from apps.responses.models import BackgroundRun, StoredResponse
from tests.responses.conftest import Clients, stranger
from tests.support.upstream import Caller

MODEL = "sandbox/echo"


def queue(client: OpenAI, count: int) -> list[str]:
    """Create background responses that wait for a worker; return their ids."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "MAX_RUNS", 0)
        return [client.responses.create(model=MODEL, input="hello", background=True).id for _ in range(count)]


def test_a_crowd_of_runs_keeps_anothers_waiting_for_one(keeper: Caller, openai: OpenAI, clients: Clients) -> None:
    crowd = queue(openai, 30)
    (alone,) = queue(clients(stranger(keeper)), 1)
    taken = run_leases.take_over(worker_name(), 5, [], full=[], of_one=80)
    assert alone in [run.pk for run in taken][:2]
    assert [run.pk for run in taken if run.pk != alone] == crowd[:4]


def test_an_organization_that_has_its_part_of_a_worker_is_passed_over(
    keeper: Caller, openai: OpenAI, clients: Clients
) -> None:
    queue(openai, 3)
    (alone,) = queue(clients(stranger(keeper)), 1)
    taken = run_leases.take_over(worker_name(), 5, [], full=[keeper.organization_id], of_one=80)
    assert [run.pk for run in taken] == [alone]
    assert len(run_leases.take_over(worker_name(), 5, [], full=[], of_one=2)) == 2


def test_a_run_beyond_an_organizations_part_of_a_worker_waits(
    openai: OpenAI, keeper: Caller, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = queue(openai, 1)
    monkeypatch.setattr(background, "MAX_RUNS_OF_ONE", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "_own_runs", lambda: Counter({keeper.organization_id: 1}))
        second = openai.responses.create(model=MODEL, input="hello", background=True)
        assert second.status == "queued"
        other = clients(stranger(keeper)).responses.create(model=MODEL, input="hello", background=True)
        assert BackgroundRun.objects.filter(response_id=other.id).count() == 0
        assert background.take_over() == 0
    assert BackgroundRun.objects.count() == 2
    assert {run.pk for run in BackgroundRun.objects.all()} == {first, second.id}


def test_streams_of_events_leave_places_to_other_organizations(
    keeper: Caller, openai: OpenAI, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "FOLLOWED", FairShare(3, 1, "streams of background responses"))
    made = openai.responses.create(model=MODEL, input="hello", background=True, stream=True)
    response_id = next(made).response.id
    list(made)
    event_stream.FOLLOWED.take(keeper.organization_id)
    with pytest.raises(sdk.RateLimitError) as refused:
        openai.responses.retrieve(response_id, stream=True)
    assert refused.value.code == "concurrency_exceeded"
    # Nor is one begun whose stream finds no place.
    with pytest.raises(sdk.RateLimitError):
        openai.responses.create(model=MODEL, input="hello", background=True, stream=True)
    assert StoredResponse.objects.count() == 1
    other = clients(stranger(keeper)).responses.create(model=MODEL, input="hello", background=True, stream=True)
    assert [event.type for event in other][-1] == "response.completed"
    event_stream.FOLLOWED.give_back(keeper.organization_id)
    for _ in range(3):
        # Each gives its place back.
        assert len(list(openai.responses.retrieve(response_id, stream=True))) > 2


def test_a_look_that_finds_nothing_asks_once(keeper: Caller, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        assert run_leases.take_over(worker_name(), 5, [], full=[], of_one=80) == []
