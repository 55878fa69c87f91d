"""Buttons of API keys and provider keys in the admin: revoke, rotate; test and delete a credential.

Knows what each asks and tells beforehand. Must never write: `actions.py` and `provider_keys.py` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, cast

from apps.kernel import database
from apps.keys import actions, provider_keys
from apps.keys.models import ApiKey, ProviderKey
from apps.organizations import audit
from apps.organizations.admin_buttons import ButtonQuestion, Done, button, is_living
from apps.organizations.app_hooks import find_hook_modules

_Find = Callable[[str], Any]


class RevokeQuestion(ButtonQuestion):
    """Whether a key is to end."""

    text = (
        "Whoever uses {row.masked_token} ({row.description}) is refused from now on. This cannot be undone: a key "
        "that only pauses is set to inactive instead. Its log and its costs stay."
    )


class RotateQuestion(ButtonQuestion):
    """Whether a key is to have another secret."""

    text = (
        "{row.masked_token} ({row.description}) gets another secret, which the next page shows once. The one "
        "before is refused from now on. Limits, usage and access rules stay."
    )


class CheckQuestion(ButtonQuestion):
    """Whether a provider is to be asked about a credential."""

    text = "Asks {row} for its list of models with the credential {row.masked_token}. Nothing is charged."


class DeleteCredentialQuestion(ButtonQuestion):
    """Whether a credential is to be erased."""

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
    """Give a key another secret, and show it once."""
    created = actions.rotate_api_key(key=key)
    return Done(f"{key.description} has another secret now.", secret=created.token)


@button(
    "Revoke", permission="keys.delete_apikey", icon="block", danger=True, question=RevokeQuestion, offered=is_living
)
def revoke(page: Any, key: ApiKey, fields: Mapping[str, Any]) -> Done:
    """End a key for good."""
    actions.delete_api_key(key=key)
    return Done(f"{key} was revoked")


def _ask_provider(key: ProviderKey, done: Done) -> Done:
    """Ask the provider; what it refuses is told."""
    database.release_connection()
    provider_keys.recheck_provider_key(key=key, find_provider=_find_provider())
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
    """Take down that a credential is tested; `_ask_provider` does it."""
    audit.record("provider_key.test", organization_id=key.organization_id, resource=key)
    return Done(f"{key} takes the credential, or says nothing against it")


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
    provider_keys.delete_provider_key(key=key)
    return Done(f"The credential at {key} was erased")


def _find_provider() -> _Find:
    [name] = find_hook_modules("provider_lookup", __name__)
    return cast(_Find, import_module(name).find_provider)
