"""PostgreSQL advisory locks for jobs that must not run concurrently, with one number per job.

Numbers never change: two versions that run side by side during an upgrade must mean the same job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum, unique

from django.db import DatabaseError, connection


@unique
class AdvisoryLock(IntEnum):
    """Jobs that run one at a time."""

    MAKE_PARTITIONS = 7_301_001
    PREPARE_DATABASE = 7_301_002
    CHANGE_OLDER_LOGS = 7_301_003
    ISSUE_INVOICE = 7_301_004
    STORE_PROVIDER_BILL = 7_301_005
    LOAD_CATALOG = 0x0CA7A106


@contextmanager
def hold_lock(job: AdvisoryLock) -> Iterator[None]:
    """Run the block while holding the job's lock; wait for the current holder.

    The lock ends with the block, or when the process dies. A transaction on a separate, unpooled connection holds it,
    because PgBouncer may run each transaction of the block on another connection. Raises DatabaseError, also after the
    block if the lock was lost meanwhile.
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
        # Closing alone releases the lock only when the server notices.
        with suppress(DatabaseError):
            own.rollback()
        raise
    finally:
        own.close()


def lock_in_transaction(job: AdvisoryLock) -> None:
    """Take the job's lock until the current transaction ends; wait for the current holder."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [job.value])
