"""OpenAI's Batch API, and Groq's: an uploaded file of lines, a batch that bears its marker as metadata, result files.

Sources: `openai.types.Batch`, `openai.types.BatchCreateParams`, `openai.resources.files`; the guide to the Batch API
(a file has lines of one model; results come in no order, those that failed in a file of their own); console.groq.com/
docs/batch and `groq.types.BatchCreateParams` (the same for chats, up to 100 MB; the list is one page). Read 2026-11-23.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from apps.batches.native.formats import MAX_PAGES, JobState, NativeLine, SentJob, id_of, rows_of
from apps.batches.native.formats.uploaded_lines import MARKER, SLACK, created, is_marked, read_answers, upload
from apps.batches.native.provider_api import ProviderApi

__all__ = ["cancel", "find", "look", "read_answers", "submit"]

_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})


def submit(api: ProviderApi, job: SentJob, lines: Iterable[NativeLine]) -> str:
    """Upload the lines and create a batch of them; return its id. Raises UpstreamFailure."""
    url = f"/v1{job.path}"
    made = api.call(
        "POST",
        "/batches",
        {
            "input_file_id": upload(api, job, lines, method="POST", url=url),
            "endpoint": url,
            "completion_window": "24h",
            "metadata": {MARKER: str(job.id)},
        },
    )
    return id_of(made)


def find(api: ProviderApi, job: SentJob) -> str | None:
    """Return the id of the batch that bears the job's marker. Raises UpstreamFailure."""
    after, since = "", job.since.timestamp() - SLACK
    for _ in range(MAX_PAGES):
        page = api.call("GET", f"/batches?limit=100{after}")
        rows = rows_of(page)
        for row in rows:
            if is_marked(row, job):
                return id_of(row)
        # The newest come first.
        if not page.get("has_more") or not rows or created(rows[-1]) < since:
            return None
        after = f"&after={quote(id_of(rows[-1]), safe='')}"
    return None


def look(api: ProviderApi, external_id: str) -> JobState:
    """Return how a batch stands. Raises UpstreamFailure."""
    row = api.call("GET", _path(external_id))
    results = [row[name] for name in ("output_file_id", "error_file_id") if isinstance(row.get(name), str)]
    files = [*results, *([row["input_file_id"]] if isinstance(row.get("input_file_id"), str) else [])]
    return JobState(
        row.get("status") in _ENDED,
        tuple(f"/files/{quote(file, safe='')}/content" for file in results),
        tuple(f"/files/{quote(file, safe='')}" for file in files),
    )


def cancel(api: ProviderApi, external_id: str) -> None:
    """Have a batch cancelled. Raises UpstreamFailure."""
    api.call("POST", f"{_path(external_id)}/cancel")


def _path(external_id: str) -> str:
    return f"/batches/{quote(external_id, safe='')}"
