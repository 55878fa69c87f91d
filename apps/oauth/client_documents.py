"""Client ID metadata documents: a client described at the address that is its id, fetched through the SSRF guard.

Documents are cached as long as `Cache-Control` allows. They are fetched for signed-in users only, outside of
transactions, without following redirects.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from typing import Any, Final

import gevent
import requests
from django.conf import settings
from oauth2_provider import cimd
from urllib3.exceptions import HTTPError

from apps.kernel.postgres import database
from apps.keys.ssrf_guard import UnsafeAddressError, resolve_safe_address
from apps.oauth.models import OAuthClient
from apps.organizations.credentials.attempt_rate_limiter import AttemptLimit, count_attempt

# Timeout for the whole document in seconds, and its maximum bytes.
_TIMEOUT: Final = 5.0
_MAX_SIZE: Final = 16 * 1024
# Fetches of unknown descriptions per client address.
DESCRIBED_PER_ADDRESS: Final = AttemptLimit("oauth-describe:address", 20, 600)
# Characters of a client's id.
MAX_ID: Final = 255
# The client address that a fetch counts for; each may have a few name lookups at a time.
_asking: ContextVar[str] = ContextVar("oauth_asking", default="")


def find_client(client_id: str, address: str) -> OAuthClient | None:
    """Return the client; one whose id is an address is fetched when it is unknown or its copy is old.

    If descriptions are switched off (`OAUTH_CLIENT_DOCUMENTS`), such clients are unknown. `address` is the person's,
    which may fetch only so many unknown ones: raises RateLimited.
    """
    if not 0 < len(client_id) <= MAX_ID or not client_id.isprintable():
        return None
    if not settings.OAUTH_CLIENT_DOCUMENTS and cimd.is_cimd_client_id(client_id):
        return None
    known = OAuthClient.objects.filter(client_id=client_id).first()
    if known is None and cimd.is_cimd_client_id(client_id):
        # Do not let anyone use the gateway as a proxy.
        count_attempt((DESCRIBED_PER_ADDRESS, address))
    _asking.set(f"oauth:{address}")
    found = cimd.resolve_cimd_application(client_id, None) if known is None else cimd.refresh_if_stale(known, None)
    return found if isinstance(found, OAuthClient) else None


class GuardedFetcher:
    """Fetches a description for the library, which validates and stores it."""

    def fetch(self, client_id: str) -> tuple[dict[str, Any], int]:
        """Return the document, and its lifetime in seconds. Raises CIMDError."""
        # A client's address needs https and a path, and has neither user nor fragment.
        cimd._validate_client_id_url(client_id)
        database.release_connection()
        try:
            # A total timeout: a server may send a byte now and then.
            with (
                gevent.Timeout(_TIMEOUT, requests.Timeout()),
                resolve_safe_address(client_id, _asking.get()).session() as session,
                session.get(
                    client_id,
                    headers={"Accept": "application/json"},
                    timeout=_TIMEOUT,
                    allow_redirects=False,
                    stream=True,
                ) as answer,
            ):
                return _read(answer), cimd._effective_max_age(answer.headers.get("Cache-Control"))
        except UnsafeAddressError as error:
            raise cimd.CIMDError(f"client_id URL is not fetched: {error}") from error
        except (requests.RequestException, HTTPError) as error:
            raise cimd.CIMDError("client_id document could not be fetched") from error


def _read(answer: requests.Response) -> dict[str, Any]:
    """Return the JSON object of an answer. Raises CIMDError for other content and too large answers."""
    media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if answer.status_code != requests.codes.ok or not media_type.endswith(("/json", "+json")):
        raise cimd.CIMDError(f"client_id document was answered with {answer.status_code} and {media_type[:50]!r}")
    body = answer.raw.read(_MAX_SIZE + 1, decode_content=True)
    if len(body) > _MAX_SIZE:
        raise cimd.CIMDError(f"client_id document is larger than {_MAX_SIZE} bytes")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise cimd.CIMDError("client_id document is not JSON") from error
    if not isinstance(document, dict):
        raise cimd.CIMDError("client_id document is not a JSON object")
    return document
