"""Invitations: who may sign up and become a member of an organization.

Knows when one still stands. Must never tell whether an address has an account.
"""

from __future__ import annotations

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from apps.kernel.errors import Forbidden, InvalidRequest, NotFound
from apps.organizations import audit
from apps.organizations.access import is_verified
from apps.organizations.email_tokens import INVITATION_LASTS, invitation_in
from apps.organizations.models import Invitation, Membership, Organization, Role, User

OPEN, INVITE, CLOSED = "open", "invite", "closed"
NO_INVITATION = "Invitation not found"
# Of one organization that wait to be accepted.
MOST_WAITING = 100


def waiting(organization: Organization | None = None) -> QuerySet[Invitation]:
    """Return the invitations that still stand, of one organization or of all.

    One into an organization stands while the member who gave it could still give it; operators' have no giver.
    """
    rows = Invitation.objects.filter(accepted_at=None, expires_at__gt=timezone.now())
    givers = Membership.objects.filter(
        organization=OuterRef("organization"), user=OuterRef("invited_by"), user__is_active=True
    )
    by_owner, by_admin = Exists(givers.filter(role=Role.OWNER)), Exists(givers.filter(role=Role.ADMIN))
    by_operator = Q(organization=None) | Q(invited_by=None)
    rows = rows.filter(by_operator | Q(by_owner) | Q(by_admin) & ~Q(role=Role.OWNER))
    rows = rows.exclude(organization__status=Organization.Status.DELETED)
    return rows if organization is None else rows.filter(organization=organization)


def addressed_to(user: User) -> QuerySet[Invitation]:
    """Return the invitations into organizations that were sent to a user's address, which is confirmed."""
    rows = waiting().filter(email=user.email).exclude(organization=None).select_related("organization", "invited_by")
    return rows if is_verified(user) else rows.none()


def find_by_token(token: str) -> Invitation | None:
    """Return the invitation of a link, while it stands."""
    identifier = invitation_in(token)
    return waiting().filter(pk=identifier).select_related("organization").first() if identifier else None


@transaction.atomic
def invite(
    *, email: str, organization: Organization | None = None, role: Role = Role.DEVELOPER, by: User | None = None
) -> Invitation:
    """Invite an address; a message is sent soon. One that was invited before is invited anew.

    Without an organization it is an invitation to sign up, which operators give. Raises InvalidRequest: 409 for a
    member, whom everybody who invites sees among the members, and 400 when too many wait to be accepted.
    """
    email = User.normalize_username(email)
    if organization is not None:
        Organization.objects.select_for_update(no_key=True).get(pk=organization.pk)
        _refuse_member(organization, email)
        if waiting(organization).exclude(email=email).count() >= MOST_WAITING:
            raise InvalidRequest(f"Maximum {MOST_WAITING} open invitations per organization", code="invitation_limit")
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
    """Take an invitation back. Raises NotFound when it was accepted or withdrawn meanwhile."""
    row = _locked(invitation)
    if row is None or row.organization_id != organization.id:
        raise NotFound(NO_INVITATION)
    _record("invitation.delete", row)
    row.delete()


def admit(*, email: str, token: str | None) -> Invitation | None:
    """Return the invitation by which an address signs up; None where everybody may. Raises Forbidden.

    The refusal is the same whatever the address: whether it has an account is not looked at.
    """
    if settings.SIGN_UP == CLOSED:
        raise Forbidden("Sign-up is closed: accounts are made by the operator", code="sign_up_closed")
    if token:
        found = find_by_token(token)
        if found is None or found.email != User.normalize_username(email):
            raise _not_good()
        return found
    if settings.SIGN_UP == INVITE:
        raise Forbidden(
            "Sign-up is by invitation: send the `invitation` of the message that you got", code="invitation_required"
        )
    return None


@transaction.atomic
def accept(*, invitation: Invitation, user: User) -> Membership | None:
    """Make the user what the invitation says, once; return the membership, None without an organization.

    Raises Forbidden when it is another's, is too old, or was used. A member keeps the role that they have.
    """
    row = _locked(invitation)
    if row is None or row.email != user.email or not waiting().filter(pk=row.pk).exists():
        raise _not_good()
    row.accepted_at = timezone.now()
    row.save(update_fields=["accepted_at"])
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


def _locked(invitation: Invitation) -> Invitation | None:
    return Invitation.objects.select_for_update(no_key=True).filter(pk=invitation.pk, accepted_at=None).first()


def _not_good() -> Forbidden:
    return Forbidden(
        "This invitation is not good for this e-mail address: it was used, withdrawn, or is too old",
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
