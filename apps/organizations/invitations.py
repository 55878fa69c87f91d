"""Invitations to sign up, to join an organization, and to join a group of operators.

No answer reveals whether an address has an account.
"""

from __future__ import annotations

from typing import Any, cast

from django.conf import settings
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from apps.kernel.errors import Forbidden, InvalidRequest, NotFound
from apps.organizations.access import is_verified
from apps.organizations.credentials.email_tokens import INVITATION_LASTS, invitation_in
from apps.organizations.journal import audit
from apps.organizations.models import Invitation, Membership, OperatorGroup, Organization, Role, User

OPEN, INVITE, CLOSED = "open", "invite", "closed"
NO_INVITATION = "Invitation not found"
# Open invitations of one organization.
MAX_WAITING = 100


def waiting(organization: Organization | None = None) -> QuerySet[Invitation]:
    """Return the open invitations of one organization or of all.

    An invitation to an organization stays open while the inviting member could still give it, one to operators while
    the inviting operator is a superuser; those of commands and to sign up alone have no giver.
    """
    rows = Invitation.objects.filter(accepted_at=None, expires_at__gt=timezone.now())
    givers = Membership.objects.filter(
        # A management key's account cannot sign in, and is a member until the key is revoked.
        Q(user__is_active=True) | Q(user__management_key__isnull=False),
        organization=OuterRef("organization"),
        user=OuterRef("invited_by"),
    )
    by_owner, by_admin = Exists(givers.filter(role=Role.OWNER)), Exists(givers.filter(role=Role.ADMIN))
    by_operator = Q(organization=None) | Q(invited_by=None)
    rows = rows.filter(by_operator | Q(by_owner) | Q(by_admin) & ~Q(role=Role.OWNER))
    superuser = Q(invited_by__is_active=True, invited_by__is_staff=True, invited_by__is_superuser=True)
    rows = rows.filter(Q(operator_group="") | Q(invited_by=None) | superuser)
    rows = rows.exclude(organization__status=Organization.Status.DELETED)
    return rows if organization is None else rows.filter(organization=organization)


def addressed_to(user: User) -> QuerySet[Invitation]:
    """Return the invitations to organizations that were sent to a user's confirmed address."""
    rows = waiting().filter(email=user.email).exclude(organization=None).select_related("organization", "invited_by")
    return rows if is_verified(user) else rows.none()


def to_operators() -> QuerySet[Invitation]:
    """Return the open invitations into groups of operators."""
    return waiting().exclude(operator_group="")


def find_by_token(token: str) -> Invitation | None:
    """Return the invitation of a link while it is open."""
    identifier = invitation_in(token)
    return waiting().filter(pk=identifier).select_related("organization").first() if identifier else None


@transaction.atomic
def invite(
    *, email: str, organization: Organization | None = None, role: Role = Role.DEVELOPER, by: User | None = None
) -> Invitation:
    """Invite an address; the e-mail follows soon. An earlier invitation is renewed.

    Without an organization it is an operator's invitation to sign up. Raises InvalidRequest: 409 for a member, whom the
    inviting member can see anyway, and 400 if too many invitations are open.
    """
    email = User.normalize_username(email)
    if organization is not None:
        Organization.objects.select_for_update(no_key=True).get(pk=organization.pk)
        _refuse_member(organization, email)
        if waiting(organization).exclude(email=email).count() >= MAX_WAITING:
            raise InvalidRequest(f"Maximum {MAX_WAITING} open invitations per organization", code="invitation_limit")
    Invitation.objects.filter(organization=organization, email=email, accepted_at=None).delete()
    invitation = Invitation.objects.create(
        organization=organization,
        email=email,
        role=role,
        invited_by=by,
        expires_at=timezone.now() + INVITATION_LASTS,
    )
    _record("invitation.create", invitation)
    return invitation


