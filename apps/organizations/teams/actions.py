"""Actions on teams, their members and service accounts, each in one transaction with its entry in the audit log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.db import transaction
from django.utils import timezone
from django.utils.text import slugify

from apps.kernel.errors import InvalidRequest
from apps.kernel.ids import find_id, new_id
from apps.kernel.postgres.rows import find_row, lock_row
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.organizations import app_hooks
from apps.organizations.access import NO_ORGANIZATION, people_of
from apps.organizations.journal import audit
from apps.organizations.models import Organization, ServiceAccount, Team, TeamMember, User
from apps.organizations.teams.access import (
    NO_SERVICE_ACCOUNT,
    NO_TEAM,
    NO_TEAM_MEMBER,
    accounts_of,
    find_team,
    teams_of,
)

# An organization has at most this many of each.
MAX_TEAMS: Final = 200
MAX_SERVICE_ACCOUNTS: Final = 200


@transaction.atomic
def create_team(*, organization: Organization, name: str, parent_id: str | None = None) -> Team:
    """Create a team, on its own or as a part of another.

    Raises InvalidFields for a name that exists, and for a parent that does not or is part of a team itself;
    InvalidRequest at the limit of teams; NotFound for a deleted organization.
    """
    # The lock serializes changes of an organization's teams, so that no two of them nest deeper than one level.
    row = lock_row(organization, NO_ORGANIZATION)
    team = Team(organization=row, name=name)
    _check_name(team)
    if parent_id is not None:
        team.parent = _parent_of(team, parent_id)
    if teams_of(row).count() >= MAX_TEAMS:
        raise InvalidRequest(f"Maximum {MAX_TEAMS} teams per organization", code="team_limit_reached")
    team.save()
    _record("team.create", team, {"name": name, "parentId": team.parent_id})
    return team


@transaction.atomic
def change_team(*, team: Team, changes: Mapping[str, Any]) -> Team:
    """Rename a team, or make it part of another team or of none (`parent_id` None). Its counters stay.

    Raises InvalidFields as `create_team`, NotFound if it was deleted meanwhile.
    """
    lock_row(team.organization, NO_ORGANIZATION)
    row = _locked(team)
    columns = dict(changes)
    if columns.get("parent_id") is not None:
        columns["parent_id"] = _parent_of(row, columns["parent_id"]).pk
    details = audit.changes_of(row, columns)
    for name, value in columns.items():
        setattr(row, name, value)
    _check_name(row)
    _record("team.update", row, details)
    row.save(update_fields=[*columns, "updated_at"])
    return row


@transaction.atomic
def delete_team(*, team: Team) -> None:
    """Delete a team with its limits; its projects, keys and service accounts stay, and are in no team.

    Raises InvalidRequest for a team that has parts, NotFound if it already is deleted.
    """
    lock_row(team.organization, NO_ORGANIZATION)
    row = _locked(team)
    if row.parts.exists():
        raise InvalidRequest("Other teams are part of this team; move or delete them first", code="team_has_parts")
    _record("team.delete", row, {"name": row.name})
    row.delete()


@transaction.atomic
def add_team_member(*, team: Team, member_id: str, is_lead: bool = False) -> TeamMember:
    """Put a member of the organization into a team.

    Raises InvalidFields for an id that is not a member's, InvalidRequest (409) for one who is in the team, NotFound.
    """
    row = _locked(team)
    identifier = find_id(member_id)
    # The lock keeps the member from leaving meanwhile.
    people = people_of(row.organization).select_for_update(no_key=True, of=("self",)).select_related("user")
    membership = people.filter(pk=identifier).first() if identifier else None
    if membership is None:
        raise InvalidFields([Issue("memberId", "Must be the id of a member of this organization")])
    member, added = TeamMember.objects.get_or_create(team=row, membership=membership, defaults={"is_lead": is_lead})
    if not added:
        raise InvalidRequest("This member already is in the team", status=409, code="already_exists", param="memberId")
    _record_member("team_member.create", member, {"isLead": is_lead})
    return member


@transaction.atomic
def change_team_member(*, member: TeamMember, is_lead: bool) -> TeamMember:
    """Make a member a lead of the team, or no longer. Raises NotFound for one who left the team meanwhile."""
    row = _locked_member(member)
    _record_member("team_member.update", row, audit.changes_of(row, {"is_lead": is_lead}))
    row.is_lead = is_lead
    row.save(update_fields=["is_lead"])
    return row


@transaction.atomic
def remove_team_member(*, member: TeamMember) -> None:
    """Take a member out of a team; their keys stay in it. Raises NotFound for one who left it meanwhile."""
    row = _locked_member(member)
    _record_member("team_member.delete", row, {"isLead": row.is_lead})
    row.delete()


@transaction.atomic
def create_service_account(*, organization: Organization, name: str, team_id: str | None = None) -> ServiceAccount:
    """Create a service account. Raises InvalidFields, InvalidRequest at the limit of accounts, NotFound."""
    row = lock_row(organization, NO_ORGANIZATION)
    account = ServiceAccount(id=new_id(), organization=row, name=name)
    _check_account_name(account)
    if team_id is not None:
        account.team = find_team(row, team_id)
    if accounts_of(row).count() >= MAX_SERVICE_ACCOUNTS:
        raise InvalidRequest(
            f"Maximum {MAX_SERVICE_ACCOUNTS} service accounts per organization", code="service_account_limit_reached"
        )
    # Inactive: it cannot sign in, have its password reset, or be added to organizations.
    email = f"{slugify(name)[:40] or 'account'}.{account.pk.hex[-12:]}@{ServiceAccount.ACCOUNT_DOMAIN}"
    user = User(email=email, name=name, is_active=False, email_verified_at=timezone.now())
    user.set_unusable_password()
    user.save()
    account.account = user
    account.save()
    _record("service_account.create", account, {"name": name, "teamId": account.team_id})
    return account


@transaction.atomic
def change_service_account(*, account: ServiceAccount, changes: Mapping[str, Any]) -> ServiceAccount:
    """Rename a service account, or put it into a team or none. Raises InvalidFields, NotFound if it was deleted."""
    organization = lock_row(account.organization, NO_ORGANIZATION)
    row = _locked_account(account)
    columns = dict(changes)
    if columns.get("team_id") is not None:
        columns["team_id"] = find_team(organization, columns["team_id"]).pk
    details = audit.changes_of(row, columns)
    for name, value in columns.items():
        setattr(row, name, value)
    _check_account_name(row)
    _record("service_account.update", row, details)
    row.save(update_fields=[*columns, "updated_at"])
    if "name" in columns:
        User.objects.filter(pk=row.account_id).update(name=row.name, updated_at=timezone.now())
    return row


@transaction.atomic
def delete_service_account(*, account: ServiceAccount) -> int:
    """Delete a service account and revoke its API keys; return how many. Raises NotFound if it already is deleted."""
    row = _locked_account(account)
    revoked = app_hooks.revoke(row.organization_id, row.account_id)
    _record("service_account.delete", row, {"name": row.name, "revokedApiKeys": revoked})
    row.deleted_at = timezone.now()
    row.save(update_fields=["deleted_at", "updated_at"])
    return revoked


def _locked(team: Team) -> Team:
    return find_row(Team.objects.select_for_update(no_key=True), team.pk, NO_TEAM)


def _locked_member(member: TeamMember) -> TeamMember:
    rows = TeamMember.objects.select_for_update(of=("self",)).select_related("membership__user", "team")
    return find_row(rows, member.pk, NO_TEAM_MEMBER)


def _locked_account(account: ServiceAccount) -> ServiceAccount:
    rows = ServiceAccount.objects.select_for_update(of=("self",)).filter(deleted_at=None).select_related("account")
    return find_row(rows, account.pk, NO_SERVICE_ACCOUNT)


def _parent_of(team: Team, parent_id: str) -> Team:
    """Return the team that another is to be part of. Raises InvalidFields for a cycle and for a third level."""
    parent = find_team(team.organization, parent_id, "parentId")
    fault = ""
    if parent.pk == team.pk:
        fault = "A team cannot be its own parent"
    elif parent.parent_id is not None:
        fault = "Must be a team that is part of no other: teams nest one level deep"
    elif not team._state.adding and team.parts.exists():
        fault = "This team has parts, so it cannot be part of another: teams nest one level deep"
    if fault:
        raise InvalidFields([Issue("parentId", fault)])
    return parent


def _check_name(team: Team) -> None:
    if teams_of(team.organization).filter(name=team.name).exclude(pk=team.pk).exists():
        raise InvalidFields([Issue("name", "Another team has this name")])


def _check_account_name(account: ServiceAccount) -> None:
    if accounts_of(account.organization).filter(name=account.name).exclude(pk=account.pk).exists():
        raise InvalidFields([Issue("name", "Another service account has this name")])


def _record(action: str, row: Team | ServiceAccount, details: Mapping[str, Any]) -> None:
    audit.record(action, organization_id=row.organization_id, resource=row, details=details)


def _record_member(action: str, member: TeamMember, details: Mapping[str, Any]) -> None:
    details = {
        "teamId": member.team_id,
        "team": member.team.name,
        "email": member.membership.user.email,
        **details,
    }
    audit.record(action, organization_id=member.team.organization_id, resource=member, details=details)
