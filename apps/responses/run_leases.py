"""Leases of background runs, and leased work: which process answers which response, and who takes over when it dies.

All in PostgreSQL and by its clock: a run is begun, renewed, taken over and ended by the process that holds its row.
`LeasedWork` is what a process does with leases of any kind: it renews them, stops work whose lease it has lost, and
hands over the rest at its end.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Collection, Hashable, MutableMapping, Sequence
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar
from uuid import UUID

import gevent
import msgspec
import structlog
from django.conf import settings
from django.db import DatabaseError, transaction
from django.db.models import F, Window
from django.db.models.functions import Now, RowNumber
from gevent.monkey import is_module_patched
from redis.exceptions import RedisError

from apps.billing.worker_leases import worker_name
from apps.kernel.errors import ApiError
from apps.kernel.secrets.encryption import decrypt_json, encrypt_json
from apps.responses import response_rows
from apps.responses.models import BackgroundRun, ResponseStatus, StoredResponse
from apps.responses.response_rows import EncryptedOutcome, ResponseDraft, row_of

# Times that a run is begun before it is given up: a response that kills its worker must not kill them all.
MAX_ATTEMPTS = 3


class RunRequest(msgspec.Struct, kw_only=True):
    """The request to the pipeline, and the fields to store its answer."""

    headers: dict[str, str]
    wire: dict[str, Any]
    echo: dict[str, Any]
    new_items: list[dict[str, Any]]
    # The organization's plan when it was asked: how many bytes of events are kept.
    plan: str = "free"
    # The first response of the chain that this one continues or begins.
    chain: str = ""


def begin(draft: ResponseDraft, log_id: UUID, request: RunRequest, owner: str | None) -> None:
    """Store a queued response and its run; without an owner any worker with room takes it. Raises DatabaseError."""
    with transaction.atomic():
        row = row_of(draft)
        row.save(force_insert=True)
        BackgroundRun.objects.create(
            response=row,
            log_id=log_id,
            sealed_request=encrypt_json(msgspec.to_builtins(request), draft.project_id, _place(draft.id)),
            lease_owner=owner or "",
            lease_until=Now() if owner is None else _lease_end(),
            attempts=0 if owner is None else 1,
        )


def discard(response_id: str) -> None:
    """Forget a response that was not let in, and its run."""
    StoredResponse.objects.filter(pk=response_id).delete()


def draft_of_row(row: StoredResponse) -> ResponseDraft:
    """Return a stored response as the draft that it was."""
    names = [name for name in ResponseDraft.__struct_fields__ if name != "conversation_items"]
    return ResponseDraft(**{name: getattr(row, name) for name in names})


def request_of(run: BackgroundRun) -> RunRequest:
    """Return what a run is to ask. Raises UnreadableSecretError."""
    row = run.response
    return msgspec.convert(decrypt_json(run.sealed_request, row.project_id, _place(row.id)), RunRequest)


def mark_started(response_id: str, owner: str, sealed_response: str) -> bool:
    """Take note that a response is in progress; tell whether its run is still this process's."""
    rows = StoredResponse.objects.filter(pk=response_id, run__lease_owner=owner)
    return bool(rows.update(status=ResponseStatus.IN_PROGRESS, sealed_response=sealed_response))


def end(
    response_id: str, owner: str, outcome: EncryptedOutcome, conversation_items: Sequence[tuple[str, str, int]] = ()
) -> bool:
    """Store how a run ended, if it is still the owner's and was not cancelled or deleted; return whether it was.

    Raises DatabaseError.
    """
    with transaction.atomic():
        rows = BackgroundRun.objects.select_for_update(of=("self",)).select_related("response")
        run = rows.filter(pk=response_id, lease_owner=owner).first()
        if run is None:
            return False
        StoredResponse.objects.filter(pk=response_id).update(**msgspec.structs.asdict(outcome))
        if run.response.conversation_id is not None and conversation_items:
            response_rows.append(run.response.project_id, run.response.conversation_id, conversation_items)
        run.delete()
        return True


def renew(owner: str, response_ids: Collection[str]) -> set[str]:
    """Keep a process's leases on what it answers; return those of the responses that are still its to answer.

    A run that the process holds and no longer answers is left for another process to take over.
    """
    mine = BackgroundRun.objects.filter(pk__in=response_ids, lease_owner=owner)
    mine.update(lease_until=_lease_end())
    return set(mine.values_list("response_id", flat=True))


def hand_over(owner: str) -> None:
    """Let others take over at once what a process has not ended; it counts as no attempt."""
    BackgroundRun.objects.filter(lease_owner=owner).update(lease_until=Now(), attempts=F("attempts") - 1)


