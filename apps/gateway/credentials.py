"""Whose credential opens a provider's door, by the project's mode.

Service credentials come from the environment variables that the catalog names; an organization's own are decrypted when
they are used, never before. Must never log or return one.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from uuid import UUID

from apps.catalog.snapshot import Provider
from apps.gateway.policy import OwnCredential, Policy
from apps.keys.secrets import decrypt

API_KEYS, CREDITS, HYBRID = "api-keys", "credits", "hybrid"


@dataclass(frozen=True, slots=True)
class Credential:
    """A way into a provider. `mode` is who pays: `api-keys` (the organization itself) or `credits`."""

    mode: str
    own: OwnCredential | None = None
    service_secret: str | None = None

    @property
    def provider_key_id(self) -> UUID | None:
        """The organization's own provider key, when it is one."""
        return self.own.id if self.own else None

    @property
    def base_url(self) -> str | None:
        """The tenant's own address of the provider; None where the catalog's is meant."""
        return (self.own.base_url or None) if self.own else None

    def secret(self) -> str:
        """Return the credential in clear, to be sent to its provider and nowhere else."""
        if self.own is not None:
            return decrypt(self.own.encrypted_token)
        return self.service_secret or ""

    def __repr__(self) -> str:
        """Show who pays, never the secret."""
        return f"Credential({self.mode})"


def find_credential(policy: Policy, provider: Provider) -> Credential | None:
    """Return the credential that the project's mode gives for the provider, or None."""
    own = policy.own_credentials.get(provider.id)
    if own and policy.mode != CREDITS:
        return Credential(API_KEYS, own=own[0])
    if policy.mode == API_KEYS:
        return None
    secrets = [word for word in os.environ.get(provider.api_key_env, "").split(",") if word.strip()]
    return Credential(CREDITS, service_secret=secrets[0].strip()) if secrets else None
