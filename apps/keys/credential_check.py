"""Does a credential work? One cheap call tells: the provider's list of models.

Knows how a credential is presented and what an answer says about it. Must never show the credential, nor follow a
redirect with it.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

import gevent
import requests
from urllib3.exceptions import HTTPError

from apps.kernel.errors import InvalidRequest
from apps.kernel.redaction import redact
from apps.keys.ssrf_guard import SafeAddress

# Seconds to connect, between two bytes, and for all of it.
TIMEOUT, TOTAL_TIMEOUT = (5.0, 10.0), 15.0
# Bytes of an answer that are looked at, and characters of it that are told.
MAX_READ, MAX_TOLD = 8_192, 300
# Formats whose base address lists its models at `/models`.
_LISTING = frozenset({"openai", "anthropic", "google"})
# No list of models there, or not now: neither says anything about the credential.
_SAYS_NOTHING = frozenset({404, 405, 429})


class ProviderEndpoint(Protocol):
    """What is asked of a provider of the catalog; `auth` is `bearer`, or the header that takes the credential."""

    @property
    def dialect(self) -> str:
        """Its wire format."""

    @property
    def auth(self) -> str:
        """How a credential is presented."""

    @property
    def base_url(self) -> str:
        """Its address, without a slash at its end."""


def check_at_provider(provider: ProviderEndpoint, token: str) -> None:
    """Ask a provider of the catalog, where it can be asked. Raises InvalidRequest with its words when it refuses."""
    if provider.dialect not in _LISTING or "{" in provider.base_url:
        return
    headers = {"Authorization": f"Bearer {token}"} if provider.auth == "bearer" else {provider.auth: token}
    if provider.dialect == "anthropic":
        headers["anthropic-version"] = "2023-06-01"
    with requests.Session() as session:
        _ask(session, provider.base_url, headers, token)


def check_at_address(address: SafeAddress, token: str) -> None:
    """Ask a tenant's own OpenAI-compatible address. Raises InvalidRequest with its words when it refuses."""
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
    """Return what an answer says for itself, without the credential, cut to a length that can be shown."""
    body = response.raw.read(MAX_READ, decode_content=True)
    try:
        said: Any = json.loads(body)
    except ValueError:
        said = body.decode("utf-8", "replace")
    if isinstance(said, dict):
        said = said.get("error", said.get("message", ""))
    if isinstance(said, dict):
        said = said.get("message", "")
    # The credential first: what is cut must not leave half of it.
    return " ".join(redact(str(said), [token]).split())[:MAX_TOLD]


def _refused(reason: str) -> InvalidRequest:
    return InvalidRequest(f"The provider key was not accepted: {reason}", code="provider_key_refused", param="token")
