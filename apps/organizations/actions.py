"""Actions on users, organizations, members and projects, each in one transaction.

Callers have checked access (`access.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from apps.kernel.errors import Forbidden, InvalidRequest, NotFound, Unauthenticated
from apps.kernel.ids import find_id
from apps.kernel.postgres.rows import find_row, lock_row
from apps.organizations import app_hooks, invitations
from apps.organizations.access import NO_MEMBER, NO_ORGANIZATION, NO_PROJECT, is_verified, require_verified
from apps.organizations.credentials import passwords
from apps.organizations.credentials.credential_changes import first_proof_of_mailbox, password_changed
from apps.organizations.credentials.email_tokens import find_user_to_reset
from apps.organizations.credentials.sessions import end_browser_sessions, end_sessions
from apps.organizations.journal import audit
from apps.organizations.models import Membership, Organization, Plan, Project, Role, User
from apps.organizations.plans import limits_of
from apps.organizations.teams.access import find_team

_WRONG = "Wrong e-mail address or password"
_OR_NOT_CONFIRMED = f"{_WRONG}, or the address is not confirmed yet: open the link that was sent to it"
DEFAULT_ORGANIZATION, DEFAULT_PROJECT = "Default Organization", "Default Project"


def sign_up(
    *, name: str, email: str, password: str, ref: str | None = None, invitation: str | None = None
) -> User | None:
    """Create a user with their own organization and project; return None if the address must be confirmed first.

    With confirmation on, an address with an account gets the same answer, and its owner an e-mail. Otherwise raises
    InvalidRequest (409). Raises Forbidden if `SIGN_UP` does not admit the address.

    `ref` is the id of the referring organization; unknown ids are ignored. An `invitation` was sent to the address and
    so confirms it; a user who joins an organization or the operators by it gets no organization of their own
    (docs/adr/0098).
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
                if admitted is None or (admitted.organization_id is None and not admitted.operator_group):
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
    """Request an e-mail that tells the owner of an account that someone tried to sign up with its address."""
    users = User.objects.filter(email=User.normalize_username(email), is_active=True)
    users.update(sign_up_tried_at=timezone.now())


def verify_email(*, user: User) -> bool:
    """Mark a user's address as confirmed; False if it already was."""
    return bool(User.objects.filter(pk=user.pk, email_verified_at=None).update(email_verified_at=timezone.now()))


def want_verification(*, email: str) -> None:
    """Request a confirmation e-mail; does nothing for a confirmed address or an unknown user."""
    users = User.objects.filter(email=User.normalize_username(email), email_verified_at=None, is_active=True)
    users.update(verification_wanted_at=timezone.now())


def want_password_reset(*, email: str) -> None:
    """Request a password reset e-mail; does nothing for an unknown user."""
    users = User.objects.filter(email=User.normalize_username(email), is_active=True)
    users.update(password_reset_wanted_at=timezone.now())


def reset_password(*, token: str, password: str) -> bool:
    """Set the password of the user in a token; return False if the token is invalid.

    Second factors stay.

    An unconfirmed address becomes confirmed, and access from before the reset is removed.
    """
    if find_user_to_reset(token) is None:
        return False
    stored = passwords.hash_of(password)
    with transaction.atomic():
        # If a token is sent twice at once, the second request finds the password changed.
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

    Raises Unauthenticated with the same message and timing for an unknown address, a wrong password, and an unconfirmed
    address, so that a sign-up with another person's address reveals no account.
    """
    user = User.objects.filter(email=User.normalize_username(email), is_active=True).first()
    if not passwords.matches(password, user.password if user else None) or user is None or not is_verified(user):
        raise Unauthenticated(_OR_NOT_CONFIRMED if settings.EMAIL_VERIFICATION else _WRONG)
    return user


def set_password(*, user: User, password: str) -> None:
    """Set a user's password; ends every earlier session."""
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
    """Create an additional organization for a user.

    Raises Forbidden if they own the maximum: `User.organization_limit`, else the setting ORGANIZATIONS_PER_USER.
    Deleted organizations do not count.
    """
    require_verified(owner)
    # The lock serializes requests of one user, so that each counts the organizations of the others.
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
    """Delete an organization with its projects and keys; `deletion.py` removes the data. Irreversible.

    People request a deletion (`deletion.py`), which ends here when it is due.
    """
    row = lock_row(organization, NO_ORGANIZATION)
    _set(row, {"status": Organization.Status.DELETED, "deletion_due_at": None, "auto_top_up_enabled": False})
    living = row.projects.exclude(status=Project.Status.DELETED)
    living.update(status=Project.Status.DELETED, updated_at=timezone.now())
    _record("organization.delete", row, {"name": row.name})


