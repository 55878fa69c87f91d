"""Revocation of what a member holds when they leave an organization or are removed from it.

Each app that keeps what a member holds has a module `revocation` with `revoke(organization_id, user_id)`, and with
`end_programs(user_id)` where programs act for people; they are found by looking. Must never know another app's tables.
"""

from __future__ import annotations

from importlib import import_module
from uuid import UUID

from apps.organizations.app_hooks import find_hook_modules


def revoke(organization_id: UUID, user_id: UUID) -> int:
    """Take away what a member holds in an organization, inside the caller's transaction; return how many API keys."""
    return sum(
        import_module(name).revoke(organization_id, user_id) for name in find_hook_modules("revocation", __name__)
    )


def end_programs(user_id: UUID) -> None:
    """Sign out the programs that a person signed in, inside the caller's transaction; API keys stay."""
    for name in find_hook_modules("revocation", __name__):
        end = getattr(import_module(name), "end_programs", None)
        if end is not None:
            end(user_id)
