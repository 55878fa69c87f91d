"""Operations that a migration may not have while the version before still runs, and how long it may hold locks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import connection
from django.db.migrations import Migration, operations
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import NOT_PROVIDED, Field

# Tables that grow with requests: to build an index on one, or to look through it, takes minutes.
LARGE: Final = frozenset(
    {
        ("audit", "organizations", "auditentry"),
        ("batches", "batches", "batchline"),
        ("guardrails", "guardrails", "violation"),
        ("ledger", "billing", "ledgerentry"),
        ("log", "logs", "requestlog"),
        ("log sinks", "log_sinks", "waitingrow"),
        ("responses", "responses", "storedresponse"),
        ("sums", "logs", "activityday"),
        ("sums", "logs", "activitydelta"),
        ("traffic", "logs", "trafficslot"),
        ("traffic", "logs", "trafficdelta"),
    }
)
_LARGE: Final = frozenset((app, model) for _, app, model in LARGE)
# The comment beside a migration that is exempt: it tells the reader why that is safe.
REASON: Final = re.compile(r"^# not expand and contract: (\S.{19,})$", re.MULTILINE)
_GONE: Final = (
    operations.RemoveField,
    operations.RenameField,
    operations.DeleteModel,
    operations.RenameModel,
    operations.AlterModelTable,
)
_SQL: Final = re.compile(
    r"\bDROP\s+(TABLE|COLUMN)|\bRENAME\b|\bSET\s+NOT\s+NULL|\bALTER\s+(COLUMN\s+)?\w+\s+(SET\s+DATA\s+)?TYPE\b"
    r"|\bCREATE\s+(UNIQUE\s+)?INDEX\s+(?!CONCURRENTLY)|\bLOCK\s+TABLE\b|\bTRUNCATE\b|\bVACUUM\s+FULL\b",
    re.IGNORECASE,
)


def find_problems(migration: Migration, before: ProjectState) -> list[str]:
    """Return what a migration does that it may not, in words; `before` are the tables as they were."""
    state, found, made = before.clone(), list[str](), set[tuple[str, str]]()
    for operation in migration.operations:
        after = state.clone()
        operation.state_forwards(migration.app_label, after)
        if isinstance(operation, operations.CreateModel):
            made.add((migration.app_label, operation.name_lower))
        found += _problems_of(operation, migration.app_label, state, after, made)
        state = after
    return found


def _problems_of(
    operation: Operation, app: str, before: ProjectState, after: ProjectState, made: set[tuple[str, str]]
) -> Iterator[str]:
    where = operation.describe()
    if isinstance(operation, operations.SeparateDatabaseAndState):
        for one in operation.database_operations:
            yield from _problems_of(one, app, before, after, made)
        return
    if isinstance(operation, operations.RunSQL):
        words = operation.sql if isinstance(operation.sql, str) else " ".join(map(str, operation.sql))
        if told := _SQL.search(words):
            yield f"SQL says {' '.join(told[0].split())}, which the version before does not survive, or waits for"
        return
    model = str(getattr(operation, "model_name_lower", getattr(operation, "name_lower", "")))
    if (app, model) in made:
        # The version before does not use the new table.
        return
    if isinstance(operation, _GONE):
        yield f"{where}: the version before still asks for it"
    elif isinstance(operation, operations.AddField):
        yield from _of_new_column(operation.field, where)
    elif isinstance(operation, operations.AlterField):
        old = before.apps.get_model(app, model)._meta.get_field(operation.name)
        new = after.apps.get_model(app, model)._meta.get_field(operation.name)
        yield from _of_changed_column(old, new, where)
    elif isinstance(operation, operations.AddIndex) and not isinstance(operation, AddIndexConcurrently):
        if (app, model) in _LARGE:
            yield f"{where}: writers of a large table wait for it; AddIndexConcurrently does not have them wait"
    elif isinstance(operation, operations.AddConstraint) and (app, model) in _LARGE:
        yield f"{where}: a large table is looked through while others wait; AddConstraintNotValid, then validate"


def _of_new_column(field: Field[Any, Any], where: str) -> Iterator[str]:
    if field.many_to_many:
        return
    if not field.null and field.db_default is NOT_PROVIDED:
        yield f"{where}: the version before does not write it; let it be null, or give it a db_default"


def _of_changed_column(old: Any, new: Any, where: str) -> Iterator[str]:
    if old.null and not new.null:
        yield f"{where}: the version before may write null"
    kinds = [one.db_type(connection) for one in (old, new)]
    lengths = [getattr(one, "max_length", None) for one in (old, new)]
    if None not in lengths and type(old) is type(new):
        if lengths[1] < lengths[0]:
            yield f"{where}: the version before may write what is longer"
    elif kinds[0] != kinds[1] and not _is_wider(*kinds):
        yield f"{where}: the table is written anew, and the version before may not read it"


def _is_wider(old: str | None, new: str | None) -> bool:
    """Tell whether PostgreSQL takes one kind of column for another without a look at the rows."""
    return bool(old and new == "text" and old.startswith("varchar"))
