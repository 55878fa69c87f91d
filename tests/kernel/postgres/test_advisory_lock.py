"""Jobs that are done by one at a time, and none of which waits for another."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import DatabaseError, connection, transaction

from apps.kernel.postgres.advisory_lock import AdvisoryLock, hold_lock, lock_in_transaction
from gateway_project.configuration.data_directory import PROJECT


def is_free(job: AdvisoryLock) -> bool:
    """Tell whether another connection could begin the job."""
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            # For as long as the statement: the connection goes back to a pool.
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [job.value])
            return bool(cursor.fetchone()[0])
    finally:
        other.close()


def free_jobs() -> set[AdvisoryLock]:
    """Return the jobs that another connection could begin."""
    return {job for job in AdvisoryLock if is_free(job)}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("job", AdvisoryLock)
def test_no_job_keeps_another_waiting(job: AdvisoryLock) -> None:
    """Moving a day of the log takes its time, and no server waits for it to start."""
    with hold_lock(job):
        assert free_jobs() == set(AdvisoryLock) - {job}
    assert free_jobs() == set(AdvisoryLock)
    with transaction.atomic():
        lock_in_transaction(job)
        assert free_jobs() == set(AdvisoryLock) - {job}
    assert free_jobs() == set(AdvisoryLock)


@pytest.mark.django_db(transaction=True)
def test_a_job_that_fails_is_free_again() -> None:
    with pytest.raises(ZeroDivisionError), hold_lock(AdvisoryLock.PREPARE_DATABASE):
        _ = 1 / 0
    assert is_free(AdvisoryLock.PREPARE_DATABASE)


@pytest.mark.django_db(transaction=True)
def test_a_lock_that_was_lost_is_told() -> None:
    """Its connection ended, and another process may have begun the job."""
    with pytest.raises(DatabaseError), hold_lock(AdvisoryLock.PREPARE_DATABASE):
        end_who_holds(AdvisoryLock.PREPARE_DATABASE)
    assert is_free(AdvisoryLock.PREPARE_DATABASE)


def end_who_holds(job: AdvisoryLock) -> None:
    """End the connection that holds a job's lock."""
    question = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = %s"
    with connection.cursor() as cursor:
        cursor.execute(question, [job.value])
        assert cursor.fetchall() == [(True,)]


def test_nobody_picks_a_number_elsewhere() -> None:
    """Two jobs once had the same one."""
    waiting = ("pg_advisory_lock(", "pg_advisory_xact_lock(")
    code = [path for folder in ("apps", "gateway_project") for path in (PROJECT / folder).rglob("*.py")]
    taking = {path.relative_to(PROJECT) for path in code if any(word in path.read_text() for word in waiting)}
    assert taking == {Path("apps/kernel/postgres/advisory_lock.py")}
