"""Scheduled tasks: each one exists, runs, may run twice and at once, and is counted."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from inspect import signature
from threading import Barrier

import pytest
from celery import Task
from django.db import connection
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from apps.alerts import delivery as alert_delivery
from apps.kernel.valkey.redis import client
from apps.log_sinks import delivery
from apps.logs.models import ActivityDay
from apps.organizations.models import Organization, Plan
from gateway_project.celery import app
from gateway_project.configuration.data_directory import PROJECT
from gateway_project.observability import task_metrics
from tests.logs.entries import ago, entry, id_at, write
from tests.support.cast import World, make_key, world

__all__ = ["world"]

app.loader.import_default_modules()
SCHEDULED = sorted({one["task"] for one in app.conf.beat_schedule.values()})
# Tasks that a worker does at a time.
CONCURRENCY = int(re.findall(r"--concurrency (\d+)", (PROJECT / "Procfile").read_text())[0])
# Rows that say that and when a task ran.
OF_THE_RUN = {"gateway_reconciliation", "gateway_difference", "gateway_clearingaccount", "gateway_balancesheet"}


def state() -> dict[str, list[str]]:
    """Return every row of every table of ours."""
    rows = {}
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names(cursor):
            if table not in OF_THE_RUN:
                cursor.execute(f'SELECT row_to_json("{table}")::text FROM "{table}" ORDER BY 1')
                rows[table] = [text for (text,) in cursor.fetchall()]
    return rows


def something(world: World) -> None:
    """Bring about something to do: rows of today and long past, content that may stay no longer, a deletion."""
    key, sams = make_key(world.olivia, world.project).key, make_key(world.sam, world.elsewhere_project).key
    write(
        entry(key, cost=Decimal("0.5"), content="words", retention_level="retain"),
        entry(key, id=id_at(ago(days=5))),
        entry(sams, id=id_at(ago(days=1))),
    )
    Organization.objects.filter(id=world.acme.id).update(plan=Plan.PRO)
    Organization.objects.filter(id=world.elsewhere.id).update(status=Organization.Status.DELETED)


def numbers() -> dict[str, dict[str, float]]:
    """Return what `/metrics` tells of tasks, by task."""
    response = Client().get("/metrics")
    assert response.status_code == 200
    told: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(response.content.decode()):
        if family.name.startswith("gateway_task_"):
            for sample in family.samples:
                told.setdefault(sample.labels["task"], {})[sample.name.removeprefix("gateway_task_")] = sample.value
    return told


def test_every_scheduled_task_exists_and_cannot_run_forever() -> None:
    # Past it the broker hands the message to another worker.
    assert app.conf.timezone == "UTC"
    visible = app.conf.broker_transport_options["visibility_timeout"]
    assert {
        name for name, one in app.conf.beat_schedule.items() if not 0 < one["options"]["expires"] <= 86_400
    } == set()
    limits = {name: app.tasks[name].time_limit or 0 for name in SCHEDULED}
    assert {name for name, limit in limits.items() if not 0 < limit < visible} == set()


def test_no_message_of_a_tenant_waits_in_the_broker_but_for_receivers() -> None:
    """Tasks look for what there is to do, and take turns; of receivers so many are asked for at a time."""
    ours = {name: task for name, task in app.tasks.items() if not name.startswith("celery.")}
    assert {name for name, task in ours.items() if signature(task.run).parameters} == {
        "alerts.deliver",
        "log_sinks.deliver",
    }
    # Some of the worker's greenlets are left to everything else.
    assert delivery.AT_ONCE + alert_delivery.AT_ONCE < CONCURRENCY


@pytest.mark.django_db
@pytest.mark.parametrize("name", SCHEDULED)
def test_a_task_runs_and_a_second_time_changes_nothing(world: World, name: str) -> None:
    something(world)
    task = app.tasks[name]
    task()
    once = state()
    task()
    assert state() == once
    assert (numbers()[name]["runs_total"], numbers()[name]["failures_total"]) == (2, 0)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["logs.roll_up", "logs.expire", "logs.blank", "logs.make_partitions"])
def test_two_at_once_do_what_one_does(world: World, name: str) -> None:
    something(world)
    start = Barrier(2)

    def run() -> None:
        start.wait()
        try:
            app.tasks[name]()
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(run) for _ in range(2)]:
            done.result()
    at_once = state()
    app.tasks[name]()
    assert state() == at_once
    if name == "logs.roll_up":
        every = ActivityDay.EVERY
        whole = ActivityDay.objects.exclude(organization_id=world.elsewhere.id).filter(project_id=every)
        assert sorted(whole.values_list("request_count", "cost")) == [(1, 0), (1, Decimal("0.5"))]


def test_a_failure_is_counted_and_the_next_run_is_a_new_one() -> None:
    answers = iter([RuntimeError("no"), None])

    @app.task(name="tests.fails_once")
    def fails_once() -> None:
        answer = next(answers)
        if answer:
            raise answer

    try:
        with pytest.raises(RuntimeError):
            fails_once()
        failed = numbers()["tests.fails_once"]
        assert (failed["runs_total"], failed["failures_total"], "success_age_seconds" in failed) == (1, 1, False)
        fails_once()
        after = numbers()["tests.fails_once"]
        assert (after["runs_total"], after["failures_total"]) == (2, 1)
        assert 0 <= after["success_age_seconds"] < 60
        assert after["seconds_total"] > 0
    finally:
        del app.tasks["tests.fails_once"]


def test_a_scheduled_task_that_never_succeeded_is_as_old_as_the_schedule() -> None:
    task_metrics.plan(dict.fromkeys(SCHEDULED, 60.0))
    client().hset("tasks", "logs.expire planned_at", time.time() - 7_200)
    task_metrics.plan(dict.fromkeys(SCHEDULED, 60.0))
    told = numbers()
    assert set(told) == set(SCHEDULED)
    assert 7_200 <= told["logs.expire"]["success_age_seconds"] < 7_300
    assert told["logs.blank"] == {
        "runs_total": 0,
        "failures_total": 0,
        "seconds_total": 0,
        "success_age_seconds": (pytest.approx(0, abs=60)),
    }


def test_a_worker_counts_its_tasks_too(world: World) -> None:
    """As a worker calls them, not as a function."""
    result = app.tasks["logs.make_partitions"].apply()
    assert result.successful()
    assert numbers()["logs.make_partitions"]["runs_total"] == 1
    assert isinstance(app.tasks["logs.make_partitions"], Task)
