"""A request is recorded exactly once, however it ends: answered, failed, left, blocked, or broken by a defect."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from decimal import Decimal
from typing import cast

import pytest
from django.test import RequestFactory

from apps.gateway import recorder
from apps.gateway.access import policy
from apps.gateway.canonical.events import AudioBytes, Event, ImageMade, TextDelta, ToolCallStarted, UsageReported
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.dialects.chat import openai
from apps.gateway.endpoints.chat_completions import chat_completions
from apps.gateway.pipeline import open_chat
from apps.gateway.recorder import AnswerTranscript
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.circuit_breaker import FailureEvidence
from apps.gateway.run import ChatRun
from apps.gateway.settlement import record
from apps.gateway.upstream.failover import Failover
from apps.kernel.errors import ApiError, ClientGone, InternalError
from apps.kernel.ids import new_id
from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.routes import Route
from apps.kernel.usage import Usage
from apps.logs.entry import ProviderOutcome
from apps.logs.models import PerformanceDelta, RequestLog
from apps.organizations.models import Organization
from tests.support.guardrails_in_force import forbid, guard
from tests.support.upstream import Caller, nothing_happened, settle_all

ROUTE = Route("v1/chat/completions", chat_completions, Family.OPENAI, "chat", "POST")


def open_run(caller: Caller, content: str, **fields: object) -> ChatRun:
    """Return an admitted chat of a caller, not run yet."""
    body = {"model": "sandbox/echo", "messages": [{"role": "user", "content": content}], **fields}
    request = RequestFactory().post("/v1/chat/completions", json.dumps(body), content_type="application/json")
    return open_chat(ClientRequest(request.META, ROUTE), "chat_completions", caller.token, openai.read_request)


def end_again(run: ChatRun) -> None:
    """Try to end a request that has ended in every way there is."""
    run.recorder.fail(ClientGone("gone"))
    run.recorder.fail_unexpectedly()
    with pytest.raises(RuntimeError, match="has been recorded"):
        run.recorder.complete(cached=None)


def only_row(caller: Caller) -> tuple[int, bool, bool]:
    """Return the status of the only record there is, whether its client left, and whether it cost anything."""
    assert settle_all() == 1
    assert nothing_happened(caller)
    row = RequestLog.objects.get()
    return row.status_code, row.canceled, bool(row.cost)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_recorded_once(caller: Caller, stream: bool) -> None:
    run = open_run(caller, "hello", stream=stream)
    assert [type(event).__name__ for event in run.events()][-2:] == ["Finished", "Summary"]
    end_again(run)
    assert only_row(caller) == (200, False, True)


def test_one_who_leaves_behind_the_last_event_is_recorded_once(caller: Caller) -> None:
    run = open_run(caller, "hello", stream=True)
    events = run.events()
    while type(next(events)).__name__ != "Summary":
        pass
    events.close()
    end_again(run)
    assert only_row(caller) == (200, False, True)


PICTURE = [
    TextDelta(text="A cat"),
    ImageMade(url="data:image/png;base64,aGk="),
    UsageReported(usage=Usage(input=10, output=2, image_output=1_290)),
]
BROKEN = InternalError("The provider's answer ended before it was complete")


@pytest.mark.parametrize(
    ("stream", "events", "cost"),
    [
        # A picture that was passed on is paid for, and so are the counts beside it.
        (True, PICTURE, "0.0007767"),
        (True, PICTURE[:1], "0"),
        # A client that gets an error and nothing else pays nothing.
        (False, PICTURE, "0"),
    ],
)
def test_a_stream_that_fails_behind_a_picture_pays_for_it(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, stream: bool, events: list[Event], cost: str
) -> None:
    def fails(_: Failover) -> Iterator[Event]:
        yield from events
        raise BROKEN

    monkeypatch.setattr(Failover, "run", fails)
    run = open_run(caller, "draw a cat", stream=stream)
    assert type(list(run.events())[-1]).__name__ == "Failed"
    end_again(run)
    assert settle_all() == 1
    row = RequestLog.objects.get()
    assert (row.status_code, row.has_error, row.cost) == (500, True, Decimal(cost))
    assert Organization.objects.get(pk=caller.organization_id).credits == 100 - Decimal(cost)


def test_a_picture_that_nobody_counted_is_paid_by_an_estimate_where_the_stream_fails_behind_it(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Failover) -> Iterator[Event]:
        yield PICTURE[1]
        raise BROKEN

    monkeypatch.setattr(Failover, "run", fails)
    list(open_run(caller, "draw a cat", stream=True).events())
    settle_all()
    row = RequestLog.objects.get()
    assert (row.estimated_cost, row.prices["used"]["image_output"], row.prices["used"]["images"]) == (True, 6_240, 1)


def test_one_who_leaves_in_the_middle_is_recorded_once_and_pays(caller: Caller) -> None:
    run = open_run(caller, "go on [[sandbox kb=64 chunk=1024]]", stream=True)
    events = run.events()
    while type(next(events)).__name__ != "TextDelta":
        pass
    events.close()
    events.close()
    end_again(run)
    assert only_row(caller) == (499, True, True)


def test_a_failure_is_recorded_once_and_free(caller: Caller) -> None:
    run = open_run(caller, "hello [[sandbox status=400]]")
    with pytest.raises(ApiError) as refused:
        list(run.events())
    end_again(run)
    assert only_row(caller) == (refused.value.status, False, False)


def test_a_defect_is_recorded_once_and_free(caller: Caller) -> None:
    def fail(_: Candidate) -> int:
        raise ValueError("a defect")

    run = open_run(caller, "hello")
    run.attempts.limit_of = fail
    with pytest.raises(InternalError, match="The gateway failed to answer this request"):
        list(run.events())
    end_again(run)
    assert only_row(caller) == (500, False, False)


def test_a_request_that_a_guardrail_blocks_is_recorded_once_and_calls_nobody(caller: Caller) -> None:
    guard(caller)
    forbid(caller, "swordfish")
    with pytest.raises(ApiError, match="Blocked by the guardrail"):
        open_run(caller, "the word is swordfish")
    assert only_row(caller) == (400, False, False)


def test_a_defect_before_anybody_is_asked_holds_nothing_afterwards(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(record, "keep_request", fail)
    with pytest.raises(InternalError, match="The gateway failed to answer this request"):
        open_run(caller, "hello")
    assert only_row(caller) == (500, False, False)


def test_a_run_is_complete_when_it_is_opened(caller: Caller) -> None:
    run = open_run(caller, "hello")
    with pytest.raises(AttributeError):
        run.cache = None  # type: ignore[misc]  # the tested fault
    run.recorder.fail(ClientGone("gone"))
    assert only_row(caller) == (499, True, False)


def test_audio_past_what_a_record_holds_is_left_out_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_MEDIA_BYTES", 8)
    kept, dropped = (
        AnswerTranscript(
            attempts=cast(Failover, None), prompt_estimate=0, fold=None, log_id=new_id(), keeps_content=keeps
        )
        for keeps in (True, False)
    )
    found = []
    for _ in range(4):
        for transcript in (kept, dropped):
            transcript.add(AudioBytes(data=b"1234"))
        found.append((kept.speech and bytes(kept.speech), dropped.speech))
    assert found == [(b"1234", None), (b"12341234", None), (None, None), (None, None)]


def test_calls_of_tools_are_counted_by_name() -> None:
    transcript = AnswerTranscript(attempts=cast(Failover, None), prompt_estimate=0, fold=None, log_id=new_id())
    assert transcript.call_counts is None
    for name in ("find", "find", "read"):
        transcript.add(ToolCallStarted(index=0, id="c", name=name))
    assert transcript.call_counts == {"find": 2, "read": 1}


def test_a_call_that_the_client_did_not_wait_for_is_in_the_log(caller: Caller) -> None:
    Organization.objects.update(retention_level="metadata")
    policy.forget_all()
    run = open_run(caller, "hello", stream=True)
    events = run.attempts.run()
    run.attempts.current_call = run.attempts._begin_call(deque(run.attempts.candidates))
    events.close()
    run.recorder.fail(ClientGone("gone"))
    assert only_row(caller) == (499, True, False)
    [attempt] = RequestLog.objects.get().routing_metadata["routing"]
    assert (attempt["provider"], attempt["error_type"], attempt["succeeded"], attempt["status_code"]) == (
        "sandbox",
        "canceled",
        False,
        None,
    )
    assert 0 <= attempt["start_ms"] <= attempt["end_ms"]


def test_a_client_that_leaves_during_the_answer_leaves_one_attempt(caller: Caller) -> None:
    Organization.objects.update(retention_level="metadata")
    policy.forget_all()
    run = open_run(caller, "hello", stream=True)
    events = run.events()
    while type(next(events)).__name__ != "TextDelta":
        pass
    run.recorder.fail(ClientGone("gone"))
    events.close()
    assert settle_all() == 1
    [attempt] = RequestLog.objects.get().routing_metadata["routing"]
    assert (attempt["error_type"], attempt["succeeded"]) == ("none", True)


def test_outcomes_of_provider_calls_are_recorded(caller: Caller) -> None:
    run = open_run(caller, "hello", stream=True)
    run.attempts.failure_evidence = [
        FailureEvidence("groq/gpt-oss-20b", certain=True),
        FailureEvidence("custom:our-own/secret", certain=True),
    ]
    for _ in run.events():
        pass
    first, second = run.recorder.entry.outcomes or ()
    assert first == ProviderOutcome(model="gpt-oss-20b", provider="groq", succeeded=False)
    assert (second.model, second.provider, second.succeeded) == ("echo", "sandbox", True)
    assert second.first_token is not None
    assert settle_all() == 1
    deltas = PerformanceDelta.objects.order_by("provider").values_list("provider", "model", "succeeded", "failed")
    assert list(deltas) == [("groq", "gpt-oss-20b", 0, 1), ("sandbox", "echo", 1, 0)]


def test_a_request_without_an_answer_has_only_failures(caller: Caller) -> None:
    run = open_run(caller, "hello")
    run.recorder.fail(ClientGone("gone"))
    assert run.recorder.entry.outcomes is None
    other = open_run(caller, "hello")
    other.attempts.failure_evidence = [FailureEvidence("sandbox/echo", certain=True)]
    other.recorder.fail(InternalError("failed"))
    assert other.recorder.entry.outcomes == [ProviderOutcome(model="echo", provider="sandbox", succeeded=False)]
