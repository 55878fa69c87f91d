"""Access control of organizations and projects: who may see and change which rows, by membership and role.

Commands find organizations by id or exact name as an operator typed it, and the addresses of their owners.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from smtplib import SMTPRecipientsRefused
from typing import NamedTuple
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMessage
from django.db.models import QuerySet

from apps.kernel.errors import Forbidden
from apps.kernel.ids import find_id
from apps.kernel.pages.languages import email_code, email_language
from apps.kernel.postgres.rows import find_row
from apps.organizations.models import Membership, Organization, Project, Role, User

NO_ORGANIZATION, NO_PROJECT, NO_MEMBER = "Organization not found", "Project not found", "Member not found"
# Columns of an organization that admins may change; the others are billing and policy.
_FOR_ADMINS = frozenset({"name"})
# Each role includes the rights of the ones before it.
_RANK = {Role.DEVELOPER: 0, Role.ADMIN: 1, Role.OWNER: 2}


class OrganizationAccess(NamedTuple):
    """An organization and the user's membership in it."""

    organization: Organization
    role: Role


class ProjectAccess(NamedTuple):
    """A project, its organization, and the user's membership."""

    project: Project
    role: Role


class MembershipAccess(NamedTuple):
    """A member of an organization, and the requesting user's own membership."""

    membership: Membership
    organization: Organization
    role: Role


def reaches(role: Role, needed: Role) -> bool:
    """Return whether a role includes the rights of another."""
    return _RANK[role] >= _RANK[needed]


def require(role: Role, needed: Role) -> None:
    """Raise Forbidden if the role is not sufficient."""
    if not reaches(role, needed):
        raise Forbidden(f"This needs the role {needed} in the organization; yours is {role}")


def is_verified(user: User) -> bool:
    """Return whether a user has confirmed their e-mail address, or does not have to."""
    return user.email_verified_at is not None or not settings.EMAIL_VERIFICATION


def require_verified(user: User) -> None:
    """Raise Forbidden for a user with an unconfirmed e-mail address, if confirmation is required."""
    if not is_verified(user):
        raise Forbidden(
            f"Confirm your e-mail address first: open the link that was sent to {user.email}",
            code="email_not_verified",
        )


def needed_to_change(fields: Collection[str]) -> Role:
    """Return the role that may change these columns: billing and policy need an owner."""
    return Role.ADMIN if set(fields) <= _FOR_ADMINS else Role.OWNER


def access_organization(user: User, identifier: UUID | str, needs: Role = Role.DEVELOPER) -> OrganizationAccess:
    """Return the organization. Raises NotFound; Forbidden for non-members and insufficient roles."""
    living = Organization.objects.exclude(status=Organization.Status.DELETED)
    organization = find_row(living, identifier, NO_ORGANIZATION)
    return OrganizationAccess(organization, _role_in(user, organization.id, needs))


def access_project(user: User, identifier: UUID | str, needs: Role = Role.DEVELOPER) -> ProjectAccess:
    """Return the project, also an archived one. Raises NotFound; Forbidden as in `access_organization`."""
    living = Project.objects.exclude(status=Project.Status.DELETED)
    living = living.exclude(organization__status=Organization.Status.DELETED).select_related("organization")
    project = find_row(living, identifier, NO_PROJECT)
    return ProjectAccess(project, _role_in(user, project.organization_id, needs))


def find_membership(user: User, organization_id: UUID | str, identifier: UUID | str) -> MembershipAccess:
    """Return a member whose limits the user may see: their own membership, or any as an admin.

    Raises NotFound, Forbidden.
    """
    organization, role = access_organization(user, organization_id)
    members = people_of(organization).select_related("user")
    membership = find_row(members, identifier, NO_MEMBER)
    if membership.user_id != user.id:
        require(role, Role.ADMIN)
    return MembershipAccess(membership, organization, role)


def access_membership(user: User, organization_id: UUID | str, identifier: UUID | str) -> MembershipAccess:
    """Return a member that the user may change or remove: their own membership, or any as an admin.

    Only owners may change owners. Raises NotFound, Forbidden.
    """
    found = find_membership(user, organization_id, identifier)
    if found.membership.user_id != user.id:
        require(found.role, Role(found.membership.role))
    return found


def people_of(organization: Organization) -> QuerySet[Membership]:
    """Return the memberships of people: not those of management keys' accounts."""
    return Membership.objects.filter(organization=organization, user__management_key=None)


def roles_of(user: User) -> dict[UUID, Role]:
    """Return the user's role in each organization that is not deleted."""
    memberships = Membership.objects.filter(user=user).exclude(organization__status=Organization.Status.DELETED)
    return {organization_id: Role(role) for organization_id, role in memberships.values_list("organization_id", "role")}


def highest(roles: dict[UUID, Role]) -> Role:
    """Return the highest role; a user without a membership counts as a developer."""
    return max(roles.values(), key=_RANK.__getitem__, default=Role.DEVELOPER)


def _role_in(user: User, organization_id: UUID, needs: Role) -> Role:
    membership = Membership.objects.filter(user=user, organization_id=organization_id).first()
    if membership is None:
        raise Forbidden("You are not a member of this organization")
    role = Role(membership.role)
    require(role, needs)
    return role


class UnclearOrganizationError(ValueError):
    """No organization is meant, or more than one; the message says which."""


def find_organization(text: str) -> Organization:
    """Return the organization with this id or exact name. Raises UnclearOrganizationError."""
    identifier = find_id(text)
    rows = Organization.objects.filter(pk=identifier) if identifier else Organization.objects.filter(name=text)
    match list(rows.order_by("created_at", "id")):
        case [organization]:
            return organization
        case []:
            raise UnclearOrganizationError(f"There is no organization {text!r}")
        case several:
            ids = ", ".join(str(one.id) for one in several)
            raise UnclearOrganizationError(f"{len(several)} organizations are called {text!r}; say which by id: {ids}")


def by_language(addresses: Iterable[str]) -> dict[str, list[str]]:
    """Return addresses by the language of their e-mails; those without an account follow the first one with one."""
    wanted = sorted(addresses)
    rows = User.objects.filter(email__in=wanted).values_list("email", "language", "page_language")
    known = {email: email_code(*languages) for email, *languages in rows}
    usual = next((known[address] for address in wanted if address in known), email_code())
    groups: dict[str, list[str]] = {}
    for address in wanted:
        groups.setdefault(known.get(address, usual), []).append(address)
    return groups


def send_in_languages(
    groups: Mapping[str, list[str]],
    write: Callable[[], tuple[str, str]],
    headers: dict[str, str] | None = None,
) -> int:
    """Send the e-mail that `write` returns, as subject and text, to each group in its language; return how many.

    If every mailbox of a group is refused, the other groups get theirs all the same, as with one e-mail to all. Raises
    SMTPException, OSError.
    """
    sent, refused = 0, None
    for language, addresses in groups.items():
        with email_language(language):
            subject, text = write()
        try:
            # A line break in a name must not add e-mail headers.
            EmailMessage(" ".join(subject.split()), text, bcc=addresses, headers=headers).send()
        except SMTPRecipientsRefused as error:
            refused = error
            continue
        sent += 1
    if refused is not None and not sent:
        raise refused
    return sent


def owner_addresses(organization_id: UUID) -> set[str]:
    """Return the e-mail addresses of the owners who may still sign in."""
    owners = Membership.objects.filter(organization=organization_id, role=Role.OWNER, user__is_active=True)
    return set(owners.values_list("user__email", flat=True))
