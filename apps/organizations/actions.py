"""What can be done to users, organizations, their members and projects: each verb one transaction.

Knows what belongs together. Must never know HTTP, nor whether the caller may: `access.py` says so beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.kernel.errors import Forbidden, InvalidRequest, NotFound, Unauthenticated
from apps.kernel.ids import find_id
from apps.organizations import audit, invitations, passwords, revocation
from apps.organizations.access import NO_MEMBER, NO_ORGANIZATION, NO_PROJECT, is_verified, require_verified
from apps.organizations.credential_changes import first_proof_of_mailbox, password_changed
from apps.organizations.email_tokens import find_user_to_reset
from apps.organizations.models import Membership, Organization, Plan, Project, Role, User
from apps.organizations.plans import limits_of
from apps.organizations.row_locks import lock_row
from apps.organizations.sessions import end_browser_sessions, end_sessions

_WRONG = "Wrong e-mail address or password"
_OR_NOT_CONFIRMED = f"{_WRONG}, or the address is not confirmed yet: open the link in the message that was sent to it"
DEFAULT_ORGANIZATION, DEFAULT_PROJECT = "Default Organization", "Default Project"


def sign_up(
    *, name: str, email: str, password: str, ref: str | None = None, invitation: str | None = None
) -> User | None:
    """Create a user with an organization and a project of their own; return None while the address is to be confirmed.

    Where addresses are confirmed, one that has an account is answered alike, and its owner gets a message. Elsewhere
    raises InvalidRequest (409). Raises Forbidden for whom `SIGN_UP` does not let in.

    `ref` is the id of the organization that sent them; one that does not exist is not recorded. An `invitation` was
    sent to the address, so it needs no further message to be confirmed; whom it makes a member of an organization gets
    none of their own beside it (docs/adr/0231).
    """
    admitted = invitations.admit(email=email, token=invitation)
    stored = passwords.hash_of(password)
    now = timezone.now()
    verified = admitted is not None or not settings.EMAIL_VERIFICATION
    try:
        with transaction.atomic():
            user = User.objects.create(
                email=User.normalize_username(email),
                name=name,
                password=stored,
                email_verified_at=now if verified else None,
                verification_wanted_at=None if verified else now,
            )
            with audit.acting(user):
                if admitted is None or admitted.organization_id is None:
                    create_organization(owner=user, referred_by=_find_referrer(ref))
                if admitted is not None:
                    invitations.accept(invitation=admitted, user=user)
    except IntegrityError as error:
        if not verified:
            _want_sign_up_notice(email)
            return None
        raise InvalidRequest(
            "An account with this e-mail address already exists", status=409, code="already_exists", param="email"
        ) from error
    return user if verified else None


def _want_sign_up_notice(email: str) -> None:
    """Have a message sent that tells the owner of an account that someone tried to sign up with its address."""
    users = User.objects.filter(email=User.normalize_username(email), is_active=True)
    users.update(sign_up_tried_at=timezone.now())


def verify_email(*, user: User) -> bool:
    """Note that a user reads the mail of their address; False when that was known."""
    return bool(User.objects.filter(pk=user.pk, email_verified_at=None).update(email_verified_at=timezone.now()))


def want_verification(*, email: str) -> None:
    """Have a message sent that lets a user confirm their address; nothing where that is done, or there is no user."""
    users = User.objects.filter(email=User.normalize_username(email), email_verified_at=None, is_active=True)
    users.update(verification_wanted_at=timezone.now())


def want_password_reset(*, email: str) -> None:
    """Have a message sent that lets a user choose another password; nothing where there is no such user."""
    users = User.objects.filter(email=User.normalize_username(email), is_active=True)
    users.update(password_reset_wanted_at=timezone.now())


def reset_password(*, token: str, password: str) -> bool:
    """Set the password of the user that a token was sent to; return False when the token is not valid.

    Second factors stay as they are.

    An address that was not confirmed is from then on, and what was there before is gone.
    """
    if find_user_to_reset(token) is None:
        return False
    stored = passwords.hash_of(password)
    with transaction.atomic():
        # Of two who bring the token at once, the second finds the password changed.
        found = find_user_to_reset(token, lock=True)
        if found is None:
            return False
        found.password = stored
        found.save(update_fields=["password", "updated_at"])
        with audit.acting(found):
            password_changed(found)
            if settings.EMAIL_VERIFICATION and found.email_verified_at is None:
                first_proof_of_mailbox(found)
            audit.record_of_account("password.reset", user=found, resource=found)
    return True


def sign_in(*, email: str, password: str) -> User:
    """Return the user.

    Raises Unauthenticated, alike and as late for an unknown address, a wrong password, and an address that has yet to
    be confirmed: who tried to sign up with another's address does not learn from it whether there is an account.
    """
    user = User.objects.filter(email=User.normalize_username(email), is_active=True).first()
    if not passwords.matches(password, user.password if user else None) or user is None or not is_verified(user):
        raise Unauthenticated(_OR_NOT_CONFIRMED if settings.EMAIL_VERIFICATION else _WRONG)
    return user


def set_password(*, user: User, password: str) -> None:
    """Give a user another password; every session under the old one ends."""
    user.password = passwords.hash_of(password)
    with transaction.atomic():
        user.save(update_fields=["password", "updated_at"])
        password_changed(user)


@transaction.atomic
def create_organization(
    *, owner: User, name: str = DEFAULT_ORGANIZATION, referred_by: Organization | None = None
) -> Organization:
    """Create an organization that the user owns, with its default project."""
    organization = Organization.objects.create(name=name, billing_email=owner.email, referred_by=referred_by)
    Membership.objects.create(organization=organization, user=owner, role=Role.OWNER)
    Project.objects.create(organization=organization, name=DEFAULT_PROJECT)
    _record("organization.create", organization, {"name": name, "plan": organization.plan})
    return organization


@transaction.atomic
def create_further_organization(*, owner: User, name: str) -> Organization:
    """Create an organization at a user's wish.

    Raises Forbidden when they own as many as they may: `User.organization_limit`, else the setting
    ORGANIZATIONS_PER_USER. Deleted organizations do not count.
    """
    require_verified(owner)
    # The lock makes requests of one user wait for each other, so that each counts the organizations of the others.
    limit = User.objects.select_for_update(no_key=True).get(pk=owner.pk).organization_limit
    if limit is None:
        limit = settings.ORGANIZATIONS_PER_USER
    owned = Membership.objects.filter(user=owner, role=Role.OWNER)
    if owned.exclude(organization__status=Organization.Status.DELETED).count() >= limit:
        raise Forbidden(f"The limit of {limit} organizations was reached")
    return create_organization(owner=owner, name=name)


@transaction.atomic
def change_organization(*, organization: Organization, changes: Mapping[str, Any]) -> Organization:
    """Set columns of an organization. Raises NotFound when it was deleted meanwhile."""
    row = lock_row(organization, NO_ORGANIZATION)
    _record("organization.update", row, audit.changes_of(row, changes))
    _set(row, changes)
    return row


@transaction.atomic
def delete_organization(*, organization: Organization) -> None:
    """End an organization with its projects, and thereby its keys; `erasure.py` removes the data. Irreversible."""
    row = lock_row(organization, NO_ORGANIZATION)
    _set(row, {"status": Organization.Status.DELETED, "auto_top_up_enabled": False})
    living = row.projects.exclude(status=Project.Status.DELETED)
    living.update(status=Project.Status.DELETED, updated_at=timezone.now())
    _record("organization.delete", row, {"name": row.name})


@transaction.atomic
def create_project(*, organization: Organization, fields: Mapping[str, Any]) -> Project:
    """Create a project. Raises Forbidden when the plan's are used up, NotFound when the organization is deleted."""
    limit = limits_of(lock_row(organization, NO_ORGANIZATION).plan).projects
    if limit is not None and organization.projects.exclude(status=Project.Status.DELETED).count() >= limit:
        raise Forbidden(f"Maximum {limit} projects per organization")
    project = Project.objects.create(organization=organization, **fields)
    _record("project.create", project, {"name": project.name, "mode": project.mode})
    return project


