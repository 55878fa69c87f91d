"""Amazon Bedrock's batches: lines in a bucket, a job over them, answers in the bucket; and what does not go there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, cast

import pytest
from openai import OpenAI

from apps.batches.models import BatchLine, NativeJob, NativeState
from apps.batches.native.formats import SentJob, bedrock
from apps.batches.native.parked_lines import NativeAnswer
from apps.batches.native.provider_api import ProviderApi
from apps.catalog import catalog_cache
from apps.catalog.models import ModelProvider
from apps.gateway.failures import UpstreamFailure
from apps.gateway.upstream.batch_exchange import JobPlace
from apps.kernel.valkey import generation
from apps.logs.models import RequestLog
from tests.batches.batch_work import create, lines_in, work_all
from tests.batches.native_work import asked, bill_of, look, nothing_is_held, refuse_jobs, run_natively
from tests.batches.test_native_formats import DEEP, JOB, ScriptedApi
from tests.support.providers_of_every_format import FACTS, add_provider, offer_models
from tests.support.upstream import Caller

KEYS = "AKIDEXAMPLEEXAMPLE01:wJalrXUtnFEMI/K7MDENG"
MODEL = "aws/echo-batch"
ROLE = "arn:aws:iam::123456789012:role/batches"
ID = "abcdefgh1234"
ARN = f"arn:aws:bedrock:us-east-1:123456789012:model-invocation-job/{ID}"


class Aws:
    """A bucket and Bedrock's control plane: what they hold, and the requests that they refused for their signature."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.objects: dict[str, bytes] = {}
        self.job: dict[str, Any] = {}
        self.status = "Completed"
        self.asked: list[str] = []
        self.unsigned: list[str] = []

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, bytes]:
        """Answer a request as AWS does."""
        self.asked.append(f"{method} {path.partition('?')[0]}")
        service = "bedrock" if path.startswith("/model-invocation-job") else "s3"
        is_signed = re.match(
            rf"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLEEXAMPLE01/\d{{8}}/us-east-1/{service}/aws4_request, ",
            headers["Authorization"] or "",
        )
        if not is_signed or (service == "s3" and headers["X-Amz-Content-SHA256"] != sha256(body).hexdigest()):
            self.unsigned.append(path)
            return 403, b""
        return self._control(method, path, body) if service == "bedrock" else self._store(method, path, body)

    def _store(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if method == "PUT":
            self.objects[path] = body
            return 200, b""
        if method == "DELETE":
            self.objects.pop(path, None)
            return 204, b""
        return (200, self.objects[path]) if path in self.objects else (404, b"<Error/>")

    def _control(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        if method == "POST" and path == "/model-invocation-job":
            self.job = json.loads(body)
            self._run()
            return 200, json.dumps({"jobArn": ARN}).encode()
        if path.endswith("/stop"):
            self.status = "Stopped"
            return 200, b""
        return 200, json.dumps({"jobArn": ARN, "jobName": self.job["jobName"], "status": self.status}).encode()

    def _run(self) -> None:
        """Answer each record; one that says "lost" is left out, and one that says "wrong" is an error."""
        place = self.job["inputDataConfig"]["s3InputDataConfig"]["s3Uri"].removeprefix("s3:/")
        records = [json.loads(line) for line in self.objects[place].splitlines()]
        folder, _, name = place.rpartition("/")
        said = [record["modelInput"]["messages"][0]["content"][0]["text"] for record in records]
        answers = [
            {**record, "error": {"errorCode": 400, "errorMessage": "bad record"}}
            if "wrong" in words
            else {**record, "modelOutput": _converse_answer(f"Bedrock heard: {words}")}
            for record, words in zip(records, said, strict=True)
            if "lost" not in words
        ]
        output = "\n".join(map(json.dumps, reversed(answers)))
        self.objects[f"{folder}/{ID}/{name}.out"] = output.encode()
        self.objects[f"{folder}/{ID}/manifest.json.out"] = b"{}"


def _converse_answer(words: str) -> dict[str, Any]:
    return {
        "output": {"message": {"role": "assistant", "content": [{"text": words}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 1000, "outputTokens": 100, "totalTokens": 1100},
    }


@pytest.fixture
def aws(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Iterator[Aws]:
    """AWS with a bucket, and a provider that hands lines over to it; requests are answered by the sandbox."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            status, content = served.answer(self.command, self.path, self.headers, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 - the library's names

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Aws(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.setattr(bedrock, "MIN_LINES", 2)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    add_provider(caller, monkeypatch, "aws", "bedrock", auth="aws-sigv4", path="", secret=KEYS)
    batch = {"format": "bedrock", "price_share": "0.5", "storage": "s3://acme-batches/lines", "role": ROLE}
    batch |= {"api_url": served.url, "storage_url": served.url}

    def change(row: ModelProvider) -> None:
        row.facts = {**FACTS["bedrock"], "batch": batch}

    offer_models("aws", change, model_id="echo-batch")
    generation.bump(generation.CATALOG)
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


def test_lines_are_answered_out_of_the_bucket_at_the_share_of_the_price(
    keeper: Caller, openai: OpenAI, aws: Aws
) -> None:
    told = run_natively(openai, [asked(MODEL, name) for name in "abc"])
    assert (told.status, told.error_file_id) == ("completed", None)
    results = lines_in(openai, told.output_file_id)
    assert [result["custom_id"] for result in results] == ["a", "b", "c"]
    assert {result["response"]["body"]["choices"][0]["message"]["content"] for result in results} == {
        "Bedrock heard: hello"
    }
    job = NativeJob.objects.get()
    folder = f"s3://acme-batches/lines/{job.pk.hex}"
    assert aws.job == {
        "jobName": f"gateway-{job.pk.hex}",
        "clientRequestToken": job.pk.hex,
        "modelId": "echo:tag=echo-batch",
        "modelInvocationType": "Converse",
        "roleArn": ROLE,
        "inputDataConfig": {"s3InputDataConfig": {"s3InputFormat": "JSONL", "s3Uri": f"{folder}/lines.jsonl"}},
        "outputDataConfig": {"s3OutputDataConfig": {"s3Uri": f"{folder}/"}},
        "timeoutDurationInHours": 24,
    }
    # Nothing stays in the bucket.
    assert (aws.objects, aws.unsigned) == ({}, [])
    price = ModelProvider.objects.get(provider_id="aws").prices
    whole = (Decimal(price["input"]) * 1000 + Decimal(price["output"]) * 100) / 1_000_000
    rows = list(RequestLog.objects.all())
    assert [(row.cost, bill_of(row).batch_share) for row in rows] == [(whole / 2, Decimal("0.5"))] * 3
    assert nothing_is_held(keeper)


def test_errors_are_results_and_lines_without_an_answer_run_as_others_are(
    keeper: Caller, openai: OpenAI, aws: Aws
) -> None:
    lines = [asked(MODEL, "good"), asked(MODEL, "bad", "tag=wrong"), asked(MODEL, "gone", "tag=lost")]
    told = run_natively(openai, lines)
    [bad] = lines_in(openai, told.error_file_id)
    assert (bad["custom_id"], bad["response"]["status_code"]) == ("bad", 400)
    good, gone = lines_in(openai, told.output_file_id)
    assert good["response"]["body"]["choices"][0]["message"]["content"] == "Bedrock heard: hello"
    assert gone["response"]["body"]["choices"][0]["message"]["content"] == "You said: hello"
    shares = {row.request_id: row.prices.get("batch_share") for row in RequestLog.objects.filter(has_error=False)}
    assert (shares[good["id"]], shares[gone["id"]]) == ("0.5", None)
    assert nothing_is_held(keeper)


TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]


@pytest.mark.parametrize("case", ["tools", "api key", "few lines", "failed"])
def test_what_the_bucket_does_not_take_is_run_as_others_are(
    keeper: Caller, openai: OpenAI, aws: Aws, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    fields = {"tools": TOOLS} if case == "tools" else {}
    if case == "api key":
        monkeypatch.setenv("AWS_TEST_KEY", "bedrock-api-key-ABC")
    if case == "few lines":
        monkeypatch.setattr(bedrock, "MIN_LINES", 3)
    if case == "failed":
        aws.status = "Failed"
    told = run_natively(openai, [asked(MODEL, name, **fields) for name in "ab"])
    answers = [
        line["response"]["body"]["choices"][0]["message"]["content"] for line in lines_in(openai, told.output_file_id)
    ]
    assert (told.status, answers) == ("completed", ["You said: hello"] * 2)
    jobs = {"tools": 0, "api key": 0, "few lines": 1, "failed": 1}
    assert NativeJob.objects.count() == jobs[case]
    assert [one for one in aws.asked if "PUT" in one] == aws.asked[:1] if case == "failed" else aws.asked == []
    assert nothing_is_held(keeper)


def _remove_place() -> None:
    """Have the catalog state no bucket any more."""
    ModelProvider.objects.filter(provider_id="aws").update(facts=FACTS["bedrock"])
    generation.bump(generation.CATALOG)
    catalog_cache.refresh(generation.read_generation_token(generation.CATALOG))


@pytest.mark.parametrize(("is_kept", "words"), [(True, "Bedrock heard: hello"), (False, "You said: hello")])
def test_a_job_keeps_its_bucket_and_role_whatever_the_catalog_states_meanwhile(
    keeper: Caller, openai: OpenAI, aws: Aws, is_kept: bool, words: str
) -> None:
    aws.status = "InProgress"
    made = create(openai, [asked(MODEL, name) for name in "ab"])
    work_all()
    look()
    assert {line.native_state for line in BatchLine.objects.all()} == {NativeState.PARKED}
    _remove_place()
    if not is_kept:
        # A job that was created by a version without the copy.
        NativeJob.objects.update(storage="", role="", api_url="", storage_url="")
    aws.status = "Completed"
    look()
    told = openai.batches.retrieve(made.id)
    answers = {
        result["response"]["body"]["choices"][0]["message"]["content"]
        for result in lines_in(openai, told.output_file_id)
    }
    assert (told.status, told.request_counts.completed, answers) == ("completed", 2, {words})
    assert (aws.objects == {}) is is_kept
    assert nothing_is_held(keeper)


def test_a_job_is_cancelled_where_it_runs_although_the_catalog_states_no_bucket_any_more(
    keeper: Caller, openai: OpenAI, aws: Aws
) -> None:
    aws.status = "InProgress"
    made = create(openai, [asked(MODEL, name) for name in "ab"])
    work_all()
    look()
    _remove_place()
    openai.batches.cancel(made.id)
    for _ in range(2):
        look()
    assert (openai.batches.retrieve(made.id).status, aws.status) == ("cancelled", "Stopped")
    assert aws.asked.count(f"POST /model-invocation-job/{ID}/stop") == 1
    assert nothing_is_held(keeper)


def test_a_job_that_is_refused_for_load_leaves_nothing_and_is_sent_again(
    keeper: Caller, openai: OpenAI, aws: Aws
) -> None:
    made = create(openai, [asked(MODEL, name) for name in "ab"])
    with pytest.MonkeyPatch.context() as patch:
        calls = refuse_jobs(patch)
        look()
    job = NativeJob.objects.get()
    assert (job.status, job.failures, calls, aws.objects) == ("gathering", 1, ["DELETE"], {})
    for _ in range(2):
        look()
    told = openai.batches.retrieve(made.id)
    assert (told.status, told.request_counts.completed, aws.job["clientRequestToken"]) == ("completed", 2, job.pk.hex)
    assert nothing_is_held(keeper)


PLACE = JobPlace("s3://acme-batches", ROLE)


class _Api(ScriptedApi):
    place = PLACE


def test_answers_are_read_with_the_status_of_their_error_and_all_else_left_out() -> None:
    record = f"{JOB.id.hex}x1"

    def line(**fields: Any) -> bytes:
        return json.dumps({"recordId": record, "modelInput": {}, **fields}).encode()

    lines = [
        line(modelOutput={"x": 1}),
        *(line(error={"errorCode": code, "errorMessage": "m"}) for code in (400, 429, 7)),
        *(line(), line(error=7), line(recordId="../x", modelOutput={}), line(recordId=7, modelOutput={})),
        *(b"", b"{", b"[]", b'{"recordId":"' + record.encode() + b'","modelOutput":' + DEEP),
    ]
    answers = list(bedrock.read_answers(lines))
    assert {name for name, _ in answers} == {f"{JOB.id.hex}_1"}
    assert [answer.status for _, answer in answers] == [200, 400, 429, 7]
    assert answers[0][1] == NativeAnswer(200, b'{"x": 1}')
    assert answers[1][1].body == b'{"message":"m"}'


def test_a_job_is_found_by_its_name_and_files_are_of_its_own_folder() -> None:
    listed = f"/model-invocation-jobs?maxResults=10&nameContains=gateway-{JOB.id.hex}"
    mine = {"jobName": f"gateway-{JOB.id.hex}", "jobArn": ARN}

    def find(page: Any) -> str | None:
        return bedrock.find(cast(ProviderApi, _Api({listed: page})), cast(SentJob, JOB))

    assert find({"invocationJobSummaries": [7, {"jobName": "other", "jobArn": "x"}, mine]}) == ID
    assert find({"invocationJobSummaries": 7}) is None
    with pytest.raises(UpstreamFailure):
        find({"invocationJobSummaries": [mine | {"jobArn": f"{ARN}/../x"}]})

    def look_at(**row: Any) -> Any:
        return bedrock.look(cast(ProviderApi, _Api({f"/model-invocation-job/{ID}": row})), ID)

    name = f"gateway-{JOB.id.hex}"
    done = look_at(jobName=name, status="PartiallyCompleted")
    assert done.results == (f"s3://acme-batches/{JOB.id.hex}/{ID}/lines.jsonl.out",)
    assert len(done.files) == 3
    stopped = look_at(jobName=name, status="Stopped", processedRecordCount=0)
    assert (stopped.is_ended, stopped.results, len(stopped.files)) == (True, (), 1)
    assert look_at(jobName=name, status="Stopped", processedRecordCount=1).results == done.results
    assert look_at(jobName="../other", status="Completed") == bedrock.JobState(True)
    assert [look_at(jobName=name, status=one).is_ended for one in ("InProgress", [], None)] == [False] * 3
