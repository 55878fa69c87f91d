"""Formats of providers' batch APIs: how a job is sent, found again, looked at, fetched and cancelled. One module each.

A format translates neither requests nor answers: they are in the provider's dialect as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from importlib import import_module
from typing import Any, Protocol, cast
from uuid import UUID

import msgspec

from apps.batches.native.parked_lines import NativeAnswer
from apps.batches.native.provider_api import ProviderApi
from apps.gateway.failures import UpstreamFailure
from apps.kernel.errors import RateLimited, is_final

# Bytes that a job's search for itself reads at most are bounded by so many pages of jobs.
MAX_PAGES = 10


class NativeLine(msgspec.Struct, frozen=True):
    """A line as a job has it: its custom id there, and the JSON of its request."""

    custom_id: str
    body: bytes


class SentJob(msgspec.Struct, frozen=True):
    """The known facts of a job when it is sent or searched: `since` is when it was first sent."""

    id: UUID
    path: str
    model_name: str
    lines: int
    since: datetime


class JobState(msgspec.Struct, frozen=True):
    """How a job stands at its provider; `results` are paths of results, `files` are to be deleted there."""

    is_ended: bool
    results: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class NotSure(Exception):
    """It is not yet known whether a job is at its provider."""


class NativeFormat(Protocol):
    """The interface of a format's module. Everything raises UpstreamFailure."""

    def submit(self, api: ProviderApi, job: SentJob, lines: Iterable[NativeLine]) -> str:
        """Send a job; return the provider's id of it. After a refusal (`is_refusal`) nothing of it is there."""

    def find(self, api: ProviderApi, job: SentJob) -> str | None:
        """Return the id of a job that may have been sent, None where it was not. Raises NotSure."""

    def look(self, api: ProviderApi, external_id: str) -> JobState:
        """Return how a job stands."""

    def read_answers(self, lines: Iterable[bytes]) -> Iterator[tuple[str, NativeAnswer]]:
        """Yield custom ids and answers of results, errors with the status of a request that met them; lines without a
        readable answer are left out."""

    def cancel(self, api: ProviderApi, external_id: str) -> None:
        """Have a job cancelled."""


def is_refusal(failure: UpstreamFailure) -> bool:
    """Return whether the provider answered that it took nothing: sending a job again cannot make a second one."""
    return failure.status is not None and (failure.status == RateLimited.status or is_final(failure.status))


@contextmanager
def removed_if_refused(api: ProviderApi, path: str) -> Iterator[None]:
    """Delete an uploaded file when the provider refuses the job that would read it. Raises UpstreamFailure."""
    try:
        yield
    except UpstreamFailure as failure:
        if is_refusal(failure):
            with suppress(UpstreamFailure):
                api.call("DELETE", path)
        raise


def rows_of(page: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the jobs on a page of a list."""
    listed = page.get("data")
    return [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []


def id_of(row: dict[str, Any]) -> str:
    """Return the id in an answer. Raises UpstreamFailure."""
    identifier = row.get("id")
    if not isinstance(identifier, str) or not 1 <= len(identifier) <= 200:
        raise UpstreamFailure("upstream_error", "the answer has no id")
    return identifier


def format_of(name: str) -> NativeFormat:
    """Return a format by its name. Raises ModuleNotFoundError."""
    return cast(NativeFormat, import_module(f"{__name__}.{name}"))
