"""Batches in Anthropic's format, over a model that speaks OpenAI's: created, cancelled, deleted, and their results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import anthropic as sdk
import httpx2
import pytest
from anthropic import Anthropic
from django.utils import timezone

from apps.batches.models import Batch, BatchLine, StoredFile
from apps.billing.models import LedgerEntry
from apps.logs.models import RequestLog
from apps.organizations.models import RetentionLevel
from gateway_project.wsgi import application
from tests.batches.batch_work import MODEL, work_all
from tests.responses.conftest import keep, neighbour, stranger
from tests.support.upstream import Caller, nothing_happened

UNKNOWN = "msgbatch_" + "0" * 48


def client_of(token: str, transport: httpx2.WSGITransport | None = None) -> Anthropic:
    http = httpx2.Client(transport=transport or httpx2.WSGITransport(app=application))
    return Anthropic(api_key=token, base_url="http://testserver", http_client=http, max_retries=0)


@pytest.fixture
def anthropic(keeper: Caller) -> Iterator[Anthropic]:
    """The official client, with the keeper's key."""
    with client_of(keeper.token) as client:
        yield client


def ask(custom_id: str, content: str = "hello", **fields: Any) -> Any:
    params = {"model": MODEL, "max_tokens": 50, "messages": [{"role": "user", "content": content}], **fields}
    return {"custom_id": custom_id, "params": params}


def create(client: Anthropic, *requests: Any) -> Any:
    return client.messages.batches.create(requests=requests)


def test_a_batch_is_answered_and_its_results_are_told_in_order(anthropic: Anthropic) -> None:
    made = create(anthropic, ask("one", "one\ntwo"), ask("bad", model="nobody/nothing"), ask("three"))
    assert (made.type, made.processing_status, made.results_url) == ("message_batch", "in_progress", None)
    assert made.request_counts.processing == 3
    assert made.expires_at - made.created_at == timedelta(hours=24)
    with pytest.raises(sdk.AnthropicError):
        anthropic.messages.batches.results(made.id)
    work_all()
    told = anthropic.messages.batches.retrieve(made.id)
    assert (told.processing_status, told.ended_at is None, told.cancel_initiated_at) == ("ended", False, None)
    assert told.request_counts.model_dump() == {
        "processing": 0,
        "succeeded": 2,
        "errored": 1,
        "canceled": 0,
        "expired": 0,
    }
    results: list[Any] = list(anthropic.messages.batches.results(made.id))
    assert [(one.custom_id, one.result.type) for one in results] == [
        ("one", "succeeded"),
        ("bad", "errored"),
        ("three", "succeeded"),
    ]
    message = results[0].result.message
    assert (message.type, message.content[0].text, message.stop_reason) == (
        "message",
        "You said: one\ntwo",
        "end_turn",
    )
    assert results[1].result.error.type == "error"
    assert results[1].result.error.error.type in {"invalid_request_error", "not_found_error"}
    rows = RequestLog.objects.all()
    assert (len(rows), {row.status_code for row in rows}) == (2, {200})
    charged = sum((entry.usage for entry in LedgerEntry.objects.filter(kind="usage")), Decimal(0))
    assert charged == sum((row.cost for row in rows), Decimal(0)) > 0


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"requests": []}, "requests"),
        ({}, "requests"),
        ({"requests": "x"}, "requests"),
        ({"requests": [1]}, "requests.0"),
        ({"requests": [{"params": {"model": MODEL}}]}, "requests.0.custom_id"),
        ({"requests": [{"custom_id": "a b", "params": {"model": MODEL}}]}, "requests.0.custom_id"),
        ({"requests": [ask("a"), ask("a")]}, "requests.1.custom_id"),
        ({"requests": [ask("a"), {"custom_id": "b"}]}, "requests.1.params"),
        ({"requests": [{"custom_id": "b", "params": [1]}]}, "requests.0.params"),
        ({"requests": [ask("a", stream=True)]}, "requests.0.params.stream"),
        ({"requests": [ask("a")], "window": "1h"}, "window"),
    ],
)
def test_wrong_fields_are_refused_by_name_and_nothing_is_stored(keeper: Caller, body: Any, param: str) -> None:
    headers = {"x-api-key": keeper.token}
    refused = keeper.client.post("/v1/messages/batches", body, content_type="application/json", headers=headers)
    assert refused.status_code == 400
    error = refused.json()
    assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
    assert error["error"]["message"].startswith(f"Invalid request format: {param}: ")
    assert not Batch.objects.exists()
    assert not StoredFile.objects.exists()
    assert nothing_happened(keeper)


