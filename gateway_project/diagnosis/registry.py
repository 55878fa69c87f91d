"""All checks of a deployment, in one list, and how each stage makes its part of them.

A check that fails is reported and the next one runs. No finding has a secret.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qs, unquote

from django.conf import settings
from django.core.checks import CheckMessage
from django.db import DatabaseError

from apps.kernel.postgres.database import release_connection
from apps.kernel.secrets.redaction import redact_forms
from apps.kernel.store_urls import split_url
from gateway_project.diagnosis import database, node, reachability, unsafe_settings, valkey, work
from gateway_project.diagnosis.check import Check, Diagnosis, Stage

# Characters of a foreign error message that are repeated.
_MAX_WORDS = 300
_NOT_KEPT = "answers are not kept"

# In the order in which they are reported.
CHECKS: tuple[Check, ...] = (
    Check("settings", Stage.START, unsafe_settings.find_unsafe),
    Check("redis", Stage.HEALTH, reachability.find_redis, is_remote=True),
    Check("database", Stage.HEALTH, reachability.find_database, is_remote=True),
    Check("cache", Stage.HEALTH, reachability.find_cache, is_remote=True, optional=_NOT_KEPT),
    Check("records", Stage.HEALTH, node.find_backlog),
    Check("disk", Stage.HEALTH, node.find_low_disk),
    Check("database", Stage.DOCTOR, database.find_server),
    Check("replica", Stage.DOCTOR, database.find_replicas, needs="database"),
    Check("migrations", Stage.DOCTOR, database.find_migrations, needs="database"),
    Check("catalog", Stage.DOCTOR, database.find_catalog, needs="database"),
    Check("credentials", Stage.DOCTOR, node.find_credentials, needs="database"),
    Check("ledger", Stage.DOCTOR, database.find_ledger, needs="database"),
    Check("reconciliation", Stage.DOCTOR | Stage.DASHBOARD, work.find_reconciliation, needs="database"),
    Check("clearing", Stage.DOCTOR | Stage.DASHBOARD, work.find_clearing, needs="database"),
    Check("bills", Stage.DOCTOR | Stage.DASHBOARD, work.find_bills, needs="database"),
    Check("valkey", Stage.DOCTOR, valkey.find_server),
    Check("valkey address", Stage.DEPLOY | Stage.DOCTOR, valkey.find_misplaced, needs="valkey"),
    Check(
        "valkey data", Stage.DEPLOY | Stage.DOCTOR, valkey.find_unfit, needs="valkey address", refuses_development=False
    ),
    Check("cache", Stage.DOCTOR, valkey.find_cache, needs="valkey", optional=_NOT_KEPT),
    Check(
        "cache bounds", Stage.DEPLOY | Stage.DOCTOR, valkey.find_unfit_cache, needs="valkey", refuses_development=False
    ),
    Check("queue", Stage.DOCTOR | Stage.DASHBOARD, work.find_queue, needs="valkey"),
    Check("tasks", Stage.DOCTOR, work.find_tasks, needs="valkey"),
    Check("disk", Stage.DOCTOR, node.find_disk),
    Check("server", Stage.DOCTOR, node.find_web_process),
    Check("telemetry", Stage.DOCTOR, node.find_collector),
)


def checks_of(stage: Stage) -> list[Check]:
    """Return the checks of a stage that apply in this mode."""
    return [
        one
        for one in CHECKS
        if stage in one.stages and (one.refuses_development or stage is not Stage.DEPLOY or not settings.DEVELOPMENT)
    ]


def examine(stage: Stage) -> list[Diagnosis]:
    """Make the checks of a stage one after the other; those that need one that failed are left out."""
    found: list[Diagnosis] = []
    failed: set[str] = set()
    for check in checks_of(stage):
        if check.needs in failed:
            failed.add(check.name)
            continue
        findings = _make(check)
        if stage is Stage.DOCTOR:
            _release()
        if findings and findings[0].is_error:
            failed.add(check.name)
        found += findings
    return found


def check_settings(app_configs: Sequence[Any] | None = None, **options: Any) -> list[CheckMessage]:
    """Return the problems of the settings, as Django's system checks do."""
    return [one.as_django() for one in examine(Stage.START)]


def check_stores(app_configs: Sequence[Any] | None = None, **options: Any) -> list[CheckMessage]:
    """Return why a deployment must not use its stores, as Django's system checks do."""
    return [one.as_django() for one in examine(Stage.DEPLOY)]


def examine_health(skipped: Collection[str] = ()) -> list[Diagnosis]:
    """Make the checks of a process that serves, except the skipped ones, within seconds.

    Checks of stores run side by side; concurrent callers share them.
    """
    checks = [one for one in checks_of(Stage.HEALTH) if one.name not in skipped]
    runs = {one.name: reachability.SHARED_RUNS.current(one) for one in checks if one.is_remote}
    return [finding for one in checks for finding in (runs[one.name].wait() if one.is_remote else one.find())]


def _make(check: Check) -> list[Diagnosis]:
    try:
        return list(check.find())
    except Exception as error:  # noqa: BLE001 - any error of a check is a finding
        problem = f"could not be examined: {describe_error(error)}"
        if check.optional:
            return [Diagnosis.warning(check.name, f"{problem}; {check.optional}")]
        return [Diagnosis.error(check.name, problem)]


def describe_error(error: Exception) -> str:
    """Return the text of an error, on one line and without a secret."""
    words = " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_WORDS]
    for secret in _secrets():
        words = words.replace(secret, "***")
    return redact_forms(words)


def _secrets() -> Iterator[str]:
    """Yield the passwords of the stores."""
    stores = (settings.DATABASE_URL, settings.REDIS_URL, settings.CELERY_BROKER_URL, settings.CLICKHOUSE_URL)
    for url in (*stores, *settings.DATABASE_REPLICA_URLS):
        parts = split_url(url)
        # Sentinels have a password of their own.
        for password in (parts.password, *parse_qs(parts.query).get("sentinel_password", [])):
            if password:
                yield from {password, unquote(password)}


def _release() -> None:
    try:
        release_connection()
    except DatabaseError:
        # There was none.
        pass
