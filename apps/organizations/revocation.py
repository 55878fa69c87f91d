"""What goes with a member who leaves an organization, or is removed from it.

Each app that keeps what a member holds has a module `revocation` with `revoke(organization_id, user_id)`; they are
found by looking. Must never know another app's tables.
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
