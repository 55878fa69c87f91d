"""Which settings are not fit to serve with. In production an error here keeps every process from starting.

Knows what is unsafe, and says what would be right. Must never repeat a secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from cryptography.fernet import Fernet
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured

# Characters.
_SHORTEST_SECRET = 40


def check_settings(app_configs: Sequence[Any] | None = None, **options: Any) -> list[CheckMessage]:
    """Return what is wrong, as Django's system checks do."""
    found = list(_any_mode())
    if not settings.DEVELOPMENT:
        found += [*_errors_of_production(), *_warnings_of_production()]
    return found


def refuse_unsafe() -> None:
    """Raise ImproperlyConfigured naming every error: for processes that start without Django's own checks."""
    errors = [message for message in check_settings() if message.is_serious()]
    if errors:
        raise ImproperlyConfigured("\n".join(["These settings are not safe to serve with:", *map(str, errors)]))


def _any_mode() -> Iterator[CheckMessage]:
    if not all(_is_fernet_key(key) for key in settings.ENCRYPTION_KEYS):
        yield Error(
            "ENCRYPTION_KEYS has a key that is not a Fernet key.",
            hint="Each is 32 bytes in URL-safe base64, newest first, separated by commas; `Fernet.generate_key()` "
            "makes one.",
            id="gateway.E001",
        )


def _errors_of_production() -> Iterator[CheckMessage]:
    if not settings.ALLOWED_HOSTS or "*" in settings.ALLOWED_HOSTS:
        yield Error("ALLOWED_HOSTS must name the hosts that are served.", hint="`*` is not one.", id="gateway.E002")
    if len(settings.SECRET_KEY) < _SHORTEST_SECRET:
        yield Error(f"SECRET_KEY must have at least {_SHORTEST_SECRET} characters.", id="gateway.E003")
    if len(settings.API_KEY_PEPPER) < _SHORTEST_SECRET:
        yield Error(f"API_KEY_PEPPER must have at least {_SHORTEST_SECRET} characters.", id="gateway.E004")
    if not settings.DATABASE_URL:
        yield Error("DATABASE_URL must name the PostgreSQL database.", id="gateway.E005")
    if not settings.REDIS_URL:
        yield Error("REDIS_URL must name the Redis or Valkey server.", id="gateway.E006")


def _warnings_of_production() -> Iterator[CheckMessage]:
    if urlsplit(settings.PUBLIC_URL).scheme != "https":
        yield Warning(
            "PUBLIC_URL is not https.",
            hint="Keys and passwords would cross the network in clear; cookies are not marked secure.",
            id="gateway.W001",
        )
    if not settings.METRICS_TOKEN:
        yield Warning("METRICS_TOKEN is not set: /metrics answers anyone.", id="gateway.W002")
    if settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES:
        yield Warning(
            "GATEWAY_ALLOW_PRIVATE_ADDRESSES lets tenants' URLs reach into the private network.", id="gateway.W003"
        )


def _is_fernet_key(text: str) -> bool:
    try:
        Fernet(text.strip())
    except ValueError:
        return False
    return True
