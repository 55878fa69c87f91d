"""Calls to the outside in management: an organization has so many a minute, and a few at a time in one process.

They call addresses that a user has just entered and waits for: MCP servers, log sinks, providers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from uuid import UUID

from apps.kernel.concurrency.fairness import OwnerSlots
from apps.kernel.postgres import database
from apps.organizations.credentials.attempt_rate_limiter import AttemptLimit, count_attempt

PER_ORGANIZATION: Final = AttemptLimit("outside-call:organization", 60)
# Calls of one organization at a time, and seconds that a further one waits for its turn.
AT_ONCE: Final = 4
_PATIENCE: Final = 2.0
_SLOTS: Final = OwnerSlots(AT_ONCE)


@contextmanager
def outside_call(organization_id: UUID) -> Iterator[None]:
    """Call addresses that an organization gave within this block, without a connection to the database.

    Raises RateLimited when the organization has made, or has under way, as many calls as it may.
    """
    count_attempt((PER_ORGANIZATION, str(organization_id)))
    database.release_connection()
    refusal = f"More than {AT_ONCE} addresses are being asked for this organization; try again when they have answered"
    with _SLOTS.slot(organization_id, _PATIENCE, refusal):
        yield
