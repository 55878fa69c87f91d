"""Access control of activity: a user sees that of every organization the user is a member of.

Knows memberships. Must never write.
"""

from __future__ import annotations

from apps.kernel.errors import NotFound
from apps.keys.access import NO_KEY
from apps.keys.models import ApiKey
from apps.logs.activity import ActivityScope
from apps.organizations.access import access_organization, access_project, identify, roles_of
from apps.organizations.models import User


def access_activity(
    user: User, *, organization_id: str | None, project_id: str | None, api_key_id: str | None
) -> ActivityScope:
    """Return what the named ids leave of the user's organizations; what a deleted key did is still seen.

    Raises NotFound for what does not exist, Forbidden for what is in an organization of others.
    """
    organizations, project, key = set(roles_of(user)), None, None
    if organization_id is not None:
        organizations &= {access_organization(user, organization_id).organization.id}
    if project_id is not None:
        named = access_project(user, project_id).project
        organizations &= {named.organization_id}
        project = named.id
    if api_key_id is not None:
        row = ApiKey.objects.select_related("project").filter(pk=identify(api_key_id, NO_KEY)).first()
        if row is None:
            raise NotFound(NO_KEY)
        organizations &= {access_organization(user, row.project.organization_id).organization.id}
        if project not in {None, row.project_id}:
            # Of another project than the one named: the two have nothing in common.
            organizations.clear()
        project, key = row.project_id, row.id
    return ActivityScope(frozenset(organizations), project, key)
