"""Amazon Bedrock's batch inference: lines in a bucket of the operator's, a job with a marker as its name, and answers
in the bucket. Requests and answers are those of Converse.

Sources: `CreateModelInvocationJob`, `GetModelInvocationJob`, `ListModelInvocationJobs`, `StopModelInvocationJob` in
botocore 1.44.5 (`bedrock/2023-04-20`); docs.aws.amazon.com/bedrock/latest/userguide/batch-inference-data and
batch-inference-results (lines are `recordId` and `modelInput`, answers `modelOutput` or `error`, in
`<output>/<job>/<file>.out`). Read 2026-11-29. A request that is sent twice with one `clientRequestToken` makes one job.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from apps.batches.native.formats import JobState, NativeLine, SentJob, removed_if_refused
from apps.batches.native.parked_lines import NativeAnswer
from apps.batches.native.provider_api import NoCredential, ProviderApi
from apps.gateway.failures import UpstreamFailure
from apps.gateway.upstream.batch_exchange import JobPlace

# The least lines of a job, as the default quota of most models says; fewer run as requests.
MIN_LINES: Final = 100
_ENDED: Final = ("Completed", "PartiallyCompleted", "Failed", "Stopped", "Expired")
# A job that failed has written nothing. One that was stopped or has expired keeps the answers that it had.
_ANSWERED: Final = ("Completed", "PartiallyCompleted")
_NAME: Final = re.compile(r"gateway-([0-9a-f]{32})")
_ARN: Final = re.compile(r"arn:[a-z-]+:bedrock:[a-z0-9-]{1,20}:\d{12}:model-invocation-job/([a-z0-9]{12})")
_ID: Final = re.compile(r"[a-z0-9]{12}")
_FILE: Final = "lines.jsonl"
# Ids of lines have letters and digits only there.
_RECORD: Final = re.compile(r"([0-9a-f]{32})x(\d{1,6})")


class _Error(msgspec.Struct):
    errorCode: int = 500  # noqa: N815 - AWS's name
    errorMessage: str = ""  # noqa: N815 - AWS's name


class _Result(msgspec.Struct):
    recordId: str  # noqa: N815 - AWS's name
    modelOutput: msgspec.Raw = msgspec.Raw(b"")  # noqa: N815 - AWS's name
    error: _Error | None = None


_DECODER: Final = msgspec.json.Decoder(_Result)


def submit(api: ProviderApi, job: SentJob, lines: Iterable[NativeLine]) -> str:
    """Store the lines and create a job of them; return its id. Raises UpstreamFailure, NoCredential."""
    place = _place_of(api)
    if job.lines < MIN_LINES:
        raise UpstreamFailure("client_error", f"a job has at least {MIN_LINES} lines", status=400)
    texts = [
        msgspec.json.encode({"recordId": line.custom_id.replace("_", "x"), "modelInput": msgspec.Raw(line.body)})
        for line in lines
    ]
    folder = _folder_of(place, job.id.hex)
    api.send("PUT", f"{folder}/{_FILE}", b"\n".join(texts) + b"\n", "application/jsonl")
    asked = {
        "jobName": f"gateway-{job.id.hex}",
        "clientRequestToken": job.id.hex,
        "modelId": job.model_name,
        "modelInvocationType": "Converse",
        "roleArn": place.role,
        "inputDataConfig": {"s3InputDataConfig": {"s3InputFormat": "JSONL", "s3Uri": f"{folder}/{_FILE}"}},
        "outputDataConfig": {"s3OutputDataConfig": {"s3Uri": f"{folder}/"}},
        "timeoutDurationInHours": 24,
    }
    with removed_if_refused(api, f"{folder}/{_FILE}"):
        made = api.call("POST", "/model-invocation-job", asked)
    return _id_of(made)


def find(api: ProviderApi, job: SentJob) -> str | None:
    """Return the id of the job that bears this one's marker. Raises UpstreamFailure, NoCredential."""
    _place_of(api)
    listed = api.call("GET", f"/model-invocation-jobs?maxResults=10&nameContains=gateway-{job.id.hex}")
    rows = listed.get("invocationJobSummaries")
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and row.get("jobName") == f"gateway-{job.id.hex}":
            return _id_of(row)
    return None


def look(api: ProviderApi, external_id: str) -> JobState:
    """Return how a job stands. Raises UpstreamFailure, NoCredential."""
    place = _place_of(api)
    row = api.call("GET", _path(external_id))
    name, status, processed = row.get("jobName"), row.get("status"), row.get("processedRecordCount")
    named = _NAME.fullmatch(name) if isinstance(name, str) else None
    if status not in _ENDED or named is None:
        return JobState(is_ended=status in _ENDED)
    folder = _folder_of(place, named[1])
    has_answers = status in _ANSWERED or (isinstance(processed, int) and processed > 0 and status != "Failed")
    results = (f"{folder}/{external_id}/{_FILE}.out",) if has_answers else ()
    others = (f"{folder}/{external_id}/manifest.json.out",) if has_answers else ()
    return JobState(True, results, (*results, *others, f"{folder}/{_FILE}"))


def read_answers(lines: Iterable[bytes]) -> Iterator[tuple[str, NativeAnswer]]:
    """Yield the answers, and the errors with their status. Lines that were stopped are not among them."""
    for line in lines:
        try:
            found = _DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
        record, error = _RECORD.fullmatch(found.recordId), found.error
        if record is None:
            continue
        custom_id = f"{record[1]}_{record[2]}"
        if found.modelOutput:
            yield custom_id, NativeAnswer(200, bytes(found.modelOutput))
        elif error is not None:
            yield custom_id, NativeAnswer(error.errorCode, msgspec.json.encode({"message": error.errorMessage}))


def cancel(api: ProviderApi, external_id: str) -> None:
    """Have a job stopped. Raises UpstreamFailure, NoCredential."""
    _place_of(api)
    api.call("POST", f"{_path(external_id)}/stop", {})


def _place_of(api: ProviderApi) -> JobPlace:
    """Return the bucket and the role. Raises NoCredential for a job without them."""
    if not (api.place.storage and api.place.role):
        raise NoCredential
    return api.place


def _folder_of(place: JobPlace, marker: str) -> str:
    return f"{place.storage}/{marker}"


def _path(external_id: str) -> str:
    if not _ID.fullmatch(external_id):
        raise UpstreamFailure("upstream_error", "the job has no id")
    return f"/model-invocation-job/{external_id}"


def _id_of(row: dict[str, Any]) -> str:
    arn = row.get("jobArn")
    found = _ARN.fullmatch(arn) if isinstance(arn, str) else None
    if found is None:
        raise UpstreamFailure("upstream_error", "the answer has no name of a job")
    return found[1]
