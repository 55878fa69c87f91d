"""`/organization/{orgId}/teams` and `/organization/{orgId}/service-accounts`: parse, act or query, present."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.endpoint import described, message_field
from apps.organizations.access import access_organization
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.models import Role
from apps.organizations.teams import actions
from apps.organizations.teams.access import (
    access_service_account,
    access_service_accounts,
    access_team,
    access_team_member,
    access_teams,
)
from apps.organizations.teams.serializers import (
    NewServiceAccountShape,
    NewTeamMemberShape,
    NewTeamShape,
    ServiceAccountChangesShape,
    ServiceAccountShape,
    TeamChangesShape,
    TeamMemberChangesShape,
    TeamMemberShape,
    TeamShape,
)


class Teams(MemberEndpoint):
    """`GET /organization/{orgId}/teams`, `POST /organization/{orgId}/teams`."""

    @described({"teams": TeamShape(many=True)}, refuses=(403, 404))
    def get(self, request: Request, organization_id: str) -> Response:
        """List the teams that you are in or lead, by name; all of them, if you are an admin or owner."""
        return Response({"teams": TeamShape(access_teams(self.user, organization_id), many=True).data})

    @described({"team": TeamShape()}, body=NewTeamShape, refuses=(403, 404))
    def post(self, request: Request, organization_id: str) -> Response:
        """Create a team, on its own or as a part of another."""
        organization, _ = access_organization(self.user, organization_id, Role.ADMIN)
        created = actions.create_team(organization=organization, **self.read(NewTeamShape))
        return Response({"team": TeamShape(created).data})


class OneTeam(MemberEndpoint):
    """`GET`, `PATCH` and `DELETE /organization/{orgId}/teams/{teamId}`."""

    @described({"team": TeamShape()}, refuses=(403, 404))
    def get(self, request: Request, organization_id: str, team_id: str) -> Response:
        """Show a team."""
        return Response({"team": TeamShape(access_team(self.user, organization_id, team_id).team).data})

    @described({"team": TeamShape()}, body=TeamChangesShape, refuses=(403, 404))
    def patch(self, request: Request, organization_id: str, team_id: str) -> Response:
        """Rename a team, or make it part of another, or of none."""
        team = access_team(self.user, organization_id, team_id, Role.ADMIN).team
        return Response({"team": TeamShape(actions.change_team(team=team, changes=self.read(TeamChangesShape))).data})

    @described({"message": message_field()}, refuses=(400, 403, 404))
    def delete(self, request: Request, organization_id: str, team_id: str) -> Response:
        """Delete a team with its limits; its projects and API keys stay, and count for no team."""
        actions.delete_team(team=access_team(self.user, organization_id, team_id, Role.ADMIN).team)
        return Response({"message": "Team deleted"})


class TeamMembers(MemberEndpoint):
    """`GET` and `POST /organization/{orgId}/teams/{teamId}/members`."""

    @described({"members": TeamMemberShape(many=True)}, refuses=(403, 404))
    def get(self, request: Request, organization_id: str, team_id: str) -> Response:
        """List the members of a team, in the order in which they were added."""
        team = access_team(self.user, organization_id, team_id).team
        rows = team.members.select_related("membership__user").order_by("created_at", "id")
        return Response({"members": TeamMemberShape(rows, many=True).data})

    @described({"member": TeamMemberShape()}, body=NewTeamMemberShape, refuses=(403, 404, 409))
    def post(self, request: Request, organization_id: str, team_id: str) -> Response:
        """Put a member of the organization into a team, as a lead or not."""
        team = access_team(self.user, organization_id, team_id, Role.ADMIN).team
        added = actions.add_team_member(team=team, **self.read(NewTeamMemberShape))
        return Response({"member": TeamMemberShape(added).data})


class OneTeamMember(MemberEndpoint):
    """`PATCH` and `DELETE /organization/{orgId}/teams/{teamId}/members/{id}`."""

    @described({"member": TeamMemberShape()}, body=TeamMemberChangesShape, refuses=(403, 404))
    def patch(self, request: Request, organization_id: str, team_id: str, member_id: str) -> Response:
        """Make a member a lead of the team, or no longer."""
        team = access_team(self.user, organization_id, team_id, Role.ADMIN).team
        member = access_team_member(team, member_id)
        changed = actions.change_team_member(member=member, **self.read(TeamMemberChangesShape))
        return Response({"member": TeamMemberShape(changed).data})

    @described({"message": message_field()}, refuses=(403, 404))
    def delete(self, request: Request, organization_id: str, team_id: str, member_id: str) -> Response:
        """Take a member out of a team; their API keys stay in it."""
        team = access_team(self.user, organization_id, team_id, Role.ADMIN).team
        actions.remove_team_member(member=access_team_member(team, member_id))
        return Response({"message": "Member removed from the team"})


class ServiceAccounts(MemberEndpoint):
    """`GET` and `POST /organization/{orgId}/service-accounts`."""

    @described({"serviceAccounts": ServiceAccountShape(many=True)}, refuses=(403, 404))
    def get(self, request: Request, organization_id: str) -> Response:
        """List the organization's service accounts, by name; those of the teams that you lead, unless you are an admin
        or owner."""
        rows = access_service_accounts(self.user, organization_id)
        return Response({"serviceAccounts": ServiceAccountShape(rows, many=True).data})

    @described({"serviceAccount": ServiceAccountShape()}, body=NewServiceAccountShape, refuses=(403, 404))
    def post(self, request: Request, organization_id: str) -> Response:
        """Create a service account; API keys that are created for it stay when people leave."""
        organization, _ = access_organization(self.user, organization_id, Role.ADMIN)
        created = actions.create_service_account(organization=organization, **self.read(NewServiceAccountShape))
        return Response({"serviceAccount": ServiceAccountShape(created).data})


class OneServiceAccount(MemberEndpoint):
    """`PATCH` and `DELETE /organization/{orgId}/service-accounts/{id}`."""

    @described({"serviceAccount": ServiceAccountShape()}, body=ServiceAccountChangesShape, refuses=(403, 404))
    def patch(self, request: Request, organization_id: str, account_id: str) -> Response:
        """Rename a service account, or put it into another team or none."""
        account = access_service_account(self.user, organization_id, account_id)
        changes = self.read(ServiceAccountChangesShape)
        changed = actions.change_service_account(account=account, changes=changes)
        return Response({"serviceAccount": ServiceAccountShape(changed).data})

    @described(
        {"message": message_field(), "revokedApiKeys": serializers.IntegerField(min_value=0)}, refuses=(403, 404)
    )
    def delete(self, request: Request, organization_id: str, account_id: str) -> Response:
        """Delete a service account; its API keys stop working."""
        account = access_service_account(self.user, organization_id, account_id)
        revoked = actions.delete_service_account(account=account)
        return Response({"message": "Service account deleted", "revokedApiKeys": revoked})