def put_off(response_id: str, owner: str, seconds: float) -> None:
    """Let a run wait for so many seconds; it counts as no attempt."""
    BackgroundRun.objects.filter(pk=response_id, lease_owner=owner).update(
        lease_owner="", lease_until=Now() + timedelta(seconds=seconds), attempts=F("attempts") - 1
    )


def take_over(
    owner: str, most: int, answered_here: Collection[str], *, full: Collection[UUID], of_one: int
) -> list[BackgroundRun]:
    """Make at most so many runs whose lease is over this process's own, but for what it answers; return them.

    One of each organization, then another of each, and `of_one` at most; none of those that are `full` here.
    """
    due = BackgroundRun.objects.filter(lease_until__lte=Now()).exclude(pk__in=answered_here)
    if not due.exists():
        # Nearly always: every worker looks every few seconds.
        return []
    turn = Window(RowNumber(), partition_by="response__organization_id", order_by="lease_until")
    due = due.exclude(response__organization_id__in=full).annotate(turn=turn).filter(turn__lte=of_one)
    chosen = list(due.order_by("turn", "lease_until").values_list("pk", flat=True)[:most])
    with transaction.atomic():
        rows = BackgroundRun.objects.select_for_update(skip_locked=True, of=("self",)).select_related("response")
        runs = list(rows.filter(pk__in=chosen, lease_until__lte=Now()))
        runs.sort(key=lambda run: chosen.index(run.pk))
        BackgroundRun.objects.filter(pk__in=[run.pk for run in runs]).update(
            lease_owner=owner, lease_until=_lease_end(), attempts=F("attempts") + 1
        )
    for run in runs:
        run.lease_owner, run.attempts = owner, run.attempts + 1
    return runs


def cancel(row: StoredResponse, sealed_response: str) -> bool:
    """Store that a response was cancelled, unless it ended before; tell whether it was."""
    with transaction.atomic():
        runs = BackgroundRun.objects.select_for_update().filter(pk=row.pk)
        if not runs.exists():
            return False
        StoredResponse.objects.filter(pk=row.pk).update(
            status=ResponseStatus.CANCELLED, sealed_response=sealed_response
        )
        runs.delete()
        return True


def _lease_end() -> Any:
    return Now() + timedelta(seconds=settings.BACKGROUND_LEASE)


def _place(response_id: str) -> str:
    return f"response:{response_id}:request"


log = structlog.get_logger(__name__)


class LeasedJob(Protocol):
    """Something that this process answers under a lease."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it is left to stop."""

    def stop(self) -> None:
        """End it here: another process has it, or it is gone."""

    def abandon(self) -> None:
        """Let go of it without a record, for who takes it over."""


Key = TypeVar("Key", bound=Hashable)
Job = TypeVar("Job", bound=LeasedJob)


class LeasedWork(Generic[Key, Job]):
    """The jobs of this process, by what their leases are kept under.

    `renew` keeps the leases of a worker and returns those that are still its own; `hand_over` lets others take over
    what a worker has not ended. Both may raise DatabaseError. `area` begins the names of lines in the log.
    """

    def __init__(
        self,
        area: str,
        jobs: MutableMapping[Key, Job],
        renew: Callable[[str, Collection[Key]], Collection[Key]],
        hand_over: Callable[[str], object],
    ) -> None:
        self._area, self._jobs = area, jobs
        self._renew, self._hand_over = renew, hand_over
        self._is_renewing = False
        os.register_at_fork(after_in_child=self._start_anew)

    def keep_leases(self) -> None:
        """Renew leases from now on, for as long as the process lives; where it has no greenlets, nothing is renewed."""
        if self._is_renewing or not is_module_patched("socket"):
            return
        self._is_renewing = True
        atexit.register(self.let_go)
        gevent.spawn(self._renew_forever)

    def let_go(self) -> None:
        """Hand over what this process has not ended."""
        for job in list(self._jobs.values()):
            job.abandon()
        if self._jobs:
            try:
                self._hand_over(worker_name())
            except DatabaseError as error:
                log.warning(f"{self._area}.not_handed_over", error=type(error).__name__)

    def _renew_forever(self) -> None:
        while True:
            gevent.sleep(settings.BACKGROUND_LEASE / 10)
            if not self._jobs:
                continue
            held = dict(self._jobs)
            try:
                mine = self._renew(worker_name(), held)
            except (DatabaseError, RedisError, ApiError) as error:
                log.warning(f"{self._area}.not_renewed", error=type(error).__name__)
                continue
            for key, job in held.items():
                if key not in mine and not job.has_ended:
                    job.stop()

    def _start_anew(self) -> None:
        """Reset the state in a forked child, which has none of its parent's greenlets."""
        self._is_renewing = False
        self._jobs.clear()
