"""Migrations: each leaves the version before it running and blocks no request; one that does not says why."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState

from gateway_project.configuration.data_directory import PROJECT
from tests.support.migration_rules import LARGE, REASON, find_problems

# The last of each app that was made before the rule was.
BEFORE_THE_RULE = {
    "batches": 3,
    "billing": 6,
    "catalog": 3,
    "gateway": 1,
    "guardrails": 2,
    "keys": 2,
    "log_sinks": 2,
    "logs": 5,
    "mcp_servers": 2,
    "oauth": 1,
    "organizations": 10,
    "responses": 1,
}
LOADER = MigrationLoader(None)
OURS = sorted(
    key
    for key, one in LOADER.disk_migrations.items()
    if Path(inspect.getfile(type(one))).is_relative_to(PROJECT / "apps")
)


@pytest.mark.parametrize("key", OURS, ids=lambda key: ".".join(key))
def test_a_migration_leaves_the_version_before_it_running(key: tuple[str, str]) -> None:
    app, name = key
    if int(name[:4]) <= BEFORE_THE_RULE.get(app, 0):
        return
    migration = LOADER.disk_migrations[key]
    source = Path(inspect.getfile(type(migration))).read_text()
    problems = find_problems(migration, LOADER.project_state(list(migration.dependencies)))
    if REASON.search(source):
        assert problems, f"{app}.{name} has a reason to break the rule, and does not break it"
    else:
        assert problems == [], f"{app}.{name}; docs/adr/0210 says what to do instead"


def test_large_tables_are_there() -> None:
    models_known = set(LOADER.project_state().models)
    assert {(app, model) for _, app, model in LARGE} <= models_known


def state() -> ProjectState:
    """A large table, and one that is not."""
    known = ProjectState()
    for app, name in (("logs", "RequestLog"), ("keys", "Thing")):
        fields: list[tuple[str, models.Field]] = [  # type: ignore[type-arg]  # of whatever type
            ("id", models.BigAutoField(primary_key=True)),
            ("word", models.CharField(max_length=20, null=True)),
        ]
        migrations.CreateModel(name, fields).state_forwards(app, known)
    return known


def problems_of(app: str, *asked: Operation) -> list[str]:
    made = type("Migration", (migrations.Migration,), {"operations": list(asked)})(f"{sys.maxsize}_made", app)
    return find_problems(made, state())


INDEX = models.Index(fields=["word"], name="by_word")


@pytest.mark.parametrize(
    ("app", "operation", "wrong"),
    [
        ("keys", migrations.RemoveField("thing", "word"), "the version before still asks for it"),
        ("keys", migrations.RenameField("thing", "word", "name"), "the version before still asks for it"),
        ("keys", migrations.DeleteModel("Thing"), "the version before still asks for it"),
        ("keys", migrations.RenameModel("Thing", "Other"), "the version before still asks for it"),
        ("keys", migrations.AddField("thing", "n", models.IntegerField(default=1)), "does not write it"),
        ("keys", migrations.AlterField("thing", "word", models.CharField(max_length=20)), "may write null"),
        ("keys", migrations.AlterField("thing", "word", models.CharField(max_length=9, null=True)), "is longer"),
        ("keys", migrations.AlterField("thing", "word", models.IntegerField(null=True)), "written anew"),
        ("logs", migrations.AddIndex("requestlog", INDEX), "AddIndexConcurrently"),
        (
            "logs",
            migrations.AddConstraint("requestlog", models.CheckConstraint(condition=~models.Q(word=""), name="c")),
            "AddConstraintNotValid",
        ),
        ("keys", migrations.RunSQL("ALTER TABLE t ALTER COLUMN c SET NOT NULL"), "SQL says SET NOT NULL"),
        ("keys", migrations.RunSQL("create index i on t (c)"), "SQL says create index"),
        ("keys", migrations.RunSQL("ALTER TABLE t RENAME TO u"), "SQL says RENAME"),
    ],
)
def test_what_the_version_before_does_not_survive_is_found(app: str, operation: Operation, wrong: str) -> None:
    [problem] = problems_of(app, operation)
    assert wrong in problem


@pytest.mark.parametrize(
    ("app", "operations"),
    [
        ("keys", [migrations.AddField("thing", "n", models.IntegerField(null=True))]),
        ("keys", [migrations.AddField("thing", "n", models.IntegerField(db_default=1))]),
        ("keys", [migrations.AlterField("thing", "word", models.CharField(max_length=99, null=True))]),
        ("keys", [migrations.AlterField("thing", "word", models.TextField(null=True))]),
        ("keys", [migrations.AddIndex("thing", INDEX)]),
        ("logs", [AddIndexConcurrently("requestlog", INDEX)]),
        ("keys", [migrations.RunSQL("CREATE INDEX CONCURRENTLY i ON t (c)")]),
        (
            "logs",
            [
                migrations.CreateModel("New", [("id", models.BigAutoField(primary_key=True))]),
                migrations.AddField("new", "n", models.IntegerField()),
                migrations.RemoveField("new", "n"),
            ],
        ),
    ],
)
def test_what_the_version_before_survives_is_let_pass(app: str, operations: list[Operation]) -> None:
    assert problems_of(app, *operations) == []


def test_a_reason_is_words() -> None:
    assert REASON.search("# not expand and contract: nobody has asked for it since 0.3\n")
    assert not REASON.search("# not expand and contract: because\n")