@transaction.atomic
def create_project(*, organization: Organization, fields: Mapping[str, Any]) -> Project:
    """Create a project. Raises Forbidden at the plan's limit, InvalidFields for an unknown team, NotFound if the
    organization is deleted."""
    limit = limits_of(lock_row(organization, NO_ORGANIZATION).plan).projects
    if limit is not None and organization.projects.exclude(status=Project.Status.DELETED).count() >= limit:
        raise Forbidden(f"Maximum {limit} projects per organization")
    project = Project.objects.create(organization=organization, **_with_team(organization, fields))
    team = {} if project.team_id is None else {"teamId": project.team_id}
    _record("project.create", project, {"name": project.name, "mode": project.mode, **team})
    return project


@transaction.atomic
def change_project(*, project: Project, changes: Mapping[str, Any]) -> Project:
    """Set columns of a project, its status among them.

    Raises NotFound when it was deleted meanwhile, InvalidFields for an unknown team.
    """
    row = lock_row(project, NO_PROJECT)
    changes = _with_team(row.organization, changes)
    if changes.get("status") == Project.Status.DELETED:
        _record("project.delete", row, {"name": row.name})
    else:
        _record("project.update", row, audit.changes_of(row, changes))
    _set(row, changes)
    return row


def delete_project(*, project: Project) -> None:
    """Delete a project and revoke its keys. Irreversible. Raises NotFound if it already is deleted."""
    change_project(project=project, changes={"status": Project.Status.DELETED})


@transaction.atomic
def add_member(*, organization: Organization, email: str, role: Role) -> Membership:
    """Make the user with this address a member. Raises NotFound without one, InvalidRequest (409) for a member."""
    lock_row(organization, NO_ORGANIZATION)
    user = User.objects.filter(email=User.normalize_username(email), is_active=True).first()
    if user is not None and settings.EMAIL_VERIFICATION and user.email_verified_at is None:
        # The person who signed up with an unconfirmed address may not own the mailbox.
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
    """Change a member's role. Raises InvalidRequest for the last owner, NotFound for a former member."""
    row = _locked_member(membership, remains_owner=role == Role.OWNER)
    _record("member.update", row, {"email": row.user.email, **audit.changes_of(row, {"role": role})})
    _set(row, {"role": role})
    return row


@transaction.atomic
def remove_member(*, membership: Membership) -> int:
    """End a membership and revoke the API keys that the member created there; return how many.

    Raises InvalidRequest for the last owner, NotFound for a former member.
    """
    row = _locked_member(membership, remains_owner=False)
    revoked = app_hooks.revoke(row.organization_id, row.user_id)
    _record("member.delete", row, {"email": row.user.email, "role": row.role, "revokedApiKeys": revoked})
    row.delete()
    return revoked


@transaction.atomic
def set_plan(*, organization: Organization, plan: Plan) -> None:
    """Move an organization to another plan without an end date."""
    changes = {"plan": plan, "plan_expires_at": None}
    _record("organization.update", organization, audit.changes_of(organization, changes))
    organization.plan, organization.plan_expires_at = plan, None
    organization.save(update_fields=["plan", "plan_expires_at", "updated_at"])


@transaction.atomic
def sign_out(*, user: User) -> int:
    """End every session of a user, in the API and in browsers; return how many."""
    count = end_sessions(user) + end_browser_sessions(user)
    audit.record_of_account("user.sign_out", user=user, resource=user)
    return count


def create_operator(*, email: str, password: str) -> User:
    """Create an operator, or make an existing user an operator with this password."""
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


def _with_team(organization: Organization, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a project's columns with the id of the team that the fields name. Raises InvalidFields."""
    columns = dict(fields)
    if columns.get("team_id") is not None:
        columns["team_id"] = find_team(organization, columns["team_id"]).pk
    return columns


def _find_referrer(ref: str | None) -> Organization | None:
    identifier = find_id(ref or "")
    if identifier is None:
        return None
    return Organization.objects.filter(pk=identifier).exclude(status=Organization.Status.DELETED).first()


def _locked_member(membership: Membership, *, remains_owner: bool) -> Membership:
    """Return the current membership, locked within its organization; `remains_owner` false refuses the last owner."""
    members = Membership.objects.filter(organization=lock_row(membership.organization, NO_ORGANIZATION))
    row = find_row(members.select_related("user"), membership.pk, NO_MEMBER)
    others = members.filter(role=Role.OWNER).exclude(pk=row.pk)
    if row.role == Role.OWNER and not remains_owner and not others.exists():
        raise InvalidRequest("The last owner of an organization stays its owner", code="last_owner")
    return row


def _set(row: Organization | Project | Membership, changes: Mapping[str, Any]) -> None:
    """Save only these columns: the ledger changes balances concurrently."""
    for name, value in changes.items():
        setattr(row, name, value)
    row.save(update_fields=[*changes, "updated_at"])
