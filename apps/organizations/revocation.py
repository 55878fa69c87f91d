"""Revokes a member's access when they leave or are removed from an organization.

An app that stores such access has a module `revocation` with `revoke(organization_id, user_id)`, and with
`end_programs(user_id)` if it signs programs in; the modules are discovered.
"""

from __future__ import annotations

from importlib import import_module
from uuid import UUID

from apps.organizations.app_hooks import find_hook_modules


def revoke(organization_id: UUID, user_id: UUID) -> int:
    """Revoke a member's access to an organization in the caller's transaction; return the number of API keys."""
    return sum(
        import_module(name).revoke(organization_id, user_id) for name in find_hook_modules("revocation", __name__)
    )


def end_programs(user_id: UUID) -> None:
    """Sign out all programs of a user in the caller's transaction; API keys stay."""
    for name in find_hook_modules("revocation", __name__):
        end = getattr(import_module(name), "end_programs", None)
        if end is not None:
            end(user_id)
