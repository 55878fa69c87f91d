"""The test cluster: PostgreSQL and Valkey of this run only, started before Django reads its settings.

A URL in the environment is used instead of a store of our own, and nothing outside the test database is emptied there.
Its role must be a superuser of PostgreSQL, as that of our own is (`tests/support/restored_database.py`).
"""

from __future__ import annotations

import atexit
import gc
import os
import re
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import django
import hypothesis
import pytest
from django.conf import settings
from django.core.cache import cache
from django.test import TransactionTestCase
from pytest_django import DjangoDbBlocker
from redis import Redis

from gateway_project import embedded
from gateway_project.configuration import env
from tests.stack import prepared_home
from tests.support.process_groups import ProcessGroupScheduling
from tests.support.property_examples import LONG, MANY
from tests.support.valkey_cluster import ON_CLUSTER, ValkeyCluster

_MADE_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_made = [name for name in ("DATABASE_URL", "REDIS_URL", "CACHE_URL") if not os.environ.get(name)]
_valkey_is_ours = "REDIS_URL" in _made
_run = ExitStack()
# Not a pytest hook: those are not called when the run ends while it is being configured.
atexit.register(_run.close)
_stores = _run.enter_context(embedded.throw_away())
if prepared_home.VARIABLE not in os.environ:
    # Here, and in all processes of this run.
    os.environ[prepared_home.VARIABLE] = _run.enter_context(TemporaryDirectory(prefix="gateway-homes-"))
_cluster = None
if os.environ.get(ON_CLUSTER):
    # The suite over a cluster (`script/test --cluster`); Celery keeps to the single server. Tests name the data of one
    # shard; those that are about shards start processes of their own.
    os.environ["VALKEY_SHARDS"] = "1"
    os.environ["CELERY_BROKER_URL"] = env.celery_broker_url(_stores.redis_url, database=1)
    _cluster = ValkeyCluster(_stores.home / "cluster")
    _run.callback(_cluster.close)
os.environ.update(
    DJANGO_SETTINGS_MODULE="gateway_project.settings",
    DATABASE_URL=_stores.database_url,
    REDIS_URL=_stores.redis_url if _cluster is None else _cluster.url,
    CACHE_URL=_stores.cache_url,
    GATEWAY_HOME=str(_stores.home),
    GATEWAY_MODE="development",
    ROUTING_EXPLORATION="0",
)
django.setup()
# Static files are looked up when they are asked for: otherwise every test's client would first look at all of them.
settings.WHITENOISE_AUTOREFRESH = True
# The first one hashes: what makes guesses slow would make most tests of people slow.
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher", *settings.PASSWORD_HASHERS]
_valkey: Redis = Redis.from_url(_stores.redis_url)
_cache: Redis = Redis.from_url(_stores.cache_url)


# How long drawing takes says something about the machine, and nothing about the tested code.
hypothesis.settings.register_profile("suite", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
# Now and then, to meet rare cases; see `tests/support/property_examples.py` for the command.
hypothesis.settings.register_profile(LONG, hypothesis.settings.get_profile("suite"), max_examples=MANY)
hypothesis.settings.load_profile("suite")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Let each process of a run side by side start stores of its own: it must not find this one's."""
    for name in (*_made, "DJANGO_SETTINGS_MODULE"):
        os.environ.pop(name, None)


def pytest_make_parametrize_id(config: pytest.Config, val: object) -> str | None:
    """Name a test the same in every process that collects it: without the ids that were made for it."""
    text = str(val) if isinstance(val, str | UUID) else ""
    return _MADE_ID.sub("some-id", text) if _MADE_ID.search(text) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests that start processes together."""
    return ProcessGroupScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Over a cluster, skip the tests of a single server."""
    elsewhere = pytest.mark.skip(reason="it is about one server")
    for item in items:
        if _cluster is not None and item.get_closest_marker("single_server"):
            item.add_marker(elsewhere)


def pytest_collection_finish() -> None:
    """Exempt all objects from before the first test, the collected tests among them, from later garbage collections."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_earlier_catalog() -> None:
    """Begin every test without trust in the catalog that the test before has read: its rows may be gone."""
    from apps.catalog import catalog_cache

    catalog_cache.process_copy.distrust()


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> None:
    """Stock the catalog, remember how it reads, and restore the database as it is now after each test that commits."""
    from apps.catalog import catalog_cache
    from tests.support import remembered_catalog, restored_database
    from tests.support.shipped_catalog import stock

    catalog_cache.process_copy.read = remembered_catalog.remember(catalog_cache.process_copy.read)
    with django_db_blocker.unblock():
        stock()
        restored_database.remember()
    TransactionTestCase._fixture_teardown = lambda _: restored_database.restore()  # type: ignore[attr-defined]  # private


@pytest.fixture(autouse=True)
def _empty_valkey() -> None:
    """Begin every test with an empty Valkey, the broker's database included, and an empty cache of the process.

    The name of its data stays: otherwise a heartbeat that is due would push the test's own records a second time.
    """
    from apps.kernel.valkey.redis import DATA_NAMES, client

    cache.clear()
    if _valkey_is_ours:
        _valkey.flushall()
        _cache.flushall()
    if _cluster is not None:
        _cluster.flush()
    for name in DATA_NAMES:
        client().set(name, "test run")


@pytest.fixture(autouse=True)
def _no_earlier_health_check() -> None:
    """Begin every test without a result of the test before, which had other stores."""
    from gateway_project.diagnosis.reachability import SHARED_RUNS

    SHARED_RUNS.forget()
