"""What can be done to API keys: each verb one transaction.

Knows a plan's limit of keys. Must never keep or log the token: it is returned once.
"""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple
from uuid import UUID

from django.db import transaction

from apps.kernel.errors import Gone, InvalidRequest
from apps.keys.models import ApiKey
from apps.keys.secrets import digest_of, new_token, prefix
from apps.organizations.access import access_project
from apps.organizations.models import Project, User
from apps.organizations.plans import limits_of


class CreatedKey(NamedTuple):
    """A new key and its token, which cannot be had again."""

    key: ApiKey
    token: str


@transaction.atomic
def create_api_key(
    *, user: User, project_id: UUID | str, description: str, usage_limit: Decimal | None = None
) -> CreatedKey:
    """Create a key of a project that the user has access to; `usage_limit` is USD, None unlimited.

    Raises NotFound, Forbidden, Gone for a project that is archived, InvalidRequest when the plan's keys are used up.
    """
    project, _ = access_project(user, project_id)
    # Those who create keys at once wait for each other here, so that none of them counts without the others' keys.
    Project.objects.select_for_update(no_key=True).get(pk=project.pk)
    if project.status != Project.Status.ACTIVE:
        raise Gone(f"This project has been {project.status}")
    limit = limits_of(project.organization.plan).api_keys_per_project
    if limit is not None and count_of_keys(project) >= limit:
        raise InvalidRequest(f"Maximum {limit} API keys per project", code="api_key_limit_reached")
    token = new_token()
    key = ApiKey.objects.create(
        project=project,
        created_by=user,
        description=description,
        digest=digest_of(token),
        prefix=prefix(),
        last_four=token[-4:],
        usage_limit=usage_limit,
    )
    return CreatedKey(key, token)


def count_of_keys(project: Project) -> int:
    """Return how many keys count towards the plan's limit; deleted ones do not."""
    return ApiKey.objects.filter(project=project).exclude(status=ApiKey.Status.DELETED).count()
