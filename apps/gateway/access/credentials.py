"""Provider credentials: the service's or the organization's own (BYOK), by the project's mode; with cooldowns.

Service credentials come from the environment variables that the catalog names; an organization's own are decrypted when
they are used, never before, and neither logged nor returned.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from uuid import UUID

from apps.catalog.catalog_cache import CatalogProvider
from apps.gateway.access.policy import OwnCredential, Policy
from apps.gateway.access.schemes import service_secrets
from apps.keys.own_models import ServerReplica
from apps.keys.secrets import decrypt_credential

API_KEYS, CREDITS, HYBRID = "api-keys", "credits", "hybrid"


@dataclass(frozen=True, slots=True)
class Credential:
    """A credential for a provider. `mode` says who pays: `api-keys` (the organization itself) or `credits`."""

    mode: str
    own: OwnCredential | None = None
    service_secret: str | None = None
    # Which of the service's own it is, in words that may be shown: `openai#2`.
    label: str = ""
    # The address of an own server with several.
    replica: ServerReplica | None = None

    @property
    def name(self) -> str:
        """The key under which its health is stored; never the secret."""
        return str(self.own.id) if self.own else self.label

    @property
    def provider_key_id(self) -> UUID | None:
        """The organization's own provider key, when it is one."""
        return self.own.id if self.own else None

    @property
    def organization_id(self) -> UUID | None:
        """Whose own it is; None for the service's."""
        return self.own.organization_id if self.own else None

    @property
    def base_url(self) -> str | None:
        """The tenant's own address of the provider; None where the catalog's is meant."""
        if self.replica is not None:
            return self.replica.url
        return (self.own.base_url or None) if self.own else None

    def secret(self) -> str:
        """Return the credential in clear, to be sent to its provider and nowhere else."""
        if self.own is not None:
            return decrypt_credential(self.own.encrypted_token)
        return self.service_secret or ""

    def __repr__(self) -> str:
        """Show who pays, never the secret."""
        return f"Credential({self.mode})"


def credentials_for(policy: Policy, provider: CatalogProvider) -> list[Credential]:
    """Return the credentials that the project's mode gives for the provider: its own, else the service's."""
    own = policy.own_credentials.get(provider.id)
    if own and policy.mode != CREDITS:
        return [Credential(API_KEYS, own=one) for one in own]
    if policy.mode == API_KEYS:
        return []
    secrets = service_secrets(provider.auth, provider.api_key_env, os.environ)
    return [
        Credential(CREDITS, service_secret=secret, label=f"{provider.id}#{number}")
        for number, secret in enumerate(secrets, start=1)
    ]


# Seconds of cooldown by status: refused by its provider, out of money there, or rate limited.
_COOLDOWN_SECONDS = {401: 300.0, 403: 60.0, 402: 300.0, 429: 10.0}
_MAX_COOLDOWN = 300.0
# Names remembered at a time: tenants may have any number of credentials that are refused.
_MAX_COOLING = 10_000
_cooling_until: dict[str, float] = {}


def cool_down(credential: Credential, status: int | None, retry_after: float | None = None) -> bool:
    """Put a credential on cooldown after a refusal that is about it; return whether this was one.

    `retry_after` is what the provider asks for, in seconds.
    """
    seconds = _COOLDOWN_SECONDS.get(status or 0)
    if seconds is None:
        return False
    now = time.monotonic()
    if len(_cooling_until) >= _MAX_COOLING:
        for name in [name for name, until in _cooling_until.items() if until <= now] or [next(iter(_cooling_until))]:
            del _cooling_until[name]
    _cooling_until[credential.name] = now + min(retry_after or seconds, _MAX_COOLDOWN)
    return True


def is_usable(name: str) -> bool:
    """Return whether a credential is not on cooldown."""
    until = _cooling_until.get(name)
    if until is None:
        return True
    if time.monotonic() < until:
        return False
    _cooling_until.pop(name, None)
    return True


def reset_cooldowns() -> None:
    """End every cooldown."""
    _cooling_until.clear()