def test_a_body_that_is_no_object_is_refused(keeper: Caller) -> None:
    headers = {"x-api-key": keeper.token}
    for text in ("[]", "{", '{"requests": [' + "[" * 5_000):
        refused = keeper.client.generic("POST", "/v1/messages/batches", text, "application/json", headers=headers)
        assert refused.status_code == 400, text[:20]
    assert not Batch.objects.exists()


def test_cancelled_and_expired_requests_are_told_as_such(anthropic: Anthropic) -> None:
    cancelled = create(anthropic, ask("a"), ask("b"))
    stopped = anthropic.messages.batches.cancel(cancelled.id)
    assert (stopped.processing_status, stopped.cancel_initiated_at is None) == ("canceling", False)
    with pytest.raises(sdk.BadRequestError):
        anthropic.messages.batches.delete(cancelled.id)
    late = create(anthropic, ask("c"))
    Batch.objects.filter(pk=late.id).update(expires_at=timezone.now() - timedelta(seconds=1))
    work_all()
    for batch_id, kind, count in ((cancelled.id, "canceled", 2), (late.id, "expired", 1)):
        told = anthropic.messages.batches.retrieve(batch_id)
        assert told.processing_status == "ended"
        assert getattr(told.request_counts, kind) == count
        assert told.request_counts.processing == 0
        assert [one.result.type for one in anthropic.messages.batches.results(batch_id)] == [kind] * count
    assert not RequestLog.objects.exists()


def test_a_batch_that_has_ended_is_deleted_with_its_files(anthropic: Anthropic) -> None:
    made = create(anthropic, ask("a"))
    work_all()
    assert StoredFile.objects.count() == 2
    assert anthropic.messages.batches.delete(made.id).type == "message_batch_deleted"
    assert not any(kind.objects.exists() for kind in (Batch, BatchLine, StoredFile))
    with pytest.raises(sdk.NotFoundError):
        anthropic.messages.batches.retrieve(made.id)


def test_batches_are_listed_from_the_newest_in_pages_both_ways(anthropic: Anthropic) -> None:
    made = [create(anthropic, ask("a")).id for _ in range(3)]
    assert [batch.id for batch in anthropic.messages.batches.list(limit=2)] == made[::-1]
    page = anthropic.messages.batches.list(before_id=made[0], limit=1)
    assert ([batch.id for batch in page.data], page.has_more) == ([made[1]], True)
    page = anthropic.messages.batches.list(after_id=made[2], limit=5)
    assert ([batch.id for batch in page.data], page.has_more) == ([made[1], made[0]], False)
    with pytest.raises(sdk.BadRequestError):
        anthropic.messages.batches.list(after_id=UNKNOWN)


def test_what_is_anothers_cannot_be_told_from_what_never_was(keeper: Caller, anthropic: Anthropic) -> None:
    made = create(anthropic, ask("a", "secret"))
    work_all()

    def answers(client: Anthropic, batch_id: str) -> list[tuple[int, str]]:
        batches, told = client.messages.batches, []
        results = lambda identifier: client.get(f"/v1/messages/batches/{identifier}/results", cast_to=object)  # noqa: E731 - beside the others
        for call in (batches.retrieve, batches.cancel, batches.delete, results):
            with pytest.raises(sdk.NotFoundError) as refused:
                call(batch_id)
            body: Any = json.loads(refused.value.response.text)
            told.append((refused.value.status_code, body["error"]["message"].replace(batch_id, "ID")))
        return told

    for token in (neighbour(keeper), stranger(keeper)):
        with client_of(token) as client:
            assert answers(client, made.id) == answers(client, UNKNOWN)
            assert list(client.messages.batches.list()) == []
    assert Batch.objects.count() == 1


def test_the_files_behind_it_are_no_files_of_the_api(keeper: Caller, anthropic: Anthropic, openai: Any) -> None:
    create(anthropic, ask("a"))
    work_all()
    assert list(openai.files.list()) == []
    for row in StoredFile.objects.all():
        response = keeper.client.get(f"/v1/files/{row.pk}", headers={"Authorization": f"Bearer {keeper.token}"})
        assert response.status_code == 404
    assert list(openai.batches.list()) == []


def test_an_organization_that_keeps_no_content_has_no_batches(keeper: Caller, anthropic: Anthropic) -> None:
    keep(keeper, RetentionLevel.NONE)
    with pytest.raises(sdk.BadRequestError):
        create(anthropic, ask("a"))
    assert not Batch.objects.exists()
    assert not StoredFile.objects.exists()
