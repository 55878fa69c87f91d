"""Checks of settings: an unsafe setting keeps every process of production from starting.

They ask no store and repeat no secret. A store on this machine (a unix socket, `localhost`, a loopback address) may
have no password; one over a network needs a password that cannot be guessed.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from ipaddress import ip_address
from itertools import pairwise
from math import log2
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from django.conf import settings

from apps.kernel.store_urls import split_hosts, split_url
from gateway_project.diagnosis.check import Diagnosis

# Characters.
_SHORTEST_SECRET, _SHORTEST_TOKEN = 40, 16
# Bits (Shannon's) a character must bring at least: drawn at random, hexadecimal digits bring nearly 4.
_FEWEST_BITS = 2.5
# The bytes of a Fernet key, and how many different ones it needs: at random there are some 30.
_KEY_BYTES, _FEWEST_BYTES = 32, 16
_GIVEN_AWAY = (
    "django-insecure",
    "changeme",
    "change-me",
    "change_me",
    "your-secret",
    "example",
    "password",
    "replace-me",
)
# Kinds of price lists (`KINDS` in apps/catalog/price_lists.py, which loads an HTTP client), and of proposals that the
# gateway may apply by itself.
PRICE_LISTS = ("litellm", "modelsdev", "openrouter", "llmgateway")
APPLICABLE = ("new_models", "falling_prices", "deactivations")
_STRIPE_TEST = ("sk_test_", "rk_test_", "pk_test_")
_PROVIDERS = Path(__file__).parents[2] / "apps/catalog/providers"
_THIS_MACHINE = ("127.0.0.1", "localhost", "::1", "0.0.0.0")  # noqa: S104 - compared, not bound to
_HOW_TO_MAKE = "`python3 -c 'import secrets; print(secrets.token_urlsafe(48))'` makes one."


_error = partial(Diagnosis.error, "settings")
_warning = partial(Diagnosis.warning, "settings")


def find_unsafe() -> list[Diagnosis]:
    """Return the unsafe settings; in development only those that cannot work."""
    found = list(_any_mode())
    if not settings.DEVELOPMENT:
        found += [*_errors_of_production(), *_warnings_of_production()]
    return found


def _any_mode() -> Iterator[Diagnosis]:
    if not all(_is_fernet_key(key) for key in settings.ENCRYPTION_KEYS):
        yield _error(
            "ENCRYPTION_KEYS has a key that is not a Fernet key.",
            fix="Each is 32 bytes in URL-safe base64, newest first, separated by commas; `Fernet.generate_key()` "
            "makes one.",
            code="gateway.E001",
        )
    own = sorted((settings.CATALOG_DIR / "providers").glob("*.toml")) if settings.CATALOG_DIR else []
    for stem in sorted({path.stem for path in (*_PROVIDERS.glob("*.toml"), *own)}):
        name = f"{stem.upper().replace('-', '_')}_BASE_URL"
        if fault := _fault_of_address(os.environ.get(name, "")):
            yield _error(f"{name} {fault}.", fix="Leave it out for the catalog's address.", code="gateway.E015")

    yield from _errors_of_price_lists()


def _errors_of_price_lists() -> Iterator[Diagnosis]:
    kinds = []
    for stated in settings.CATALOG_PRICE_LISTS:
        kind, separator, place = stated.partition("=")
        kinds.append(kind)
        if kind not in PRICE_LISTS or not separator:
            known = ", ".join(PRICE_LISTS)
            yield _error(
                f"CATALOG_PRICE_LISTS has {kind[:40]!r}, which is not a kind of price list.",
                fix=f"State each list as KIND=PLACE; the kinds are {known}.",
                code="gateway.E019",
            )
        elif not (place.startswith("/") or _is_plain_address(place)):
            yield _error(
                f"CATALOG_PRICE_LISTS has a place for {kind} that is neither an address nor a file.",
                fix="State an http:// or https:// URL without user and password, or an absolute path.",
                code="gateway.E019",
            )
    if len(set(kinds)) < len(kinds):
        yield _error("CATALOG_PRICE_LISTS has a kind twice.", fix="State each kind once.", code="gateway.E019")
    if unknown := sorted(set(settings.CATALOG_APPLY) - set(APPLICABLE)):
        yield _error(
            f"CATALOG_APPLY has {unknown[0][:40]!r}.",
            fix=f"The values are {', '.join(APPLICABLE)}.",
            code="gateway.E020",
        )


def _is_plain_address(place: str) -> bool:
    try:
        parts = urlsplit(place)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def _fault_of_address(address: str) -> str | None:
    """Return what is wrong with a provider's address; None where none is set. A password in it is not repeated."""
    try:
        parts = urlsplit(address)
        port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return "is no URL"
    if not address:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "must be an http:// or https:// URL, such as https://models.example.com/v1"
    # A command that is not told the port does not know whose address it is.
    if parts.hostname in _THIS_MACHINE and str(port) == os.environ.get("PORT"):
        return "leads to this gateway itself, which would ask itself for ever: it is meant for clients"
    return None


