"""Access control of activity: users see the activity of all of their organizations."""

from __future__ import annotations

from apps.kernel.postgres.row_lookup import find_row
from apps.keys.access import NO_KEY
from apps.keys.models import ApiKey
from apps.logs.activity import ActivityScope
from apps.organizations.access import access_organization, access_project, roles_of
from apps.organizations.models import User


def access_activity(
    user: User, *, organization_id: str | None, project_id: str | None, api_key_id: str | None
) -> ActivityScope:
    """Return the user's organizations limited to the named ids; activity of deleted keys is included.

    Raises NotFound for unknown ids, Forbidden for those of other organizations.
    """
    organizations, project, key = set(roles_of(user)), None, None
    if organization_id is not None:
        organizations &= {access_organization(user, organization_id).organization.id}
    if project_id is not None:
        named = access_project(user, project_id).project
        organizations &= {named.organization_id}
        project = named.id
    if api_key_id is not None:
        row = find_row(ApiKey.objects.select_related("project"), api_key_id, NO_KEY)
        organizations &= {access_organization(user, row.project.organization_id).organization.id}
        if project not in {None, row.project_id}:
            # If the key belongs to a project other than the named one, nothing matches.
            organizations.clear()
        project, key = row.project_id, row.id
    return ActivityScope(frozenset(organizations), project, key)
