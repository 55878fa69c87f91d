"""Mistral's batch API: an uploaded file of lines, a job that bears its marker as metadata, files of results.

Sources: `mistralai.client.models` (`BatchJob`, `CreateBatchJobRequest`, `BatchJobStatus`,
`JobsAPIRoutesBatchGetBatchJobsRequest`); docs.mistral.ai/studio-api/batch-processing (lines are `custom_id` and `body`,
a job is of one model, results as OpenAI's, those that failed in a file of their own). Read 2026-11-23.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

from apps.batches.native.formats import (
    MAX_PAGES,
    JobState,
    NativeLine,
    SentJob,
    id_of,
    removed_if_refused,
    rows_of,
)
from apps.batches.native.formats.openai import MARKER, SLACK, created, file_path, is_marked, read_answers, upload
from apps.batches.native.provider_api import ProviderApi

__all__ = ["cancel", "find", "look", "read_answers", "submit"]

_PATH = "/batch/jobs"
_PAGE = 100
_ENDED: Final = ("SUCCESS", "FAILED", "TIMEOUT_EXCEEDED", "CANCELLED")


def submit(api: ProviderApi, job: SentJob, lines: Iterable[NativeLine]) -> str:
    """Upload the lines and create a job of them; return its id. Raises UpstreamFailure."""
    file = upload(api, job, lines)
    asked = {
        "input_files": [file],
        "model": job.model_name,
        "endpoint": f"/v1{job.path}",
        "timeout_hours": 24,
        "metadata": {MARKER: str(job.id)},
    }
    with removed_if_refused(api, file_path(file)):
        return id_of(api.call("POST", _PATH, asked))


def find(api: ProviderApi, job: SentJob) -> str | None:
    """Return the id of the job that bears this one's marker. Raises UpstreamFailure."""
    since = job.since.timestamp() - SLACK
    for number in range(MAX_PAGES):
        rows = rows_of(api.call("GET", f"{_PATH}?page={number}&page_size={_PAGE}&order_by=-created"))
        for row in rows:
            if is_marked(row, job):
                return id_of(row)
        if len(rows) < _PAGE or created(rows[-1]) < since:
            return None
    return None


def look(api: ProviderApi, external_id: str) -> JobState:
    """Return how a job stands. Raises UpstreamFailure."""
    row = api.call("GET", _path(external_id))
    results = [row[name] for name in ("output_file", "error_file") if isinstance(row.get(name), str)]
    sent = row.get("input_files")
    files = [*results, *(file for file in (sent if isinstance(sent, list) else []) if isinstance(file, str))]
    return JobState(
        row.get("status") in _ENDED,
        tuple(f"{file_path(file)}/content" for file in results),
        tuple(map(file_path, files)),
    )


def cancel(api: ProviderApi, external_id: str) -> None:
    """Have a job cancelled. Raises UpstreamFailure."""
    api.call("POST", f"{_path(external_id)}/cancel")


def _path(external_id: str) -> str:
    return f"{_PATH}/{quote(external_id, safe='')}"
