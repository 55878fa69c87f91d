"""Credential of a native job: the one that it was handed over with, found by its name whatever became of its key.

Must never put one credential in the place of another: a job is seen by the account alone that made it.
"""

from __future__ import annotations

import os

from apps.batches.models import NativeJob
from apps.batches.native.provider_api import ProviderApi
from apps.catalog import catalog_cache
from apps.gateway.access.credentials import API_KEYS, CREDITS, Credential
from apps.gateway.access.policy import OwnCredential, find_policy, token_of_key
from apps.gateway.access.schemes import service_secrets
from apps.kernel.errors import ApiError
from apps.kernel.postgres import database
from apps.kernel.secrets.encryption import UnreadableSecretError
from apps.keys.models import ProviderKey


class NoCredential(Exception):
    """The credential of a job, or its provider, is gone."""


def api_of(job: NativeJob) -> ProviderApi:
    """Return the batch API that a job is at. Raises NoCredential, DatabaseError."""
    provider = catalog_cache.current().providers.get(job.provider_id)
    if provider is None:
        raise NoCredential
    if not job.is_own_key:
        secrets = service_secrets(provider.auth, provider.api_key_env, os.environ)
        named = {f"{provider.id}#{number}": secret for number, secret in enumerate(secrets, start=1)}
        if job.credential not in named:
            raise NoCredential
        return ProviderApi(provider, Credential(CREDITS, service_secret=named[job.credential], label=job.credential))
    rows = ProviderKey.objects.filter(pk=job.credential, organization_id=job.batch.organization_id)
    row = database.read(rows.filter(status=ProviderKey.Status.ACTIVE).first)
    if row is None:
        raise NoCredential
    token, owner = bytes(row.encrypted_token), row.organization_id
    own = OwnCredential(row.id, row.provider, row.provider_name, row.base_url, token, owner)
    credential = Credential(API_KEYS, own=own)
    try:
        credential.secret()
    except UnreadableSecretError:
        raise NoCredential from None
    return ProviderApi(provider, credential)


def is_key_revoked(job: NativeJob) -> bool:
    """Return whether the API key of a job's batch is refused by now."""
    try:
        find_policy(token_of_key(job.batch.api_key_id))
    except ApiError as error:
        return error.status in {401, 403, 410}
    return False
