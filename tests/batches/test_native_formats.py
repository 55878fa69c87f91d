"""Formats of batch APIs: hostile results are left out, and a job that may have been sent is told from others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from apps.batches.native.formats import NotSure, SentJob, anthropic, openai
from apps.batches.native.parked_lines import NativeAnswer
from apps.batches.native.provider_api import ProviderApi
from apps.gateway.failures import UpstreamFailure

SENT = datetime(2026, 11, 23, 12, tzinfo=UTC)
JOB = SentJob(UUID(int=7), "/chat/completions", 2, SENT)
DEEP = b"[" * 100_000


class ScriptedApi:
    """A batch API whose answers are given by path."""

    def __init__(self, pages: dict[str, Any], lines: Iterable[bytes] = ()) -> None:
        self.pages, self.asked, self._lines = pages, list[str](), lines

    def with_headers(self, _: Any) -> ScriptedApi:
        return self

    def call(self, method: str, path: str, body: Any = None) -> Any:
        self.asked.append(path)
        return self.pages[path]

    def lines(self, path: str) -> Iterator[bytes]:
        return iter(self._lines)


def test_what_openai_answered_is_read_and_all_else_left_out() -> None:
    good = {"id": "r", "custom_id": "a", "response": {"status_code": 200, "request_id": "q", "body": {"x": 1}}}
    lines = [
        json.dumps(good).encode(),
        json.dumps(good | {"response": None, "error": {"code": "batch_expired", "message": "late"}}).encode(),
        json.dumps(good | {"response": {"status_code": 9_999, "body": {}}}).encode(),
        json.dumps(good | {"custom_id": 7}).encode(),
        *(b"", b"{", b"null", b"\xff\xfe", b'{"custom_id":"a","response":{"status_code":200,"body":' + DEEP),
        json.dumps(good | {"custom_id": "b", "response": {"status_code": 400, "body": {"error": {}}}}).encode(),
    ]
    assert list(openai.read_answers(lines)) == [
        ("a", NativeAnswer(200, b'{"x": 1}')),
        ("b", NativeAnswer(400, b'{"error": {}}')),
    ]


def test_what_anthropic_answered_is_read_with_the_status_of_its_error() -> None:
    def line(**result: Any) -> bytes:
        return json.dumps({"custom_id": "a", "result": result}).encode()

    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "m"}}
    lines = [
        line(type="succeeded", message={"x": 1}),
        line(type="errored", error=overloaded),
        line(type="errored", error={"error": {"type": "new_kind"}}),
        *(line(type="canceled"), line(type="expired"), line(type="succeeded"), line(type="errored", error=[])),
        *(b"", b"{", b"[]", b'{"custom_id":"a","result":' + DEEP),
    ]
    assert [answer.status for _, answer in anthropic.read_answers(lines)] == [200, 529, 500]


def test_a_job_of_openais_is_found_by_its_marker_on_any_page() -> None:
    stranger = {"id": "batch_2", "created_at": SENT.timestamp() + 9, "metadata": {"gateway_job": "other"}}
    mine = {"id": "batch_1", "created_at": SENT.timestamp(), "metadata": {"gateway_job": str(JOB.id)}}
    first = {"data": [{**stranger, "metadata": "x"}, "x", stranger], "has_more": True}
    api = ScriptedApi({"/batches?limit=100": first, "/batches?limit=100&after=batch_2": {"data": [mine]}})
    assert openai.find(cast(ProviderApi, api), JOB) == "batch_1"
    old = {**stranger, "created_at": SENT.timestamp() - 3_600}
    api = ScriptedApi({"/batches?limit=100": {"data": [old], "has_more": True}})
    assert (openai.find(cast(ProviderApi, api), JOB), len(api.asked)) == (None, 1)


def test_a_job_of_anthropics_is_found_by_a_result_and_waited_for_until_it_has_one() -> None:
    def listed(**changes: Any) -> dict[str, Any]:
        row = {
            "id": "msgbatch_1",
            "created_at": (SENT + timedelta(seconds=1)).isoformat(),
            "processing_status": "ended",
            "request_counts": {"succeeded": 1, "errored": 1},
            **changes,
        }
        return {"/messages/batches?limit=100": {"data": [row], "has_more": False}}

    mine = b'{"custom_id":"' + JOB.id.hex.encode() + b'_0","result":{"type":"expired"}}'
    theirs = b'{"custom_id":"other","result":{"type":"expired"}}'

    def find(pages: dict[str, Any], *lines: bytes) -> str | None:
        return anthropic.find(cast(ProviderApi, ScriptedApi(pages, lines)), JOB)

    assert find(listed(), b"{", mine) == "msgbatch_1"
    assert find(listed(), theirs) is None
    assert find(listed(request_counts={"succeeded": 3}), mine) is None
    assert find(listed(created_at=(SENT - timedelta(hours=1)).isoformat()), mine) is None
    with pytest.raises(NotSure):
        find(listed(processing_status="in_progress"))
    with pytest.raises(UpstreamFailure):
        find(listed(created_at="yesterday"))
