"""Google service accounts: exchange a signed assertion for an OAuth access token, and keep the token until it expires.

A credential is the JSON of a service account, an access token (`ya29.…`), or an API key. A file's path is accepted only
from the operator's own environment: for a tenant's credential no file is read, and no address but Google's is called.

Tokens are kept until shortly before they expire. Keys and tokens are never logged, nor quoted in an error.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

import gevent
import msgspec
import requests
import structlog
from gevent.lock import BoundedSemaphore
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.requests import Request as GoogleTransport
from google.oauth2.service_account import Credentials

from apps.gateway.access.schemes import SignableRequest
from apps.gateway.failures import UpstreamFailure

log = structlog.get_logger(__name__)

TOKEN_ADDRESS: Final = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address, not a secret
SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
# Placeholders of an address that a credential of this kind fills by itself.
FILLED_PLACEHOLDERS: Final = frozenset({"project"})

# Seconds before its end at which a token is renewed, and below which it is of no use any more.
RENEW_BEFORE, LEAST_LEFT = 300.0, 30.0
# Seconds for one answer of the endpoint, for all tries together, and for which a failure is remembered.
_TIMEOUT, _TOTAL_TIMEOUT, _FAILED_FOR = 5.0, 15.0, 5.0
# Accounts remembered; the least recently used goes first.
_MAX_TOKENS = 1_000
_MAX_FILE = 64 * 1024
_PROJECT = re.compile(r"[a-z0-9][a-z0-9.:-]{3,62}")
_PROJECT_IN_ADDRESS = re.compile(r"(?<=/projects/)[^/]+")


class _Account(msgspec.Struct, frozen=True):
    """The fields of a service account's JSON that are read; whatever else it says is not followed."""

    type: str
    client_email: str
    private_key: str
    project_id: str = ""
    private_key_id: str = ""
    token_uri: str = TOKEN_ADDRESS


@dataclass(slots=True)
class _CachedToken:
    """An account's access token, when it expires (monotonic), and the lock for its renewal."""

    lock: BoundedSemaphore = field(default_factory=BoundedSemaphore)
    token: str = ""
    until: float = 0.0
    failed_until: float = 0.0
    failure: UpstreamFailure | None = None


_tokens: OrderedDict[bytes, _CachedToken] = OrderedDict()
# Path -> the file's modification time and its content. Digests of accounts from the operator's own environment.
_files: dict[str, tuple[int, str]] = {}
_operators: set[bytes] = set()


def authorize(secret: str, request: SignableRequest) -> dict[str, str]:
    """Return the header that presents the credential. Raises UpstreamFailure when it is of no use."""
    secret = secret.strip()
    if not secret.startswith("{"):
        return {"Authorization": f"Bearer {secret}"} if secret.startswith("ya29.") else {"x-goog-api-key": secret}
    return {"Authorization": f"Bearer {_token_of(secret)}"}


def split_secrets(value: str) -> list[str]:
    """Return the credentials in an environment variable: one JSON text, or paths and keys with commas between them."""
    words = [value.strip()] if value.lstrip().startswith("{") else [word.strip() for word in value.split(",")]
    found = [content for word in words if word and (content := _content_of(word))]
    _operators.update(_digest(text) for text in found if text.startswith("{"))
    return found


def fill_base_url(secret: str, base_url: str, *, own: bool) -> str:
    """Return the address with the project that the account belongs to, where none is filled in; where the credential is
    the tenant's own, in place of the operator's project."""
    if not own and "{project}" not in base_url:
        return base_url
    account = _find_account(secret.strip())
    if account is None or not _PROJECT.fullmatch(account.project_id):
        return base_url
    return _PROJECT_IN_ADDRESS.sub(account.project_id, base_url)


def forget_all() -> None:
    """Forget all tokens, so that each is requested again."""
    _tokens.clear()


