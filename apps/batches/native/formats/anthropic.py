"""Anthropic's Message Batches API: a batch of requests in one body, results as lines once all have ended.

A batch bears no marker; the custom ids of its results do. So one that may have been sent is found by its time and its
number of requests, and by a result once it has ended. Sources: `anthropic.types.messages.MessageBatch`,
`MessageBatchIndividualResponse`, `anthropic.types.shared.ErrorObject`; platform.claude.com/docs/en/build-with-claude/
batch-processing (100,000 requests, 256 MB, half the usual prices). Read 2026-11-23.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final
from urllib.parse import quote

import msgspec

from apps.batches.native.formats import MAX_PAGES, JobState, NativeLine, NotSure, SentJob, id_of, rows_of
from apps.batches.native.parked_lines import NativeAnswer
from apps.batches.native.provider_api import ProviderApi
from apps.gateway.dialects.chat.anthropic.wire import STATUSES
from apps.gateway.failures import UpstreamFailure

_PATH: Final = "/messages/batches"
_HEADERS: Final = {"anthropic-version": "2023-06-01"}
# By which a provider's clock may be behind, and after which a job that was sent is there.
_SLACK: Final = timedelta(minutes=5)


class _Outcome(msgspec.Struct):
    type: str
    message: msgspec.Raw = msgspec.Raw(b"")
    error: msgspec.Raw = msgspec.Raw(b"")


class _Result(msgspec.Struct):
    custom_id: str
    result: _Outcome


class _Kind(msgspec.Struct):
    type: str = ""


class _Error(msgspec.Struct):
    error: _Kind


_DECODER: Final = msgspec.json.Decoder(_Result)
_ERROR_DECODER: Final = msgspec.json.Decoder(_Error)


def submit(api: ProviderApi, job: SentJob, lines: Iterable[NativeLine]) -> str:
    """Create a batch; return its id. Raises UpstreamFailure."""
    requests = [{"custom_id": line.custom_id, "params": msgspec.Raw(line.body)} for line in lines]
    return id_of(_with_version(api).call("POST", _PATH, {"requests": requests}))


def find(api: ProviderApi, job: SentJob) -> str | None:
    """Return the id of the batch one of whose results bears the job's id. Raises NotSure, UpstreamFailure."""
    api, after, is_sure = _with_version(api), "", True
    for _ in range(MAX_PAGES):
        page = api.call("GET", f"{_PATH}?limit=100{after}")
        rows = rows_of(page)
        for row in rows:
            if not _may_be(row, job):
                continue
            if row.get("processing_status") != "ended":
                is_sure = False
            elif _first_id(api, id_of(row)).startswith(job.id.hex):
                return id_of(row)
        if not page.get("has_more") or not rows or _created(rows[-1]) < job.since - _SLACK:
            break
        after = f"&after_id={quote(id_of(rows[-1]), safe='')}"
    if not is_sure:
        raise NotSure("A batch of as many requests, of that time, has not ended")
    return None


def look(api: ProviderApi, external_id: str) -> JobState:
    """Return how a batch stands. Raises UpstreamFailure."""
    row = _with_version(api).call("GET", _path(external_id))
    return JobState(row.get("processing_status") == "ended", (f"{_path(external_id)}/results",), (_path(external_id),))


def read_answers(lines: Iterable[bytes]) -> Iterator[tuple[str, NativeAnswer]]:
    """Yield the answers, errors with the status that they would have had. The rest expired, or was cancelled."""
    for line in lines:
        try:
            found = _DECODER.decode(line)
            result = found.result
            if result.type == "succeeded" and result.message:
                yield found.custom_id, NativeAnswer(200, bytes(result.message))
            elif result.type == "errored" and result.error:
                kind = _ERROR_DECODER.decode(result.error).error.type
                yield found.custom_id, NativeAnswer(STATUSES.get(kind, 500), bytes(result.error))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue


def cancel(api: ProviderApi, external_id: str) -> None:
    """Have a batch cancelled. Raises UpstreamFailure."""
    _with_version(api).call("POST", f"{_path(external_id)}/cancel")


def _with_version(api: ProviderApi) -> ProviderApi:
    return api.with_headers(_HEADERS)


def _may_be(row: dict[str, Any], job: SentJob) -> bool:
    counts = row.get("request_counts")
    total = sum(count for count in counts.values() if isinstance(count, int)) if isinstance(counts, dict) else 0
    return total == job.lines and _created(row) >= job.since - _SLACK


def _first_id(api: ProviderApi, external_id: str) -> str:
    """Return the custom id of a batch's first result that can be read; "" for none."""
    for line in islice(api.lines(f"{_path(external_id)}/results"), 10):
        try:
            return _DECODER.decode(line).custom_id
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
    return ""


def _path(external_id: str) -> str:
    return f"{_PATH}/{quote(external_id, safe='')}"


def _created(row: dict[str, Any]) -> datetime:
    try:
        return msgspec.convert(row.get("created_at"), datetime)
    except msgspec.ValidationError:
        raise UpstreamFailure("upstream_error", "a batch has no time") from None
