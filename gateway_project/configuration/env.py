"""Environment variables, validated: the error for a bad value names the variable and the allowed values.

The first bad value is raised. To report all of them at once, a caller collects problems; each reader then
returns a placeholder. Also keeps the secrets of development.
"""

from __future__ import annotations

import json
import os
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal, InvalidOperation
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import environ
from django.core.exceptions import ImproperlyConfigured

from apps.kernel.store_urls import (
    POSTGRES_SCHEMES,
    celery_url,
    is_cluster_url,
    is_sentinel_url,
    names_several,
    read_hosts,
    read_replicas,
    read_sentinel_url,
    read_several,
)

env = environ.Env()

DEVELOPMENT, PRODUCTION = "development", "production"
# Modules of the package's optional extras, as in `pyproject.toml`.
EXTRAS = {"clickhouse": "clickhouse-connect>=1.12,<2"}


Value = TypeVar("Value")

_collected: ContextVar[list[str] | None] = ContextVar("problems of the environment", default=None)


@contextmanager
def collect_problems() -> Iterator[list[str]]:
    """Yield the list to which every problem is added that is met within, in place of being raised."""
    problems: list[str] = []
    token = _collected.set(problems)
    try:
        yield problems
    finally:
        _collected.reset(token)


def refuse(problem: str, stand_in: Value, cause: Exception | None = None) -> Value:
    """Raise ImproperlyConfigured; while problems are collected, return a placeholder for the bad value."""
    problems = _collected.get()
    if problems is None:
        raise ImproperlyConfigured(problem) from cause
    problems.append(problem)
    return stand_in


def text(name: str, default: str = "") -> str:
    """Return a text, whatever it says."""
    return str(env.str(name, default=default))


def choice(name: str, choices: tuple[str, ...], default: str) -> str:
    """Return one of `choices`. Raises ImproperlyConfigured naming them."""
    value = text(name, default)
    if value not in choices:
        return refuse(f"{name} must be one of {', '.join(choices)}; it is {value!r}", default)
    return value


def _number(name: str, read: Callable[..., Any], default: float, low: float, high: float) -> Any:
    try:
        value = read(name, default=default)
    except ValueError as error:
        return refuse(f"{name} must be a number; it is {os.environ[name]!r}", default, error)
    if not low <= value <= high:
        return refuse(f"{name} must be between {low:,.15g} and {high:,.15g}; it is {value:,.15g}", default)
    return value


def integer(name: str, default: int, low: int, high: int) -> int:
    """Return a whole number within bounds. Raises ImproperlyConfigured."""
    return int(_number(name, env.int, default, low, high))


def optional_integer(name: str, low: int, high: int) -> int | None:
    """Return a whole number within bounds, None when it is not set. Raises ImproperlyConfigured."""
    return integer(name, low, low, high) if os.environ.get(name) else None


def seconds(name: str, default: float, high: float = 3600) -> float:
    """Return a positive duration in seconds. Raises ImproperlyConfigured."""
    return float(_number(name, env.float, default, 0.001, high))


def share(name: str, default: float) -> float:
    """Return a number from 0 to 1. Raises ImproperlyConfigured."""
    return float(_number(name, env.float, default, 0, 1))


def usd(name: str, default: str, high: int) -> Decimal:
    """Return an exact amount, not below 0. Raises ImproperlyConfigured."""
    given = text(name, default)
    try:
        amount = Decimal(given)
    except InvalidOperation as error:
        return refuse(f"{name} must be an amount in USD; it is {given!r}", Decimal(default), error)
    if not (amount.is_finite() and 0 <= amount <= high):
        return refuse(f"{name} must be between 0 and {high} USD; it is {given}", Decimal(default))
    return amount


def boolean(name: str, default: bool) -> bool:
    """Return true/false. Raises ImproperlyConfigured for any other word."""
    value = text(name, str(default)).strip().lower()
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off", ""}:
        return False
    return refuse(f"{name} must be true or false; it is {value!r}", default)


def words(name: str, default: tuple[str, ...] = ()) -> list[str]:
    """Return a comma-separated list without blanks."""
    return [word.strip() for word in text(name, ",".join(default)).split(",") if word.strip()]


def directory(name: str) -> Path | None:
    """Return a folder's absolute path, None when it is not set. Raises ImproperlyConfigured if it is no folder."""
    if not (value := text(name)):
        return None
    path = Path(value).expanduser().absolute()
    return path if path.is_dir() else refuse(f"{name} must name a folder; there is none at {path}", None)


def secret(name: str, mode: str, home: Path, make: Callable[[], str] = lambda: secrets.token_urlsafe(48)) -> str:
    """Return a secret from the environment; in development, one made on first use and kept in `home/secrets.json`.

    Raises ImproperlyConfigured in production when the variable is not set.
    """
    value = text(name)
    if value:
        return value
    if mode == PRODUCTION:
        return refuse(f"{name} must be set in production", make())
    return _kept(home / "secrets.json", name, make)