@transaction.atomic
def change_project(*, project: Project, changes: Mapping[str, Any]) -> Project:
    """Set columns of a project, its status among them. Raises NotFound when it was deleted meanwhile."""
    row = lock_row(project, NO_PROJECT)
    if changes.get("status") == Project.Status.DELETED:
        _record("project.delete", row, {"name": row.name})
    else:
        _record("project.update", row, audit.changes_of(row, changes))
    _set(row, changes)
    return row


def delete_project(*, project: Project) -> None:
    """End a project, and thereby its keys. Irreversible. Raises NotFound when it already is."""
    change_project(project=project, changes={"status": Project.Status.DELETED})


@transaction.atomic
def add_member(*, organization: Organization, email: str, role: Role) -> Membership:
    """Make the user with this address a member. Raises NotFound without one, InvalidRequest (409) for a member."""
    lock_row(organization, NO_ORGANIZATION)
    user = User.objects.filter(email=User.normalize_username(email), is_active=True).first()
    if user is not None and settings.EMAIL_VERIFICATION and user.email_verified_at is None:
        # Whoever signed up with the address need not be who has the mailbox.
        user = None
    if user is None:
        raise NotFound("There is no account with this e-mail address")
    membership, added = Membership.objects.get_or_create(organization=organization, user=user, defaults={"role": role})
    if not added:
        raise InvalidRequest(
            "This user already is a member of the organization", status=409, code="already_exists", param="email"
        )
    _record("member.create", membership, {"email": user.email, "role": role})
    return membership


