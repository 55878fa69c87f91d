"""Leased work: renews a process's leases, stops work whose lease it has lost, and hands over the rest at its end."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Collection, Hashable, MutableMapping
from typing import Generic, Protocol, TypeVar

import gevent
import structlog
from django.conf import settings
from django.db import DatabaseError
from gevent.monkey import is_module_patched
from redis.exceptions import RedisError

from apps.billing.worker_leases import worker_name
from apps.kernel.errors import ApiError

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