def _errors_of_production() -> Iterator[Diagnosis]:
    if not settings.ALLOWED_HOSTS or "*" in settings.ALLOWED_HOSTS:
        yield _error("ALLOWED_HOSTS must name the hosts that are served.", fix="`*` is not one.", code="gateway.E002")
    for name, identifier in (("SECRET_KEY", "gateway.E003"), ("API_KEY_PEPPER", "gateway.E004")):
        if why := why_weak(getattr(settings, name), _SHORTEST_SECRET):
            yield _error(f"{name} {why}.", fix=_HOW_TO_MAKE, code=identifier)
    if not settings.DATABASE_URL:
        yield _error("DATABASE_URL must name the PostgreSQL database.", code="gateway.E005")
    if not settings.REDIS_URL:
        yield _error("REDIS_URL must name the Redis or Valkey server.", code="gateway.E006")
    yield from _errors_of_secrets()
    yield from _errors_of_stores()
    yield from _errors_of_doors()
    if settings.DEBUG:
        yield _error("DEBUG is on: pages of errors would show settings and variables.", code="gateway.E010")


def _errors_of_secrets() -> Iterator[Diagnosis]:
    if any(map(_is_weak_fernet_key, settings.ENCRYPTION_KEYS)):
        yield _error(
            "ENCRYPTION_KEYS has a key that is not random.",
            fix="`Fernet.generate_key()` makes one.",
            code="gateway.E007",
        )
    by_value: dict[str, list[str]] = {}
    for name, value in _secrets():
        by_value.setdefault(value, []).append(name)
    for names in by_value.values():
        if len(names) > 1:
            yield _error(
                f"{' and '.join(names)} are the same: who learns one has them all.",
                fix=_HOW_TO_MAKE,
                code="gateway.E008",
            )
    if settings.METRICS_TOKEN:
        if why := why_weak(settings.METRICS_TOKEN, _SHORTEST_TOKEN):
            yield _error(f"METRICS_TOKEN {why}.", fix=_HOW_TO_MAKE, code="gateway.E009")
    elif not settings.METRICS_PUBLIC:
        yield _error(
            "METRICS_TOKEN is not set: /metrics would answer anyone.",
            fix="Set it, or set METRICS_PUBLIC=true if only trusted clients can reach /metrics.",
            code="gateway.E009",
        )


def _errors_of_stores() -> Iterator[Diagnosis]:
    urls = [(name, getattr(settings, name)) for name in ("DATABASE_URL", "REDIS_URL", "CACHE_URL")]
    urls += [("DATABASE_REPLICA_URL", url) for url in settings.DATABASE_REPLICA_URLS]
    urls += [(name, os.environ.get(name, "")) for name in ("CELERY_BROKER_URL", "CLICKHOUSE_URL")]
    for name, fault in {(name, fault_of(url, os.environ)): None for name, url in urls}:
        if fault:
            yield _error(
                f"{name} {fault}.",
                fix=f"Set one in the store and in the URL. {_HOW_TO_MAKE}",
                code="gateway.E016",
            )


def _errors_of_doors() -> Iterator[Diagnosis]:
    if settings.SIGN_UP == "open" and not settings.EMAIL_VERIFICATION:
        yield _error(
            "SIGN_UP is open and EMAIL_VERIFICATION is off: anyone can create accounts with other people's addresses.",
            fix="Leave EMAIL_VERIFICATION out and set EMAIL_URL, or set SIGN_UP=invite.",
            code="gateway.E017",
        )
    for name in ("STRIPE_SECRET_KEY", "STRIPE_PUBLISHABLE_KEY"):
        if getattr(settings, name).startswith(_STRIPE_TEST):
            yield _error(
                f"{name} is a test key of Stripe: credits would be given for cards that pay nothing.",
                fix="Set the live key, or leave it out: payments are off then.",
                code="gateway.E018",
            )


