"""Batches in OpenAI's format: each line answered, told in order, recorded and charged once, within its key's limits."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import openai as sdk
import pytest
from django.utils import timezone
from openai import OpenAI

from apps.batches.line_runs import LineJob
from apps.batches.models import Batch, BatchLine
from apps.billing.models import LedgerEntry
from apps.logs.models import RequestLog
from tests.batches.batch_work import CHAT, MODEL, create, line, lines_in, run, upload, work_all
from tests.responses.conftest import Clients, neighbour, stranger
from tests.support.upstream import Caller, nothing_happened

UNKNOWN = "batch_" + "0" * 48


def test_a_batch_is_answered_in_order_and_each_line_is_billed_as_a_request_would_be(
    keeper: Caller, openai: OpenAI
) -> None:
    made = create(openai, [line("a", "one two"), line("b", "three", max_tokens=5), line("c")], metadata={"team": "red"})
    assert (made.status, made.object, made.endpoint, made.completion_window) == ("validating", "batch", CHAT, "24h")
    assert (made.metadata, (made.expires_at or 0) - made.created_at) == ({"team": "red"}, 86_400)
    work_all()
    told = openai.batches.retrieve(made.id)
    assert (told.status, told.errors, told.error_file_id, told.metadata) == ("completed", None, None, {"team": "red"})
    assert told.request_counts is not None
    assert told.request_counts.model_dump() == {"total": 3, "completed": 3, "failed": 0}
    assert None not in (told.in_progress_at, told.finalizing_at, told.completed_at)
    results = lines_in(openai, told.output_file_id)
    assert [result["custom_id"] for result in results] == ["a", "b", "c"]
    for result in results:
        assert (set(result), result["error"]) == ({"id", "custom_id", "response", "error"}, None)
        assert (result["response"]["status_code"], result["response"]["request_id"]) == (200, result["id"])
    said = [result["response"]["body"]["choices"][0]["message"]["content"] for result in results]
    assert said == ["You said: one two", "You said: three", "You said: hello"]
    assert openai.files.retrieve(told.output_file_id or "").purpose == "batch_output"
    assert not BatchLine.objects.exists()

    rows = {row.request_id: row for row in RequestLog.objects.all()}
    assert set(rows) == {result["id"] for result in results}
    for result in results:
        row, stated = rows[result["id"]], Decimal(str(result["response"]["body"]["usage"]["cost_usd_total"]))
        assert (row.status_code, row.cost, row.custom_headers) == (200, stated, {"batch-id": made.id})
    usage = LedgerEntry.objects.filter(kind="usage")
    assert sorted(entry.reference for entry in usage) == sorted(row.id for row in rows.values())
    direct = keeper.chat("one two")
    assert rows[results[0]["id"]].cost == Decimal(str(direct.json()["usage"]["cost_usd_total"])) > 0


def test_calls_of_tools_are_in_the_log_row_of_a_line(openai: OpenAI) -> None:
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": city}}]
    run(openai, [line("a", 'weather in "Oslo"', model="sandbox/tools", tools=tools)])
    [call] = RequestLog.objects.get().tool_calls
    assert call == {"id": call["id"], "name": "get_weather", "arguments": '{"city":"Oslo"}'}


def test_lines_that_fail_are_in_the_error_file_by_their_status(openai: OpenAI) -> None:
    lines = [line("good"), line("no model", model="nobody/nothing"), line("bad field", temperature="hot")]
    told = run(openai, lines)
    assert (told.status, told.request_counts.model_dump()) == ("completed", {"total": 3, "completed": 1, "failed": 2})
    assert [result["custom_id"] for result in lines_in(openai, told.output_file_id)] == ["good"]
    errors = lines_in(openai, told.error_file_id)
    assert [(error["custom_id"], error["response"]["status_code"], error["error"]) for error in errors] == [
        ("no model", 400, None),
        ("bad field", 400, None),
    ]
    assert errors[1]["response"]["body"]["error"]["param"] == "temperature"


def test_every_wrong_line_is_told_by_number_and_field_and_none_is_answered(keeper: Caller, openai: OpenAI) -> None:
    good = line("good")
    lines: list[Any] = [
        good,
        "{not json",
        "[1]",
        {**good, "custom_id": "good"},
        {**good, "custom_id": 7},
        {**good, "custom_id": "x" * 513},
        {**good, "custom_id": "m", "method": "GET"},
        {**good, "custom_id": "u", "url": "/v1/embeddings"},
        {**good, "custom_id": "b", "body": []},
        {"custom_id": "n", "method": "POST", "url": CHAT},
        line("s", stream=True),
    ]
    told = run(openai, lines)
    assert (told.status, told.output_file_id, told.error_file_id) == ("failed", None, None)
    assert told.failed_at is not None
    assert told.errors.object == "list"
    assert [(error.line, error.code, error.param) for error in told.errors.data] == [
        (2, "invalid_json_line", None),
        (3, "invalid_json_line", None),
        (4, "duplicate_custom_id", "custom_id"),
        (5, "invalid_custom_id", "custom_id"),
        (6, "invalid_custom_id", "custom_id"),
        (7, "invalid_method", "method"),
        (8, "url_mismatch", "url"),
        (9, "invalid_body", "body"),
        (10, "missing_required_parameter", "body"),
        (11, "invalid_body", "body.stream"),
    ]
    assert (BatchLine.objects.count(), RequestLog.objects.count()) == (0, 0)
    assert nothing_happened(keeper)


def test_inputs_without_lines_with_too_many_or_gone_meanwhile_fail(
    openai: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = run(openai, [" ", ""])
    assert [(error.code, error.line) for error in empty.errors.data] == [("empty_file", None)]
    monkeypatch.setattr("apps.batches.input_lines.MAX_LINES", 2)
    many = run(openai, [line(str(number)) for number in range(3)])
    assert [(error.code, error.line) for error in many.errors.data] == [("too_many_tasks", 3)]
    gone = create(openai, [line("a")])
    openai.files.delete(gone.input_file_id)
    work_all()
    errors = openai.batches.retrieve(gone.id).errors
    assert errors is not None
    assert [(error.code, error.param) for error in errors.data or ()] == [("invalid_file", "input_file_id")]
    assert not BatchLine.objects.exists()


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"endpoint": "/v1/audio/speech"}, 400, "endpoint"),
        ({"endpoint": "/v1/messages"}, 400, "endpoint"),
        ({"completion_window": "1h"}, 400, "completion_window"),
        ({"input_file_id": "file-" + "0" * 48}, 404, "input_file_id"),
        ({"input_file_id": "../x"}, 404, "input_file_id"),
        ({"metadata": {"a": "x" * 513}}, 400, "metadata.a"),
        ({"output_expires_after": {"anchor": "created_at", "seconds": 1}}, 400, "output_expires_after.seconds"),
        ({"extra_body": {"priority": "high"}}, 400, "priority"),
    ],
)
def test_wrong_fields_are_refused_by_name_and_nothing_is_stored(
    openai: OpenAI, fields: dict[str, Any], status: int, param: str
) -> None:
    given = {"endpoint": CHAT, "completion_window": "24h", "input_file_id": upload(openai, [line("a")]), **fields}
    with pytest.raises(sdk.APIStatusError) as refused:
        openai.batches.create(**given)
    body: Any = refused.value.body
    assert (refused.value.status_code, body["param"]) == (status, param)
    assert not Batch.objects.exists()


def test_a_file_of_another_purpose_makes_no_batch(openai: OpenAI) -> None:
    file = openai.files.create(file=("lines.jsonl", b"{}"), purpose="user_data")
    with pytest.raises(sdk.BadRequestError) as refused:
        openai.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")
    assert refused.value.param == "input_file_id"
    assert not Batch.objects.exists()


def test_responses_are_an_endpoint_of_batches_too(openai: OpenAI) -> None:
    body = {"model": MODEL, "input": "hello"}
    asked = {"custom_id": "r", "method": "POST", "url": "/v1/responses", "body": body}
    told = run(openai, [asked], endpoint="/v1/responses")
    (result,) = lines_in(openai, told.output_file_id)
    response = result["response"]["body"]
    assert (response["object"], response["status"]) == ("response", "completed")
    assert openai.responses.retrieve(response["id"]).output_text == "You said: hello"


def test_what_is_anothers_cannot_be_told_from_what_never_was(keeper: Caller, openai: OpenAI, clients: Clients) -> None:
    made = create(openai, [line("a", "secret")])

    def answers(client: OpenAI, batch_id: str, file_id: str) -> list[tuple[int, str]]:
        told = []
        for ask in (
            lambda: client.batches.retrieve(batch_id),
            lambda: client.batches.cancel(batch_id),
            lambda: client.batches.create(input_file_id=file_id, endpoint=CHAT, completion_window="24h"),
        ):
            with pytest.raises(sdk.NotFoundError) as refused:
                ask()
            text = refused.value.response.text.replace(batch_id, "ID").replace(file_id, "ID")
            told.append((refused.value.status_code, text))
        return told

    for token in (neighbour(keeper), stranger(keeper)):
        client = clients(token)
        assert answers(client, made.id, made.input_file_id) == answers(client, UNKNOWN, "file-" + "0" * 48)
        assert list(client.batches.list()) == []
    work_all()
    told = openai.batches.retrieve(made.id)
    assert told.status == "completed"
    for token in (neighbour(keeper), stranger(keeper)):
        with pytest.raises(sdk.NotFoundError):
            clients(token).files.content(told.output_file_id or "")
    assert Batch.objects.count() == 1


def test_batches_are_listed_from_the_newest(openai: OpenAI) -> None:
    made = [create(openai, [line("a")]).id for _ in range(3)]
    assert [batch.id for batch in openai.batches.list(limit=2)] == made[::-1]
    page = openai.batches.list(limit=2, after=made[2])
    assert ([batch.id for batch in page.data], page.has_more) == ([made[1], made[0]], False)


def test_a_cancelled_batch_keeps_what_was_done(
    keeper: Caller, openai: OpenAI, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = create(openai, [line("a"), line("b"), line("c")])
    settings.BATCH_LINES_AT_ONCE = 1
    answer = LineJob.answer

    def answer_and_cancel(job: LineJob) -> None:
        answer(job)
        openai.batches.cancel(made.id)

    monkeypatch.setattr(LineJob, "answer", answer_and_cancel)
    work_all()
    told = openai.batches.retrieve(made.id)
    assert told.status == "cancelled"
    assert None not in (told.cancelling_at, told.cancelled_at)
    assert told.request_counts is not None
    assert told.request_counts.model_dump() == {"total": 3, "completed": 1, "failed": 2}
    assert [result["custom_id"] for result in lines_in(openai, told.output_file_id)] == ["a"]
    errors = lines_in(openai, told.error_file_id)
    assert [(error["custom_id"], error["response"], error["error"]["code"]) for error in errors] == [
        ("b", None, "batch_cancelled"),
        ("c", None, "batch_cancelled"),
    ]
    assert RequestLog.objects.count() == LedgerEntry.objects.filter(kind="usage").count() == 1
    assert openai.batches.cancel(made.id).status == "cancelled"


def test_a_batch_that_is_cancelled_before_its_input_was_looked_at_answers_none(openai: OpenAI) -> None:
    made = create(openai, [line("a"), line("b")])
    assert openai.batches.cancel(made.id).status == "cancelling"
    work_all()
    told = openai.batches.retrieve(made.id)
    assert (told.status, told.output_file_id) == ("cancelled", None)
    assert [error["error"]["code"] for error in lines_in(openai, told.error_file_id)] == ["batch_cancelled"] * 2
    assert not RequestLog.objects.exists()


def test_lines_beyond_the_window_expire(openai: OpenAI) -> None:
    made = create(openai, [line("a"), line("b")])
    Batch.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    work_all()
    told = openai.batches.retrieve(made.id)
    assert told.status == "expired"
    assert told.expired_at is not None
    assert [(error["custom_id"], error["error"]["code"]) for error in lines_in(openai, told.error_file_id)] == [
        ("a", "batch_expired"),
        ("b", "batch_expired"),
    ]
    assert not RequestLog.objects.exists()
