"""Hooks: functions and values of one name in the `hooks` modules of apps, found at run time, for work across apps.

| name | meaning |
|---|---|
| `TABS`, `BUTTONS` | the app's part of an organization's page in the admin (`operators.organization_tabs`) |
| `erase(organization_id)` | delete or blank its rows of a deleted organization; repeating it changes nothing |
| `revoke(organization_id, user_id)` | end what a member made; return the number of API keys |
| `end_programs(user_id)` | end the programs that a person has signed in |
| `rotate()`, with `WORDS` | encrypt the app's secrets with the newest key; the secrets' name for the operator |
| `find_provider(provider_id)` | return a provider of the catalog |
| `find_daily_tokens(organization_id, provider, first, before)` | return the tokens of its requests by model and day |
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from uuid import UUID

from django.apps import apps


def find_hooks(name: str) -> Iterator[Any]:
    """Yield the hook of that name of every app that has one."""
    for module in find_hook_modules(name):
        yield getattr(module, name)


def find_hook_modules(name: str) -> Iterator[Any]:
    """Yield the module `hooks` of every app whose module has a hook of that name."""
    for config in apps.get_app_configs():
        full = f"{config.name}.hooks"
        if config.name.startswith("apps.") and find_spec(full) and hasattr(module := import_module(full), name):
            yield module


def revoke(organization_id: UUID, user_id: UUID) -> int:
    """Revoke a member's access to an organization in the caller's transaction; return the number of API keys."""
    return sum(hook(organization_id, user_id) for hook in find_hooks("revoke"))


def end_programs(user_id: UUID) -> None:
    """Sign out all programs of a user in the caller's transaction; API keys stay."""
    for hook in find_hooks("end_programs"):
        hook(user_id)
