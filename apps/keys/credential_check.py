"""Credential check (BYOK): one cheap call, the provider's list of models, shows whether a credential works.

The credential never appears in messages, and redirects are not followed with it.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

import gevent
import requests
from urllib3.exceptions import HTTPError

from apps.kernel.errors import InvalidRequest
from apps.kernel.secrets.redaction import redact
from apps.keys.ssrf_guard import SafeAddress

# Timeouts in seconds: to connect, between two bytes, and in total.
TIMEOUT, TOTAL_TIMEOUT = (5.0, 10.0), 15.0
# Bytes of an answer that are read, and characters of it that are shown.
MAX_READ, MAX_TOLD = 8_192, 300
# Formats with a list of models at `/models`.
_LISTING = frozenset({"openai", "anthropic", "google"})
# No list of models, or not now: neither says anything about the credential.
_SAYS_NOTHING = frozenset({404, 405, 429})


class ProviderEndpoint(Protocol):
    """A provider of the catalog to check at; `auth` is `bearer`, or the name of the credential's header."""

    @property
    def dialect(self) -> str:
        """Its wire format."""

    @property
    def auth(self) -> str:
        """How a credential is sent."""

    @property
    def base_url(self) -> str:
        """The provider's address without a trailing slash."""


def check_at_provider(provider: ProviderEndpoint, token: str) -> None:
    """Check a credential at a provider of the catalog, if it lists models. Raises InvalidRequest with its error."""
    if provider.dialect not in _LISTING or "{" in provider.base_url:
        return
    headers = {"Authorization": f"Bearer {token}"} if provider.auth == "bearer" else {provider.auth: token}
    if provider.dialect == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    with requests.Session() as session:
        _ask(session, provider.base_url, headers, token)


def check_at_address(address: SafeAddress, token: str) -> None:
    """Check a credential at a tenant's own OpenAI-compatible address. Raises InvalidRequest with its error."""
    with address.session() as session:
        _ask(session, address.url, {"Authorization": f"Bearer {token}"}, token)


def _ask(session: requests.Session, base_url: str, headers: dict[str, str], token: str) -> None:
    try:
        with (
            gevent.Timeout(TOTAL_TIMEOUT, requests.Timeout()),
            session.get(
                f"{base_url}/models", headers=headers, timeout=TIMEOUT, allow_redirects=False, stream=True
            ) as response,
        ):
            status, words = response.status_code, _words_of(response, token)
    except (requests.RequestException, HTTPError) as error:
        raise _refused("the provider could not be reached") from error
    if status < 300 or status in _SAYS_NOTHING:
        return
    raise _refused(f"the provider answered {status}{f': {words}' if words else ''}")


def _words_of(response: requests.Response, token: str) -> str:
    """Return an answer's error message without the credential, shortened for display."""
    body = response.raw.read(MAX_READ, decode_content=True)
    try:
        said: Any = json.loads(body)
    except ValueError:
        said = body.decode("utf-8", "replace")
    if isinstance(said, dict):
        said = said.get("error", said.get("message", ""))
    if isinstance(said, dict):
        said = said.get("message", "")
    # Redact first: truncating could leave half of the credential.
    return " ".join(redact(str(said), [token]).split())[:MAX_TOLD]


def _refused(reason: str) -> InvalidRequest:
    return InvalidRequest(f"The provider key was not accepted: {reason}", code="provider_key_refused", param="token")
