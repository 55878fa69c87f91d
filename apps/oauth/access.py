"""Access by OAuth: authenticates access tokens, and finds the consents that a user may see and revoke."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone

from apps.kernel.postgres.rows import find_row
from apps.keys.models import ApiKey
from apps.oauth.models import AccessToken, Consent
from apps.oauth.resources import read_resource
from apps.organizations.access import access_organization, reaches
from apps.organizations.models import Organization, Project, Role, User

NO_CONSENT = "There is no such program"
# Characters; our tokens are shorter.
_MAX_TOKEN = 200


@dataclass(frozen=True, slots=True)
class AccessGrant:
    """The owner of an access token; requests with it count as requests of the API key."""

    api_key_id: UUID
    project_id: UUID
    user_id: UUID
    scopes: frozenset[str]


def authenticate_access_token(token: str, *, resource: str) -> AccessGrant | None:
    """Return the owner of an access token at a resource (`resources.resource_of`); None for an unknown or expired
    token, one for another resource, and one whose consent or key was revoked or switched off.

    One query. The key's policy then checks its project, limits and rules, by the key's id.
    """
    if not token or not resource or len(token) > _MAX_TOKEN:
        return None
    digest = sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
    row = (
        AccessToken.objects.filter(token_checksum=digest, expires__gt=timezone.now())
        .filter(consent__revoked_at=None, consent__api_key__status=ApiKey.Status.ACTIVE, user__is_active=True)
        .values_list("consent__api_key_id", "consent__project_id", "user_id", "scope", "resource")
        .first()
    )
    if row is None:
        return None
    api_key_id, project_id, user_id, scope, resources = row
    if read_resource(resource) not in resources:
        return None
    return AccessGrant(api_key_id, project_id, user_id, frozenset(scope.split()))


def living_consents() -> QuerySet[Consent]:
    """Return the consents in force, newest first; a consent ends with its API key."""
    rows = Consent.objects.filter(revoked_at=None).exclude(api_key__status=ApiKey.Status.DELETED)
    rows = rows.exclude(project__status=Project.Status.DELETED)
    rows = rows.exclude(project__organization__status=Organization.Status.DELETED)
    return rows.select_related("client", "project__organization", "api_key", "user").order_by("-created_at", "-id")


def consents_of(user: User) -> QuerySet[Consent]:
    """Return the consents of a user."""
    return living_consents().filter(user=user)


def access_consents(user: User, organization_id: UUID | str) -> QuerySet[Consent]:
    """Return the consents in an organization that a user may see: their own, or all as an admin.

    Raises NotFound, Forbidden.
    """
    organization, role = access_organization(user, organization_id)
    rows = living_consents().filter(project__organization=organization)
    return rows if reaches(role, Role.ADMIN) else rows.filter(user=user)


def access_consent(user: User, identifier: str) -> Consent:
    """Return a consent that a user may revoke: their own, or any of an organization as its admin. Raises NotFound."""
    row = find_row(living_consents(), identifier, NO_CONSENT)
    if row.user_id == user.id:
        return row
    return find_row(access_consents(user, row.project.organization_id), row.pk, NO_CONSENT)