@transaction.atomic
def change_member(*, membership: Membership, role: Role) -> Membership:
    """Give a member another role. Raises InvalidRequest for the last owner, NotFound for one who has left."""
    row = _locked_member(membership, remains_owner=role == Role.OWNER)
    _record("member.update", row, {"email": row.user.email, **audit.changes_of(row, {"role": role})})
    _set(row, {"role": role})
    return row


@transaction.atomic
def remove_member(*, membership: Membership) -> int:
    """End a membership, and with it the API keys that the member created there; return how many of those there were.

    Raises InvalidRequest for the last owner, NotFound for one who has left.
    """
    row = _locked_member(membership, remains_owner=False)
    revoked = revocation.revoke(row.organization_id, row.user_id)
    _record("member.delete", row, {"email": row.user.email, "role": row.role, "revokedApiKeys": revoked})
    row.delete()
    return revoked


@transaction.atomic
def set_plan(*, organization: Organization, plan: Plan) -> None:
    """Move an organization to another plan, without a term."""
    changes = {"plan": plan, "plan_expires_at": None}
    _record("organization.update", organization, audit.changes_of(organization, changes))
    organization.plan, organization.plan_expires_at = plan, None
    organization.save(update_fields=["plan", "plan_expires_at", "updated_at"])


@transaction.atomic
def sign_out(*, user: User) -> int:
    """End every session of a user, of the API and of browsers; return how many there were."""
    count = end_sessions(user) + end_browser_sessions(user)
    audit.record_of_account("user.sign_out", user=user, resource=user)
    return count


def create_operator(*, email: str, password: str) -> User:
    """Create a user who may enter the admin, or make an existing one an operator with this password."""
    stored = passwords.hash_of(password)
    with transaction.atomic():
        user, created = User.objects.get_or_create(
            email=User.normalize_username(email), defaults={"password": stored, "name": "Operator"}
        )
        user.email_verified_at = user.email_verified_at or timezone.now()
        user.is_staff = user.is_superuser = user.is_active = True
        user.password = stored
        user.save(
            update_fields=["is_staff", "is_superuser", "is_active", "password", "email_verified_at", "updated_at"]
        )
        if not created:
            password_changed(user)
    return user


def _record(action: str, row: Organization | Project | Membership, details: Mapping[str, Any]) -> None:
    organization_id = row.id if isinstance(row, Organization) else row.organization_id
    audit.record(action, organization_id=organization_id, resource=row, details=details)


def _find_referrer(ref: str | None) -> Organization | None:
    identifier = find_id(ref or "")
    if identifier is None:
        return None
    return Organization.objects.filter(pk=identifier).exclude(status=Organization.Status.DELETED).first()


def _locked_member(membership: Membership, *, remains_owner: bool) -> Membership:
    """Return the membership as it is now; no other of the organization changes meanwhile, and an owner stays."""
    members = Membership.objects.filter(organization=lock_row(membership.organization, NO_ORGANIZATION))
    row = members.filter(pk=membership.pk).select_related("user").first()
    if row is None:
        raise NotFound(NO_MEMBER)
    others = members.filter(role=Role.OWNER).exclude(pk=row.pk)
    if row.role == Role.OWNER and not remains_owner and not others.exists():
        raise InvalidRequest("The last owner of an organization stays its owner", code="last_owner")
    return row


def _set(row: Organization | Project | Membership, changes: Mapping[str, Any]) -> None:
    """Write these columns and no other: money moves beside them."""
    for name, value in changes.items():
        setattr(row, name, value)
    row.save(update_fields=[*changes, "updated_at"])
