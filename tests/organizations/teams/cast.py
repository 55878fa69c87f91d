"""Acme's teams: Search with its part Ranking, and Support; leads, a member and a key for each."""

from __future__ import annotations

from dataclasses import dataclass

from apps.keys.models import ApiKey
from apps.organizations.actions import create_project
from apps.organizations.models import Membership, Organization, Project, Role, Team, TeamMember, User
from apps.organizations.teams import actions
from tests.support.cast import World, join, make_key, make_user


@dataclass(frozen=True)
class Teams:
    """Acme's teams. Dana leads Search, Rita leads Ranking, Sven leads Support, Tom is in Search."""

    search: Team
    ranking: Team
    support: Team
    rita: User
    sven: User
    tom: User
    # In the team Search.
    crawler: Project
    # Keys of Olivia's: in Support, of the project Crawler, and in Ranking.
    support_key: ApiKey
    crawler_key: ApiKey
    ranking_key: ApiKey


def put_in(team: Team, user: User, *, is_lead: bool = False) -> TeamMember:
    """Put a member of the organization into a team."""
    membership = Membership.objects.get(organization=team.organization, user=user)
    return actions.add_team_member(team=team, member_id=str(membership.pk), is_lead=is_lead)


def make_team(organization: Organization, name: str, parent: Team | None = None) -> Team:
    """Create a team."""
    return actions.create_team(
        organization=organization, name=name, parent_id=None if parent is None else str(parent.pk)
    )


def key_in(team: Team, user: User, project: Project, description: str) -> ApiKey:
    """Create a key of the user's, and put it into a team."""
    key = make_key(user, project, description).key
    key.team = team
    key.save()
    return key


def make_teams(world: World) -> Teams:
    """Create the teams."""
    rita, sven, tom = (make_user(name) for name in ("Rita", "Sven", "Tom"))
    for user in (rita, sven, tom):
        join(world.acme, user, Role.DEVELOPER)
    search = make_team(world.acme, "Search")
    ranking, support = make_team(world.acme, "Ranking", search), make_team(world.acme, "Support")
    for team, user, is_lead in (
        (search, world.dana, True),
        (search, tom, False),
        (ranking, rita, True),
        (support, sven, True),
    ):
        put_in(team, user, is_lead=is_lead)
    crawler = create_project(organization=world.acme, fields={"name": "Crawler", "team_id": str(search.pk)})
    return Teams(
        *(search, ranking, support, rita, sven, tom, crawler),
        support_key=key_in(support, world.olivia, world.project, "help desk"),
        crawler_key=make_key(world.olivia, crawler, "nightly crawl").key,
        ranking_key=key_in(ranking, world.olivia, world.project, "ranking"),
    )
