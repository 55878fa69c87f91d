"""Checks of a deployment: stores, migrations, catalog, credentials, clocks, disk, queue, tasks, ledger, the node.

A check that fails is reported and the next one runs. Reads only, and never prints a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from django.conf import settings
from django.db import DatabaseError

from apps.kernel.secrets.redaction import redact_forms
from gateway_project.observability.doctor import database, node, replica, store, work
from gateway_project.observability.doctor.diagnosis import Diagnosis, State, wrong

# Characters of a foreign error message that are repeated.
_MAX_WORDS = 300

_Question = Callable[[], Iterator[Diagnosis]]
_OF_DATABASE: tuple[tuple[str, _Question], ...] = (
    ("replica", replica.servers),
    ("migrations", database.migrations),
    ("catalog", database.catalog),
    ("credentials", node.credentials),
    ("ledger", database.ledger),
)
_OF_STORE: tuple[tuple[str, _Question], ...] = (
    ("cache", store.cache),
    ("queue", work.queue),
    ("tasks", work.tasks),
)
_OF_NODE: tuple[tuple[str, _Question], ...] = (
    ("disk", node.disk),
    ("server", node.server),
    ("telemetry", node.telemetry),
)


def examine() -> list[Diagnosis]:
    """Return the findings by subject; checks that need a store which does not answer are left out."""
    found = _ask("database", database.server)
    if _is_usable(found):
        found += [one for subject, question in _OF_DATABASE for one in _ask(subject, question)]
    answers = _ask("valkey", store.server)
    found += answers
    if _is_usable(answers):
        found += [one for subject, question in _OF_STORE for one in _ask(subject, question)]
    return found + [one for subject, question in _OF_NODE for one in _ask(subject, question)]


def _is_usable(found: list[Diagnosis]) -> bool:
    """Tell whether a store answered: its first finding says so."""
    return found[0].state is not State.WRONG


def _ask(subject: str, question: _Question) -> list[Diagnosis]:
    try:
        return list(question())
    except Exception as error:  # noqa: BLE001 - whatever goes wrong with a question is an answer to it
        return [wrong(subject, f"could not be examined: {words_of(error)}")]
    finally:
        if subject != "valkey":
            _release()


def words_of(error: Exception) -> str:
    """Return what an error says, on one line and without a secret."""
    words = " ".join(f"{type(error).__name__}: {error}".split())[:_MAX_WORDS]
    for secret in _secrets():
        words = words.replace(secret, "***")
    return redact_forms(words)


def _secrets() -> Iterator[str]:
    """Yield the passwords of the stores."""
    from urllib.parse import parse_qs, unquote

    from apps.kernel.valkey.redis_cluster_url import split_url

    stores = (settings.DATABASE_URL, settings.REDIS_URL, settings.CELERY_BROKER_URL, settings.CLICKHOUSE_URL)
    for url in (*stores, *settings.DATABASE_REPLICA_URLS):
        parts = split_url(url)
        # Sentinels have a password of their own.
        for password in (parts.password, *parse_qs(parts.query).get("sentinel_password", [])):
            if password:
                yield from {password, unquote(password)}


def _release() -> None:
    from apps.kernel.postgres.database import release_connection

    try:
        release_connection()
    except DatabaseError:
        # There was none.
        pass
