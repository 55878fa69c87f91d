"""PostgreSQL advisory locks: jobs that must not run twice at once, each with its number in one enum.

Knows every such job by name. Must never know what a job does. Numbers stay as they are: two versions of the product
that run side by side during an upgrade must mean the same job by the same number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum, unique

from django.db import DatabaseError, connection


@unique
class AdvisoryLock(IntEnum):
    """What is done by one at a time."""

    MAKE_PARTITIONS = 7_301_001
    PREPARE_DATABASE = 7_301_002
    CHANGE_OLDER_LOGS = 7_301_003
    ISSUE_INVOICE = 7_301_004
    LOAD_CATALOG = 0x0CA7A106


@contextmanager
def hold_lock(job: AdvisoryLock) -> Iterator[None]:
    """Do the block while nobody else does the job, waiting for whoever does.

    The lock ends with the block, or when the process dies. A transaction holds it, on a connection of its own that does
    nothing else and counts in no pool: PgBouncer may carry out each transaction of the block on another connection.
    Raises DatabaseError, also after the block where the lock was lost meanwhile.
    """
    own = connection.copy()
    own.settings_dict["OPTIONS"].pop("pool", None)
    try:
        own.set_autocommit(False)
        with own.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [job.value])
            yield
        own.commit()
    except BaseException:
        # Closing alone frees the lock only once the server has noticed.
        with suppress(DatabaseError):
            own.rollback()
        raise
    finally:
        own.close()


def lock_in_transaction(job: AdvisoryLock) -> None:
    """Wait for whoever does the job, and be the only one until the transaction under way ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [job.value])