def store_url(name: str, schemes: tuple[str, ...], fallback: str = "") -> str:
    """Return a store's URL, `fallback` where none is set. Raises ImproperlyConfigured for a kind that is not supported:
    other stores, several hosts in one URL unless they are PostgreSQL's, a cluster's or sentinels."""
    value = text(name) or fallback
    if not value:
        return ""
    scheme, _, rest = value.partition("://")
    if scheme not in schemes:
        fault = f"it begins with {scheme}://" if rest else "it is no URL"
        return refuse(f"{name} must begin with {', '.join(f'{one}://' for one in schemes)}; {fault}", "")
    if is_cluster_url(value):
        try:
            read_hosts(value)
        except ValueError as error:
            return refuse(f"{name} does not name a cluster: {error}", "", error)
        return value
    if is_sentinel_url(value):
        try:
            read_sentinel_url(value)
        except ValueError as error:
            return refuse(f"{name} does not name sentinels: {error}", "", error)
        return value
    if names_several(value):
        if scheme in POSTGRES_SCHEMES:
            try:
                read_several(value)
            except ValueError as error:
                return refuse(f"{name} does not name a primary and its replicas: {error}", "", error)
            return value
        return refuse(f"{name} must name one server; a list of hosts is not supported", "")
    return value


def email(name: str) -> dict[str, Any]:
    """Return Django's settings of how e-mail is sent: into the log unless the variable says otherwise.

    Raises ImproperlyConfigured, without a word of what may hold a password.
    """
    unset = "consolemail://"
    scheme = text(name, unset).partition("://")[0]
    if scheme not in env.EMAIL_SCHEMES:
        known = ", ".join(f"{one}://" for one in env.EMAIL_SCHEMES)
        return refuse(f"{name} must be a URL that begins with one of {known}", env.email_url_config(unset))
    if scheme == "filemail":
        # The library would take the path as relative, and messages would lie in the program's own folder.
        parts = urlsplit(text(name))
        folder = unquote(parts.path)
        if parts.netloc or len(folder) < 2:
            shown = "filemail:///var/spool/gateway-mail"
            return refuse(f"{name} must name a folder by its whole path, as in {shown}", env.email_url_config(unset))
        return {**env.email_url(name), "EMAIL_FILE_PATH": folder}
    return dict(env.email_url(name, default=unset))


def database(url: str) -> dict[str, Any]:
    """Return Django's description of the database at a URL that `store_url` has let pass."""
    if not names_several(url):
        return dict(env.db_url_config(url))
    several = read_several(url)
    found = dict(env.db_url_config(several.url))
    options = {**found.get("OPTIONS", {}), "target_session_attrs": several.role}
    return {**found, "HOST": several.host, "PORT": several.port, "OPTIONS": options}


def replica_urls(name: str) -> list[str]:
    """Return the URLs of read replicas. Raises ImproperlyConfigured."""
    try:
        return read_replicas(text(name))
    except ValueError as error:
        return refuse(f"{name} must name read replicas, separated by commas: {error}", [], error)


def url_of_extra(name: str, module: str, extra: str) -> str:
    """Return a URL that is of use with an optional package only, or nothing. Raises ImproperlyConfigured without it."""
    value = text(name)
    if value and find_spec(module) is None:
        wanted = EXTRAS[extra]
        return refuse(f"{name} needs the extra {extra!r}: install {wanted!r}, or the gateway with that extra", "")
    return value


def fernet_key() -> str:
    """Return a new key for the encryption of provider credentials: a Fernet key."""
    return urlsafe_b64encode(secrets.token_bytes(32)).decode()


def celery_broker_url(redis_url: str, database: int) -> str:
    """Return CELERY_BROKER_URL, else the same server in another database; in memory when there is no server.

    Raises ImproperlyConfigured for a cluster without one: Celery cannot keep its queues there.
    """
    own = store_url("CELERY_BROKER_URL", ("redis", "rediss", "redis+socket"))
    if own:
        return own
    if is_cluster_url(redis_url):
        problem = "CELERY_BROKER_URL must be set, for REDIS_URL is a cluster, in which Celery cannot keep its queues"
        return refuse(f"{problem}: name a single server, such as redis://host:6379/0", "memory://")
    if is_sentinel_url(redis_url):
        return celery_url(read_sentinel_url(redis_url), database)
    if not redis_url:
        return "memory://"
    parts = urlsplit(redis_url)
    if parts.scheme == "unix":
        return f"redis+socket://{parts.path}?virtual_host={database}"
    return urlunsplit(parts._replace(path=f"/{database}"))


def shard_count(stated: int, redis_url: str) -> int:
    """Return into how many shards the store is divided, which only a cluster can be. Raises ImproperlyConfigured."""
    if stated > 1 and not is_cluster_url(redis_url):
        return refuse(f"VALKEY_SHARDS is {stated}, and REDIS_URL is not a cluster: leave it out", 1)
    return stated


def _kept(path: Path, name: str, make: Callable[[], str]) -> str:
    """Return the secret kept under `name`; several processes may start at once, and all must agree."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        content = file.read()
        kept: dict[str, str] = json.loads(content) if content else {}
        if name not in kept:
            kept[name] = make()
            file.seek(0)
            json.dump(kept, file)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        return kept[name]
