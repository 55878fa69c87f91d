"""`manage.py prepare`: bring the database to where this version of the product needs it, before anything is served.

Each step is safe to repeat, by several machines at once, and quick when nothing changed: then migrations are compared
by name alone, and the catalog by a digest.
"""

from __future__ import annotations

import pkgutil
import time
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import run_checks
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import OperationalError, connection
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from redis.exceptions import AuthenticationError, AuthorizationError, RedisError

from apps.catalog.files import InvalidFiles
from apps.catalog.load import load_if_changed
from apps.gateway import dialects
from apps.kernel.postgres.advisory_lock import AdvisoryLock, hold_lock
from apps.kernel.store_urls import address_of
from apps.kernel.valkey.redis import servers_of_money

# Seconds for the store of REDIS_URL to answer, which may be starting at the same time; and between two attempts.
_PATIENCE, _PAUSE = 15.0, 3.0


class Command(BaseCommand):
    """See the module's docstring."""

    help = "Migrate, load the catalog, make the log's partitions, compare balances; in development, the demo account."
    # Those of the settings. All others are of the code: to make them, every view and page would be loaded.
    requires_system_checks = ("settings",)

    def handle(self, *args: Any, **options: Any) -> None:
        """Take every step, and tell of each on a line; in development without what only an operator asks."""
        self._reach_database()
        self._reach_store()
        self._refuse_unfit_stores()
        # Others who prepare the same database wait.
        with hold_lock(AdvisoryLock.PREPARE_DATABASE):
            self.stdout.write(f"database: {_migrate()}")
            self.stdout.write(_load_catalog())
            for step in (f"request log: {_words_of('make_partitions')}", f"balances: {_resync()}"):
                if not settings.DEVELOPMENT or options["verbosity"] > 1:
                    self.stdout.write(step)
            if settings.DEVELOPMENT:
                _words_of("demo")
                self.stdout.write(f"demo account: `{settings.MANAGE_COMMAND} demo` shows it")
            else:
                self.stdout.write(f"static files: {_words_of('collectstatic', interactive=False)}")

    def _reach_database(self) -> None:
        """Raise CommandError when PostgreSQL cannot be reached: what a set-up meets first, and for words."""
        try:
            connection.ensure_connection()
        except OperationalError as error:
            raise CommandError(f"PostgreSQL cannot be reached at DATABASE_URL: {error}".strip()) from error

    def _reach_store(self) -> None:
        """Raise CommandError when the server of REDIS_URL does not answer in time: nothing is served without it."""
        if not settings.REDIS_URL:
            return
        address, deadline = address_of(settings.REDIS_URL), time.monotonic() + _PATIENCE
        while True:
            try:
                for server in servers_of_money():
                    server.ping()
            except RedisError as error:
                refuses = isinstance(error, AuthenticationError | AuthorizationError)
                if refuses or time.monotonic() + _PAUSE > deadline:
                    raise CommandError(_unreachable(address, error, refuses=refuses)) from error
                self.stderr.write(f"waiting for Valkey or Redis at {address} (REDIS_URL): {error}")
                time.sleep(_PAUSE)
            else:
                return

    def _refuse_unfit_stores(self) -> None:
        """Raise CommandError when a store's settings would lose data; print warnings."""
        found = run_checks(tags=["store"], include_deployment_checks=True)
        errors = [message for message in found if message.is_serious()]
        if errors:
            raise CommandError("\n".join(map(str, errors)))
        for message in found:
            self.stderr.write(str(message))


def _unreachable(address: str, error: RedisError, *, refuses: bool) -> str:
    if refuses:
        return f"The server at {address} refuses the credentials in REDIS_URL: {error}"
    return (
        f"Valkey or Redis cannot be reached at {address}, which REDIS_URL names: {error}\n"
        f"Start it there, or correct REDIS_URL; without REDIS_URL, {settings.SERVER_COMMAND} starts a store of its own."
    )


def _migrate() -> str:
    """Apply the migrations that are missing; tell how many."""
    if _migrations_on_disk() <= MigrationRecorder(connection).applied_migrations().keys():
        return "up to date"
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if not missing:
        return "up to date"
    call_command("migrate", verbosity=0, interactive=False)
    return f"applied {len(missing)} migrations"


def _migrations_on_disk() -> set[tuple[str, str]]:
    """Return the migrations of all apps by app and name, which is how they are recorded, without loading them."""
    found: set[tuple[str, str]] = set()
    for app in apps.get_app_configs():
        place = MigrationLoader.migrations_module(app.label)[0] or ""
        try:
            package = import_module(place)
        except ModuleNotFoundError:
            continue  # An app without tables.
        modules = pkgutil.iter_modules(getattr(package, "__path__", ()))
        found |= {(app.label, name) for _, name, is_package in modules if not is_package}
    return found


def _load_catalog() -> str:
    """Load the catalog unless neither its files nor its rows have changed; tell what changed."""
    try:
        loaded = load_if_changed(settings.GATEWAY_HOME / "catalog.digest", [Path(dialects.__file__).parent])
    except InvalidFiles as error:
        raise CommandError(str(error)) from error
    return "catalog: up to date" if loaded is None else str(loaded)


def _resync() -> str:
    """Compare the copies of balances: the database, or Valkey, may be older than when it was last used."""
    try:
        return _words_of("resync_balances")
    except CommandError as error:
        return f"not compared, the settler will. {error}"


def _words_of(command: str, **options: object) -> str:
    said = StringIO()
    call_command(command, stdout=said, **options)
    return said.getvalue().strip()
