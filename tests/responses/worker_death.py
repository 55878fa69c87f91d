"""A worker that dies while it answers a background response, and the one that comes after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from gevent import GreenletExit
from openai import OpenAI

from apps.billing import worker_leases
from apps.billing.worker_leases import worker_name
from apps.responses import background
from apps.responses.background import BackgroundState
from apps.responses.models import BackgroundRun, StoredResponse

MODEL = "sandbox/echo"


@contextmanager
def a_worker_dies(at_event: int = 0) -> Iterator[None]:
    """Let the worker die when it is about to keep an event of this number: nothing of it runs any more."""
    keep, left = BackgroundState.event, [at_event]

    def event(state: BackgroundState, event: dict[str, Any]) -> None:
        if not left[0]:
            for job in background.JOBS.values():
                job.switch.is_abandoned = True
            raise GreenletExit
        left[0] -= 1
        keep(state, event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BackgroundState, "event", event)
        yield
    background.JOBS.clear()


def begin_and_die(openai: OpenAI, *, at_event: int, **fields: Any) -> str:
    """Create a background response whose worker dies; return its id."""
    with a_worker_dies(at_event), pytest.raises(GreenletExit):
        openai.responses.create(**{"model": MODEL, "input": "hello", "background": True, **fields})
    return StoredResponse.objects.get().pk


def become_another_worker() -> None:
    """Leave the dead worker's name behind, with what its lease and its reservations stand for."""
    worker_leases.expire_lease(worker_name())
    worker_name.cache_clear()
    BackgroundRun.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
