"""The migration of sessions: each existing partition gets its indexes, also when an earlier run was interrupted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.db import connection

from apps.logs import partitions
from apps.logs.models import RequestLog
from tests.logs.entries import ago, entry, id_at, write

pytestmark = pytest.mark.django_db(transaction=True)

# Attached and valid indexes of sessions, by partition.
_ATTACHED = """
    SELECT part.relname, parent.relname, pg_index.indisvalid FROM pg_inherits
    JOIN pg_index ON pg_index.indexrelid = pg_inherits.inhrelid
    JOIN pg_class part ON part.oid = pg_index.indrelid
    JOIN pg_class parent ON parent.oid = pg_inherits.inhparent
    WHERE parent.relname IN ('log_session', 'log_with_session')
"""


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """The tables of the version before, and at the end those of this one."""
    call_command("migrate", "logs", "0007", verbosity=0)
    yield
    call_command("migrate", "logs", verbosity=0)


def attached() -> set[tuple[str, str, bool]]:
    with connection.cursor() as cursor:
        cursor.execute(_ATTACHED)
        return set(cursor.fetchall())


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_every_partition_has_valid_indexes(is_interrupted: bool) -> None:
    days = partitions.ensure({ago(days=one).date() for one in (0, 1, 400)}) or partitions.existing()
    names = {partitions.name_of(day) for day in {*days, *partitions.existing()}}
    if is_interrupted:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE request_log ADD COLUMN session_id varchar(255) NULL")
            cursor.execute(
                "CREATE INDEX log_session ON ONLY request_log (organization_id, session_id, created_at, id) "
                "WHERE session_id IS NOT NULL"
            )
            for name in sorted(names)[:2]:
                cursor.execute(f"CREATE INDEX {name}_log_session ON {name} (id)")
    call_command("migrate", "logs", verbosity=0)
    assert attached() == {(name, index, True) for name in names for index in ("log_session", "log_with_session")}
    [identifier] = write(entry(id=id_at(ago(days=1)), session_id="run"))
    assert RequestLog.objects.get(pk=identifier).session_id == "run"