def _warnings_of_production() -> Iterator[Diagnosis]:
    if not settings.PUBLIC_URL.startswith("https://"):
        yield _warning(
            "PUBLIC_URL is not https: keys, passwords and cookies cross the network in clear.",
            fix="Put TLS in front and set PUBLIC_URL=https://…, unless this is a trial or a private network.",
            code="gateway.W001",
        )
    if settings.METRICS_PUBLIC and not settings.METRICS_TOKEN:
        yield _warning("METRICS_PUBLIC: /metrics answers anyone who can reach it.", code="gateway.W002")
    if settings.EMAIL_BACKEND.endswith("console.EmailBackend"):
        yield _warning(
            "EMAIL_URL is not set: invitations and messages that confirm addresses are not sent.",
            fix=f"`{settings.MANAGE_COMMAND} invite` prints an invitation, to be passed on by hand.",
            code="gateway.W004",
        )
    if settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES:
        yield _warning(
            "GATEWAY_ALLOW_PRIVATE_ADDRESSES lets tenants' URLs reach into the private network.",
            code="gateway.W003",
        )


def why_weak(secret: str, shortest: int) -> str | None:
    """Return what is wrong with a secret, without repeating it; None for a random one."""
    if len(secret) < shortest:
        return f"must have at least {shortest} characters"
    if any(word in secret.lower() for word in _GIVEN_AWAY):
        return "is a value from an example"
    counts = Counter(secret)
    bits = -sum(count * log2(count / len(secret)) for count in counts.values())
    if bits < _FEWEST_BITS * shortest or secret in (secret * 2)[1:-1] or _is_a_row(secret):
        return "repeats itself: it can be guessed"
    return None


def _is_a_row(secret: str) -> bool:
    """Tell whether most characters are their predecessors' neighbours (`abcdef`, `98765`) or the same."""
    steps = Counter(ord(after) - ord(before) for before, after in pairwise(secret))
    return sum(steps[step] for step in (-1, 0, 1)) > len(secret) / 2


def _secrets() -> Iterator[tuple[str, str]]:
    """Yield every secret of the operator's with its variable."""
    for name in ("SECRET_KEY", "API_KEY_PEPPER", "METRICS_TOKEN"):
        if value := getattr(settings, name):
            yield name, value
    for number, key in enumerate(settings.ENCRYPTION_KEYS, start=1):
        yield f"ENCRYPTION_KEYS #{number}", key.strip()


def _is_weak_fernet_key(text: str) -> bool:
    return _is_fernet_key(text) and len(set(urlsafe_b64decode(text.strip()))) < _FEWEST_BYTES


def _is_fernet_key(text: str) -> bool:
    """Return whether it is 32 bytes in URL-safe base64, as `cryptography` asks; that would take longer to load."""
    try:
        return len(urlsafe_b64decode(text.strip())) == _KEY_BYTES
    except ValueError:
        return False


# Default passwords of images and packages, and the first guesses of attackers.
_DEFAULTS: Final = {
    *("postgres", "postgresql", "redis", "valkey", "clickhouse", "gateway", "model-gateway", "guest", "test"),
    *("password", "passw0rd", "pass", "secret", "changeme", "change-me", "change_me", "example", "default"),
    *("admin", "root", "123456", "12345678"),
}
# By these a URL, or the environment, brings another proof than a password.
_OF_POSTGRES: Final = frozenset({"sslcert", "passfile", "krbsrvname"})
_OF_REDIS: Final = frozenset({"ssl_certfile"})
_POSTGRES_VARIABLES: Final = ("PGPASSWORD", "PGPASSFILE", "PGSSLCERT", "PGSERVICE")
# Used for a URL without a port; its value does not matter here.
_ANY_PORT: Final = 1


def is_local(host: str) -> bool:
    """Tell whether a host, as a URL has it, is this machine; none is a unix socket."""
    if host in {"", "localhost"} or host.startswith(("/", "%2F", "%2f")):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def fault_of(url: str, environment: Mapping[str, str]) -> str | None:
    """Return what is wrong with the password in a store's URL, without repeating it; None if it is fine."""
    parts = split_url(url)
    if not url or "unix" in parts.scheme or parts.scheme in {"redis+socket", "memory"}:
        return None
    options = parse_qs(parts.query)
    try:
        # One host of a pool that is on a network is enough; PostgreSQL's hosts may be in the query.
        hosts = [host for host, _ in split_hosts(parts.hosts, _ANY_PORT)] if parts.hosts else options.get("host", [""])
    except ValueError:
        return None
    if all(map(is_local, hosts)):
        return None
    user, _, password = parts.credentials.partition(":")
    user, password = unquote(user), unquote(password) or options.get("password", [""])[0]
    if not password:
        if parts.scheme.startswith("postgres"):
            is_proven = _OF_POSTGRES & options.keys() or any(environment.get(one) for one in _POSTGRES_VARIABLES)
        else:
            is_proven = _OF_REDIS & options.keys()
        return None if is_proven else "leads over a network and has no password"
    if password.lower() in _DEFAULTS or password == user:
        return "leads over a network and has a password that is tried first"
    return None
