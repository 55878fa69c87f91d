"""Environment variables, validated: a bad value names itself and says what would be right.

Knows how a variable is read and where development secrets are kept. Must never know what the settings mean.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import environ
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured

env = environ.Env()

DEVELOPMENT, PRODUCTION = "development", "production"


def choice(name: str, choices: tuple[str, ...], default: str) -> str:
    """Return one of `choices`. Raises ImproperlyConfigured naming them."""
    value = str(env.str(name, default=default))
    if value not in choices:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(choices)}; it is {value!r}")
    return value


def _number(name: str, read: Callable[..., Any], default: float, low: float, high: float) -> Any:
    try:
        value = read(name, default=default)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} must be a number; it is {os.environ[name]!r}") from error
    if not low <= value <= high:
        raise ImproperlyConfigured(f"{name} must be between {low:g} and {high:g}; it is {value:g}")
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
    text = str(env.str(name, default=default))
    try:
        amount = Decimal(text)
    except InvalidOperation as error:
        raise ImproperlyConfigured(f"{name} must be an amount in USD; it is {text!r}") from error
    if not (amount.is_finite() and 0 <= amount <= high):
        raise ImproperlyConfigured(f"{name} must be between 0 and {high} USD; it is {text}")
    return amount


def boolean(name: str, default: bool) -> bool:
    """Return true/false. Raises ImproperlyConfigured for any other word."""
    value = str(env.str(name, default=str(default))).strip().lower()
    if value in {"1", "true", "yes", "on"}:
        return True
    if value in {"0", "false", "no", "off", ""}:
        return False
    raise ImproperlyConfigured(f"{name} must be true or false; it is {value!r}")


def words(name: str, default: tuple[str, ...] = ()) -> list[str]:
    """Return a comma-separated list without blanks."""
    return [word.strip() for word in str(env.str(name, default=",".join(default))).split(",") if word.strip()]


def secret(name: str, mode: str, home: Path, make: Callable[[], str] = lambda: secrets.token_urlsafe(48)) -> str:
    """Return a secret from the environment; in development, one made on first use and kept in `home/secrets.json`.

    Raises ImproperlyConfigured in production when the variable is not set.
    """
    value = str(env.str(name, default=""))
    if value:
        return value
    if mode == PRODUCTION:
        raise ImproperlyConfigured(f"{name} must be set in production")
    return _kept(home / "secrets.json", name, make)


def url_of_extra(name: str, module: str, extra: str) -> str:
    """Return a URL that is of use with an optional package only, or nothing. Raises ImproperlyConfigured without it."""
    value = str(env.str(name, default=""))
    if value and find_spec(module) is None:
        raise ImproperlyConfigured(f"{name} needs the extra {extra!r}: pip install 'model-gateway[{extra}]'")
    return value


def fernet_key() -> str:
    """Return a new key for the encryption of provider credentials."""
    return Fernet.generate_key().decode()


def celery_broker_url(redis_url: str, database: int) -> str:
    """Return the broker URL on the same server in another database; in memory when there is no server."""
    if not redis_url:
        return "memory://"
    parts = urlsplit(redis_url)
    if parts.scheme == "unix":
        return f"redis+socket://{parts.path}?virtual_host={database}"
    return urlunsplit(parts._replace(path=f"/{database}"))


def _kept(path: Path, name: str, make: Callable[[], str]) -> str:
    """Return the secret kept under `name`; several processes may start at once, and all must agree."""
    import fcntl

    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read()
        kept: dict[str, str] = json.loads(text) if text else {}
        if name not in kept:
            kept[name] = make()
            file.seek(0)
            json.dump(kept, file)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        return kept[name]
