"""Access control of teams and service accounts: admins manage them; leads manage the keys and limits of their teams.

A lead of a team leads the teams that are part of it, too; the lead of a part has no rights over the whole.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from django.db.models import Q, QuerySet

from apps.kernel.errors import Forbidden, NotFound
from apps.kernel.ids import find_id
from apps.kernel.postgres.rows import find_row
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.organizations.access import access_organization, people_of, reaches
from apps.organizations.models import Organization, Role, ServiceAccount, Team, TeamMember, User

NO_TEAM, NO_TEAM_MEMBER, NO_SERVICE_ACCOUNT = "Team not found", "Team member not found", "Service account not found"


class TeamAccess(NamedTuple):
    """A team, the requesting user's role in its organization, and whether they lead the team."""

    team: Team
    role: Role
    is_lead: bool

    @property
    def may_manage_limits(self) -> bool:
        """Whether the user may manage the keys and limits of the team."""
        return self.is_lead or reaches(self.role, Role.ADMIN)


def teams_of(organization: Organization) -> QuerySet[Team]:
    """Return an organization's teams, by name."""
    return Team.objects.filter(organization=organization).order_by("name", "id")


def led_by(user: User) -> QuerySet[Team]:
    """Return the teams whose keys and limits a user manages as their lead."""
    led = TeamMember.objects.filter(membership__user=user, is_lead=True).values("team")
    return Team.objects.filter(Q(pk__in=led) | Q(parent__in=led))


def leads_any(user: User, *team_ids: UUID | None) -> bool:
    """Return whether a user leads one of these teams."""
    wanted = [one for one in team_ids if one is not None]
    return bool(wanted) and led_by(user).filter(pk__in=wanted).exists()


def with_wholes(*team_ids: UUID | None) -> list[UUID]:
    """Return the ids of teams and of the teams that they are part of: those that a request counts for."""
    wanted = [one for one in team_ids if one is not None]
    if not wanted:
        return []
    return list(Team.objects.filter(Q(pk__in=wanted) | Q(parts__in=wanted)).distinct().values_list("pk", flat=True))


def with_parts(*team_ids: UUID) -> list[UUID]:
    """Return the ids of teams and of the teams that are part of them."""
    return list(Team.objects.filter(Q(pk__in=team_ids) | Q(parent__in=team_ids)).values_list("pk", flat=True))


def seen_by(user: User, organization: Organization, role: Role) -> QuerySet[Team]:
    """Return the teams that a member sees, by name: an admin all, others those that they are in or lead."""
    rows = teams_of(organization)
    if reaches(role, Role.ADMIN):
        return rows
    own = TeamMember.objects.filter(membership__user=user).values("team")
    return rows.filter(Q(pk__in=own) | Q(pk__in=led_by(user).values("pk")))


def access_teams(user: User, organization_id: UUID | str) -> QuerySet[Team]:
    """Return the teams of an organization that a member sees, by name. Raises NotFound, Forbidden."""
    organization, role = access_organization(user, organization_id)
    return seen_by(user, organization, role)


def access_team(
    user: User, organization_id: UUID | str, identifier: UUID | str, needs: Role = Role.DEVELOPER
) -> TeamAccess:
    """Return a team that the user sees. Raises NotFound; Forbidden for other teams and for insufficient roles."""
    organization, role = access_organization(user, organization_id, needs)
    team = find_row(teams_of(organization).select_related("parent", "organization"), identifier, NO_TEAM)
    if not seen_by(user, organization, role).filter(pk=team.pk).exists():
        raise Forbidden("You are not in this team")
    return TeamAccess(team, role, leads_any(user, team.pk))


def access_team_member(team: Team, identifier: UUID | str) -> TeamMember:
    """Return a member of a team that the caller has access to, by the id of their membership. Raises NotFound."""
    rows = people_of(team.organization).filter(teams__team=team)
    membership = find_row(rows, identifier, NO_TEAM_MEMBER)
    return TeamMember.objects.select_related("membership__user", "team").get(team=team, membership=membership)


def find_team(organization: Organization, identifier: UUID | str, field: str = "teamId") -> Team:
    """Return a team of an organization that a body names, kept from deletion until the caller's transaction ends.

    Raises InvalidFields that names the field.
    """
    found = identifier if isinstance(identifier, UUID) else find_id(identifier)
    team = teams_of(organization).select_for_update(no_key=True).filter(pk=found).first() if found else None
    if team is None:
        raise InvalidFields([Issue(field, "Must be the id of a team of this organization")])
    return team


def team_of_key(user: User, organization: Organization, role: Role, identifier: UUID | str) -> Team:
    """Return the team that a member may put a key into: an admin any, others one that they are in or lead.

    Raises InvalidFields, Forbidden. As `find_team`, inside a transaction.
    """
    team = find_team(organization, identifier)
    if not seen_by(user, organization, role).filter(pk=team.pk).exists():
        raise Forbidden("You may put API keys only into teams that you are in", param="teamId")
    return team


def accounts_of(organization: Organization) -> QuerySet[ServiceAccount]:
    """Return an organization's service accounts, by name."""
    rows = ServiceAccount.objects.filter(organization=organization, deleted_at=None)
    return rows.select_related("account").order_by("name", "id")


def access_service_accounts(user: User, organization_id: UUID | str) -> QuerySet[ServiceAccount]:
    """Return the service accounts that a member sees: an admin all, a lead those of their teams.

    Raises NotFound; Forbidden for members who are neither.
    """
    organization, role = access_organization(user, organization_id)
    return _usable_accounts(user, organization, role)


def access_service_account(user: User, organization_id: UUID | str, identifier: UUID | str) -> ServiceAccount:
    """Return a service account that an admin manages. Raises NotFound, Forbidden."""
    organization, _ = access_organization(user, organization_id, Role.ADMIN)
    return find_row(accounts_of(organization), identifier, NO_SERVICE_ACCOUNT)


def account_of_key(user: User, organization: Organization, role: Role, identifier: UUID | str) -> ServiceAccount:
    """Return the service account that a key may be created for: by an admin any, by a lead one of their teams.

    Kept from deletion until the caller's transaction ends. Raises InvalidFields, Forbidden.
    """
    rows = accounts_of(organization).select_for_update(no_key=True, of=("self",))
    try:
        account = find_row(rows, identifier, NO_SERVICE_ACCOUNT)
    except NotFound:
        issue = Issue("serviceAccountId", "Must be the id of a service account of this organization")
        raise InvalidFields([issue]) from None
    if not reaches(role, Role.ADMIN) and not leads_any(user, account.team_id):
        raise Forbidden(
            "Only admins and the leads of a service account's team create API keys for it", param="serviceAccountId"
        )
    return account


def _usable_accounts(user: User, organization: Organization, role: Role) -> QuerySet[ServiceAccount]:
    rows = accounts_of(organization)
    if reaches(role, Role.ADMIN):
        return rows
    led = led_by(user).filter(organization=organization)
    if not led.exists():
        raise Forbidden(f"This needs the role {Role.ADMIN} in the organization, or to lead a team")
    return rows.filter(team__in=led.values("pk"))