def _content_of(word: str) -> str:
    """Return what a path leads to, read again when it was written again; nothing where it cannot be read.

    Anything that is no path is returned as it is.
    """
    if word.startswith("{") or "/" not in word:
        return word
    try:
        written = Path(word).stat().st_mtime_ns
        known = _files.get(word)
        if known is None or known[0] != written:
            with Path(word).open(encoding="utf-8") as file:
                known = _files[word] = (written, file.read(_MAX_FILE).strip())
    except (OSError, ValueError) as error:
        if word not in _files or _files[word][1]:
            log.error("service_account.unreadable", path=word, error=type(error).__name__)
        known = _files[word] = (0, "")
    return known[1]


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def _find_account(secret: str) -> _Account | None:
    try:
        account = msgspec.json.decode(secret, type=_Account)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return account if account.type == "service_account" else None


def _token_of(secret: str) -> str:
    """Return a valid access token, renewed by one greenlet at a time. Raises UpstreamFailure."""
    digest = _digest(secret)
    kept = _tokens.get(digest)
    if kept is None:
        kept = _tokens[digest] = _CachedToken()
        while len(_tokens) > _MAX_TOKENS:
            _tokens.popitem(last=False)
    else:
        _tokens.move_to_end(digest)
    left = kept.until - time.monotonic()
    if left > RENEW_BEFORE:
        return kept.token
    # While the old token is good, one renews it and the others go on; after that, all wait for the one.
    if not kept.lock.acquire(blocking=left <= LEAST_LEFT):
        return kept.token
    try:
        now = time.monotonic()
        if kept.until - now <= RENEW_BEFORE and now >= kept.failed_until:
            _renew(kept, secret, trusted=digest in _operators)
        if kept.until - time.monotonic() > LEAST_LEFT:
            return kept.token
        failure = kept.failure or _useless("its token is no longer good")
        raise UpstreamFailure(failure.error_type, failure.message, status=failure.status)
    finally:
        kept.lock.release()


def _renew(kept: _CachedToken, secret: str, *, trusted: bool) -> None:
    """Get a new token; what goes wrong is noted."""
    try:
        kept.token, seconds = fetch_token(secret, trusted=trusted)
    except UpstreamFailure as failure:
        kept.failure, kept.failed_until = failure, time.monotonic() + _FAILED_FOR
        return
    kept.until = time.monotonic() + seconds


def fetch_token(secret: str, *, trusted: bool) -> tuple[str, float]:
    """Return a new token and for how many seconds it is good. Raises UpstreamFailure, which quotes nothing."""
    account = _find_account(secret)
    if account is None:
        raise _useless("it is not the JSON of a service account")
    if account.token_uri != TOKEN_ADDRESS and not trusted:
        raise _useless("its token_uri is not Google's")
    info = {name: value for name, value in msgspec.structs.asdict(account).items() if value}
    try:
        with gevent.Timeout(_TOTAL_TIMEOUT, requests.Timeout()), requests.Session() as session:
            session.trust_env = False
            credentials = Credentials.from_service_account_info(  # type: ignore[no-untyped-call] # google-auth's own
                info, scopes=SCOPES
            )
            credentials.refresh(partial(GoogleTransport(session), timeout=_TIMEOUT, allow_redirects=False))
        seconds = (credentials.expiry.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()
        return str(credentials.token), seconds
    except (TransportError, requests.RequestException) as error:
        log.warning("service_account.no_answer", error=type(error).__name__)
        raise UpstreamFailure("network", "Google's token endpoint did not answer") from None
    except (GoogleAuthError, ValueError, TypeError, AttributeError, OverflowError) as error:
        # Its words may quote the assertion, or whatever the endpoint answered to it.
        log.warning("service_account.refused", error=type(error).__name__)
        raise _useless("Google gave no token for it") from None


def _useless(why: str) -> UpstreamFailure:
    return UpstreamFailure("client_error", f"its service account cannot be used: {why}", status=401)
