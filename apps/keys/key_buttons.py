"""Buttons of API keys and provider keys in the admin: revoke, rotate; test and delete a credential."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.kernel.postgres import database
from apps.keys import actions, provider_keys
from apps.keys.access import PROVIDER_KEYS
from apps.keys.models import ApiKey, ProviderKey
from apps.organizations.journal import audit
from apps.organizations.operators.admin_buttons import ButtonQuestion, Done, button, is_living


class RevokeQuestion(ButtonQuestion):
    """Asks whether to revoke a key."""

    text = (
        "Requests with {row.masked_token} ({row.description}) are refused from now on. This cannot be undone: to pause "
        "a key, set it to inactive instead. Its log and costs stay."
    )


class RotateQuestion(ButtonQuestion):
    """Asks whether to give a key a new secret."""

    text = (
        "{row.masked_token} ({row.description}) gets a new secret, which the next page shows once. The old one "
        "stops working. Limits, usage and access rules stay."
    )


class CheckQuestion(ButtonQuestion):
    """Asks whether to test a credential at its provider."""

    text = "Requests the list of models from {row} with the credential {row.masked_token}. Nothing is charged."


class DeleteCredentialQuestion(ButtonQuestion):
    """Asks whether to erase a credential."""

    text = "The credential {row.masked_token} at {row} is erased. This cannot be undone."


@button(
    "Rotate",
    permission="keys.change_apikey",
    icon="autorenew",
    danger=True,
    question=RotateQuestion,
    offered=is_living,
)
def rotate(page: Any, key: ApiKey, fields: Mapping[str, Any]) -> Done:
    """Give a key a new secret, and show it once."""
    created = actions.rotate_api_key(key=key)
    return Done(f"{key.description} has a new secret now.", secret=created.token)


@button(
    "Revoke", permission="keys.delete_apikey", icon="block", danger=True, question=RevokeQuestion, offered=is_living
)
def revoke(page: Any, key: ApiKey, fields: Mapping[str, Any]) -> Done:
    """Revoke a key permanently."""
    actions.delete_api_key(key=key)
    return Done(f"{key} was revoked")


def _ask_provider(key: ProviderKey, done: Done) -> Done:
    """Test the credential at its provider and show a refusal."""
    database.release_connection()
    provider_keys.recheck_provider_key(key=key)
    return done


@button(
    "Test",
    permission="keys.change_providerkey",
    icon="network_check",
    question=CheckQuestion,
    offered=is_living,
    finish=_ask_provider,
)
def check_credential(page: Any, key: ProviderKey, fields: Mapping[str, Any]) -> Done:
    """Record the test; `_ask_provider` runs it."""
    audit.record("provider_key.test", organization_id=key.organization_id, resource=key)
    return Done(f"{key} accepts the credential, or did not refuse it")


@button(
    "Delete",
    permission="keys.delete_providerkey",
    icon="delete",
    danger=True,
    question=DeleteCredentialQuestion,
    offered=is_living,
)
def delete_credential(page: Any, key: ProviderKey, fields: Mapping[str, Any]) -> Done:
    """Erase a credential."""
    PROVIDER_KEYS.delete(key)
    return Done(f"The credential at {key} was erased")
