"""Formats of batch APIs: hostile results are left out, and a job that may have been sent is distinct from others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from apps.batches.native.formats import NotSure, SentJob, anthropic, google, mistral, openai
from apps.batches.native.parked_lines import NativeAnswer
from apps.batches.native.provider_api import ProviderApi
from apps.gateway.failures import UpstreamFailure

SENT = datetime(2026, 11, 23, 12, tzinfo=UTC)
JOB = SentJob(UUID(int=7), "/chat/completions", "a-model", 2, SENT)
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


def test_what_google_answered_is_read_with_the_status_of_its_error() -> None:
    def line(**result: Any) -> bytes:
        return json.dumps({"key": "a", **result}).encode()

    lines = [
        line(response={"candidates": []}),
        *(line(error={"code": code, "message": "m"}) for code in (3, 8, 14, 13, 429, 77)),
        line(error={}),
        *(line(error={"code": 1}), line(), line(error={"code": "x"}), line(error=7)),
        *(b"", b"{", b"[]", b'{"key":7,"response":{}}', b'{"key":"a","response":' + DEEP),
    ]
    answers = [answer for _, answer in google.read_answers(lines)]
    assert [answer.status for answer in answers] == [200, 400, 429, 503, 500, 429, 500, 500]
    assert answers[0].body == b'{"candidates": []}'
    assert json.loads(answers[1].body) == {"error": {"code": 3, "message": "m"}}


def test_a_job_of_googles_is_found_by_its_name_and_waited_for_behind_more_than_are_looked_at() -> None:
    mine = {"name": "batches/b-1", "metadata": {"displayName": str(JOB.id)}}
    first = {"operations": [7, {}, {"metadata": []}, {"name": "batches/x"}], "nextPageToken": "a+b="}
    pages = {"/batches?pageSize=100": first, "/batches?pageSize=100&pageToken=a%2Bb%3D": {"operations": [mine]}}
    assert google.find(cast(ProviderApi, ScriptedApi(pages)), JOB) == "batches/b-1"
    assert google.find(cast(ProviderApi, ScriptedApi({"/batches?pageSize=100": {}})), JOB) is None
    hostile = {"operations": [{**mine, "name": "../files/theirs"}]}
    with pytest.raises(UpstreamFailure):
        google.find(cast(ProviderApi, ScriptedApi({"/batches?pageSize=100": hostile})), JOB)
    again = "/batches?pageSize=100&pageToken=t"
    endless = {"/batches?pageSize=100": {"nextPageToken": "t"}, again: {"nextPageToken": "t"}}
    with pytest.raises(NotSure):
        google.find(cast(ProviderApi, ScriptedApi(endless)), JOB)


def test_a_batch_of_googles_tells_names_of_files_that_are_names() -> None:
    def look(**metadata: Any) -> Any:
        return google.look(cast(ProviderApi, ScriptedApi({"/batches/b": {"metadata": metadata}})), "batches/b")

    done = look(
        state="JOB_STATE_SUCCEEDED", inputConfig={"fileName": "files/in"}, output={"responsesFile": "files/out"}
    )
    assert (done.is_ended, done.results) == (True, ("/files/out:download?alt=media",))
    assert done.files == ("/files/out", "/files/in", "/batches/b")
    hostile = look(state="BATCH_STATE_RUNNING", inputConfig={"fileName": "//elsewhere/x"}, output={"responsesFile": 7})
    assert (hostile.is_ended, hostile.results, hostile.files) == (False, (), ("/batches/b",))


def test_a_job_of_mistrals_is_found_by_its_marker_on_any_page() -> None:
    def page(number: int) -> str:
        return f"/batch/jobs?page={number}&page_size=100&order_by=-created"

    stranger = {"id": "2", "created_at": SENT.timestamp() + 9, "metadata": None}
    mine = {"id": "1", "created_at": SENT.timestamp(), "metadata": {"gateway_job": str(JOB.id)}}
    pages = {page(0): {"data": [stranger] * 100}, page(1): {"data": [mine]}}
    assert mistral.find(cast(ProviderApi, ScriptedApi(pages)), JOB) == "1"
    old = {**stranger, "created_at": SENT.timestamp() - 3_600}
    api = ScriptedApi({page(0): {"data": [old] * 100}})
    assert (mistral.find(cast(ProviderApi, api), JOB), len(api.asked)) == (None, 1)


def test_a_job_of_mistrals_tells_its_files() -> None:
    row = {"status": "TIMEOUT_EXCEEDED", "input_files": ["in", 7], "output_file": "out/x", "error_file": None}
    state = mistral.look(cast(ProviderApi, ScriptedApi({"/batch/jobs/j": row})), "j")
    assert (state.is_ended, state.results) == (True, ("/files/out%2Fx/content",))
    assert state.files == ("/files/out%2Fx", "/files/in")


@pytest.mark.parametrize("status", [["completed"], ["SUCCESS"], {"completed": True}, 7, None, "unheard_of"])
def test_odd_status_is_a_job_that_has_not_ended(status: Any) -> None:
    job = {"status": status, "processing_status": status, "metadata": {"state": status}, "done": status}
    for native, path in [
        (openai, "/batches/j"),
        (mistral, "/batch/jobs/j"),
        (anthropic, "/messages/batches/j"),
        (google, "/batches/j"),
    ]:
        identifier = "batches/j" if native is google else "j"
        assert native.look(cast(ProviderApi, ScriptedApi({path: job})), identifier).is_ended is False