@transaction.atomic
def invite_operator(*, email: str, group: OperatorGroup, by: User | None = None) -> Invitation:
    """Invite an address into a group of operators; the e-mail follows soon. An earlier invitation is renewed.

    Raises InvalidRequest: 409 for an operator, and 400 if too many invitations are open.
    """
    email = User.normalize_username(email)
    if User.objects.filter(email=email, is_staff=True, is_active=True).exists():
        raise InvalidRequest(f"{email} already is an operator", status=409, code="already_exists", param="email")
    if to_operators().exclude(email=email).count() >= MAX_WAITING:
        raise InvalidRequest(f"Maximum {MAX_WAITING} open invitations of operators", code="invitation_limit")
    Invitation.objects.filter(organization=None, email=email, accepted_at=None).delete()
    return Invitation.objects.create(
        email=email, operator_group=group, invited_by=by, expires_at=timezone.now() + INVITATION_LASTS
    )


def _refuse_member(organization: Organization, email: str) -> None:
    member = organization.memberships.filter(user__email=email).select_related("user").first()
    if member is not None:
        name = f"{member.user.name} ({email})" if member.user.name else email
        raise InvalidRequest(
            f"{name} already is a member of the organization, with the role {member.role}",
            status=409,
            code="already_exists",
            param="email",
        )


@transaction.atomic
def withdraw(*, organization: Organization, invitation: Invitation) -> None:
    """Withdraw an invitation. Raises NotFound if it was accepted or withdrawn meanwhile."""
    row = _locked(invitation)
    if row is None or row.organization_id != organization.id:
        raise NotFound(NO_INVITATION)
    _record("invitation.delete", row)
    row.delete()


def admit(*, email: str, token: str | None) -> Invitation | None:
    """Return the invitation with which an address signs up; None if sign-up is open. Raises Forbidden.

    The refusal is the same for every address and reveals no account.
    """
    found = find_by_token(token) if token else None
    if settings.SIGN_UP == CLOSED and (found is None or not found.operator_group):
        raise Forbidden("Sign-up is closed: the operator creates accounts", code="sign_up_closed")
    if token:
        if found is None or found.email != User.normalize_username(email):
            raise _not_good()
        return found
    if settings.SIGN_UP == INVITE:
        raise Forbidden(
            "Sign-up is by invitation: send the `invitation` token from the link in your e-mail",
            code="invitation_required",
        )
    return None


@transaction.atomic
def accept(*, invitation: Invitation, user: User) -> Membership | None:
    """Give the user the invitation's membership or group of operators once; return the membership, None without one.

    Raises Forbidden if it is for another address, expired or used. A member keeps their role.
    """
    row = _locked(invitation)
    if row is None or row.email != user.email or not waiting().filter(pk=row.pk).exists():
        raise _not_good()
    row.accepted_at = timezone.now()
    row.save(update_fields=["accepted_at"])
    if row.operator_group:
        _make_operator(user, row)
    if row.organization is None:
        return None
    membership, added = Membership.objects.get_or_create(
        organization=row.organization, user=user, defaults={"role": row.role}
    )
    if added:
        audit.record(
            "member.create",
            organization_id=row.organization.id,
            resource=membership,
            details={"email": user.email, "role": row.role, "invitation": row.id},
        )
    return membership


def _make_operator(user: User, invitation: Invitation) -> None:
    """Add a user to a group of operators, and record it among the operators' actions."""
    user.groups.add(Group.objects.get_or_create(name=invitation.operator_group)[0])
    user.is_staff = True
    user.save(update_fields=["is_staff", "updated_at"])
    LogEntry.objects.create(
        user_id=cast(Any, (invitation.invited_by or user).pk),
        content_type=ContentType.objects.get_for_model(User),
        object_id=str(user.pk),
        object_repr=user.email,
        action_flag=CHANGE,
        change_message=f"Accepted the invitation into the group of operators {invitation.operator_group}",
    )


def _locked(invitation: Invitation) -> Invitation | None:
    return Invitation.objects.select_for_update(no_key=True).filter(pk=invitation.pk, accepted_at=None).first()


def _not_good() -> Forbidden:
    return Forbidden(
        "This invitation is not valid for this e-mail address: it was used, was withdrawn, or has expired",
        code="invitation_invalid",
    )


def _record(action: str, invitation: Invitation) -> None:
    if invitation.organization_id is not None:
        audit.record(
            action,
            organization_id=invitation.organization_id,
            resource=invitation,
            details={"email": invitation.email, "role": invitation.role},
        )
