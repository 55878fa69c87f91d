"""Management keys: programs' keys for an organization's management API.

A key acts as a user of its own who cannot sign in and is an admin of this organization alone, so that access control
and the audit log treat it as any member. It may do what its scopes name (`management_scopes.py`), and only while the
member who made it is an admin or owner. Its token is returned once and stored as a digest.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.text import slugify

from apps.kernel.errors import Forbidden, InvalidRequest, Unauthenticated
from apps.kernel.ids import new_id
from apps.kernel.postgres.rows import find_row, lock_row
from apps.kernel.secrets.encryption import digest_of, random_token
from apps.organizations.access import NO_ORGANIZATION
from apps.organizations.credentials.management_scopes import scope_for
from apps.organizations.journal import audit
from apps.organizations.models import ManagementKey, ManagementScope, Membership, Organization, Role, User

# Secret scanners look for it: gw_mgmt_[0-9A-Za-z]{40}
PREFIX: Final = "gw_mgmt_"
NO_KEY: Final = "Management key not found"
# An organization has at most this many, revoked ones aside.
MAX_KEYS: Final = 50
# The last use is written at most this often.
_BETWEEN_USES: Final = timedelta(minutes=5)


class CreatedManagementKey(NamedTuple):
    """A management key and its token, which is shown only once."""

    key: ManagementKey
    token: str


def is_management_key(token: str) -> bool:
    """Return whether a token is a management key, by its prefix."""
    return token.startswith(PREFIX)


def is_program(user: User) -> bool:
    """Return whether a user is the account of a management key or a service account, also of a revoked one."""
    return User.objects.filter(Q(management_key__isnull=False) | Q(service_account__isnull=False), pk=user.pk).exists()


def living(organization: Organization) -> QuerySet[ManagementKey]:
    """Return the organization's keys that are not revoked, oldest first; each has `works`, expiry aside."""
    rows = ManagementKey.objects.filter(organization=organization, revoked_at=None)
    return rows.annotate(works=Exists(_makers())).select_related("created_by").order_by("created_at", "id")


def find_management_key(token: str) -> ManagementKey | None:
    """Return the key of a token while it works, with its account; None otherwise. Notes the use.

    Raises Unauthenticated, with the reason, for a key of an organization whose deletion was requested.

    The digest is looked up by index, so timing reveals nothing about tokens.
    """
    now = timezone.now()
    rows = ManagementKey.objects.filter(Exists(_makers()), digest=digest_of(token), revoked_at=None)
    rows = rows.filter(Q(expires_at=None) | Q(expires_at__gt=now))
    rows = rows.exclude(organization__status=Organization.Status.DELETED).select_related("account", "organization")
    key = rows.first()
    if key is not None and key.organization.status == Organization.Status.DELETING:
        raise Unauthenticated(str(key.organization.refusal), code="organization_deleting")
    if key is not None and (key.last_used_at is None or now - key.last_used_at > _BETWEEN_USES):
        # Not `save`: the key may have been revoked meanwhile.
        ManagementKey.objects.filter(pk=key.pk).update(last_used_at=now)
    return key


def require_scope(key: ManagementKey, request: HttpRequest) -> None:
    """Raise Forbidden unless the key's scopes allow the request."""
    route = request.resolver_match.route if request.resolver_match else ""
    needed = scope_for(route, request.method or "")
    if needed is None:
        raise Forbidden(
            "A management key cannot do this: a person has to sign in; docs/management-keys.md lists what keys can do",
            code="person_required",
        )
    require_one_scope(key, needed)


def require_one_scope(key: ManagementKey, needed: ManagementScope) -> None:
    """Raise Forbidden unless the key has a scope; for endpoints where one field needs more than the others."""
    if needed not in key.scopes:
        raise Forbidden(
            f"This needs a management key with the scope `{needed}`; yours has {_listed(key.scopes)}",
            code="scope_missing",
        )


@transaction.atomic
def create_management_key(
    *, user: User, organization: Organization, name: str, scopes: Collection[str], expires_at: datetime | None = None
) -> CreatedManagementKey:
    """Create a key with its account.

    Raises InvalidRequest at the limit of keys, NotFound for a deleted organization.
    """
    # The lock serializes requests, so that each counts the others' keys.
    row = lock_row(organization, NO_ORGANIZATION)
    if ManagementKey.objects.filter(organization=row, revoked_at=None).count() >= MAX_KEYS:
        raise InvalidRequest(
            f"Maximum {MAX_KEYS} management keys per organization; revoke one first",
            code="management_key_limit_reached",
        )
    identifier, token = new_id(), random_token(PREFIX)
    # Inactive: it cannot sign in, have its password reset, or be added to other organizations.
    # It names the key in the audit log.
    email = f"{slugify(name)[:40] or 'key'}.{identifier.hex[-12:]}@{ManagementKey.ACCOUNT_DOMAIN}"
    account = User.objects.create(email=email, name=name, is_active=False)
    account.set_unusable_password()
    account.email_verified_at = account.created_at
    account.save(update_fields=["password", "email_verified_at", "updated_at"])
    Membership.objects.create(organization=row, user=account, role=Role.ADMIN)
    key = ManagementKey.objects.create(
        id=identifier,
        organization=row,
        account=account,
        name=name,
        scopes=sorted(set(scopes)),
        digest=digest_of(token),
        last_four=token[-4:],
        created_by=user,
        expires_at=expires_at,
    )
    _record("create", key, {"name": name, "scopes": key.scopes, "expiresAt": expires_at})
    return CreatedManagementKey(key, token)


@transaction.atomic
def rotate_management_key(*, key: ManagementKey, user: User) -> CreatedManagementKey:
    """Give a key a new token; the old one stops working. From now on it depends on this user's role.

    Raises NotFound when it was revoked meanwhile.
    """
    row, token = _locked(key), random_token(PREFIX)
    _record("rotate", row, {"name": row.name, "from": masked(row), "to": f"{PREFIX}…{token[-4:]}"})
    row.digest, row.last_four, row.created_by = digest_of(token), token[-4:], user
    row.save(update_fields=["digest", "last_four", "created_by"])
    return CreatedManagementKey(row, token)


@transaction.atomic
def revoke_management_key(*, key: ManagementKey) -> None:
    """End a key and its account's membership; what it made stays. Raises NotFound when it was revoked meanwhile."""
    row = _locked(key)
    _record("revoke", row, {"name": row.name, "maskedToken": masked(row)})
    row.revoked_at = timezone.now()
    row.save(update_fields=["revoked_at"])
    Membership.objects.filter(user=row.account_id).delete()


def masked(key: ManagementKey) -> str:
    """Return the token for display."""
    return f"{PREFIX}…{key.last_four}"


def _locked(key: ManagementKey) -> ManagementKey:
    return find_row(ManagementKey.objects.select_for_update().filter(revoked_at=None), key.pk, NO_KEY)


def _makers() -> QuerySet[Membership]:
    """Return the membership of a key's maker while it gives the right to have management keys."""
    return Membership.objects.filter(
        organization=OuterRef("organization"),
        user=OuterRef("created_by"),
        user__is_active=True,
        role__in=(Role.ADMIN, Role.OWNER),
    )


def _record(verb: str, key: ManagementKey, details: dict[str, object]) -> None:
    audit.record(f"management_key.{verb}", organization_id=key.organization_id, resource=key, details=details)


def _listed(scopes: Collection[str]) -> str:
    return ", ".join(f"`{one}`" for one in scopes)
