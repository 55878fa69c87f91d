"""`/auth` and `/organization`: parse, act or query, present."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.address import address_of
from apps.kernel.rest.endpoint import Endpoint
from apps.organizations import actions, throttle
from apps.organizations.access import access_organization
from apps.organizations.models import Organization, Project, User
from apps.organizations.serializers import OrganizationShape, ProjectShape, SignInShape, SignUpShape, UserShape
from apps.organizations.sessions import MemberEndpoint, extend, start_session


class SignUp(Endpoint):
    """`POST /auth/sign-up/email`."""

    authentication_classes = []
    permission_classes = []

    def post(self, request: Request) -> Response:
        """Create the account and sign in."""
        fields = self.read(SignUpShape)
        throttle.count_try(
            (throttle.SIGN_UP_PER_ADDRESS, address_of(request)),
            (throttle.SIGN_UP_PER_ACCOUNT, User.normalize_username(fields["email"])),
        )
        return _signed_in(actions.sign_up(**fields))


class SignIn(Endpoint):
    """`POST /auth/sign-in/email`."""

    authentication_classes = []
    permission_classes = []

    def post(self, request: Request) -> Response:
        """Begin a session."""
        fields = self.read(SignInShape)
        throttle.count_try(
            (throttle.SIGN_IN_PER_ADDRESS, address_of(request)),
            (throttle.SIGN_IN_PER_ACCOUNT, User.normalize_username(fields["email"])),
        )
        return _signed_in(actions.sign_in(**fields))


class SignOut(MemberEndpoint):
    """`POST /auth/sign-out`."""

    def post(self, request: Request) -> Response:
        """End the session that asks."""
        session: Any = request.auth
        session.delete()
        return Response({"message": "Signed out"})


class GetSession(MemberEndpoint):
    """`GET /auth/get-session`."""

    def get(self, request: Request) -> Response:
        """Tell who is signed in, and until when."""
        return Response({"session": {"expiresAt": extend(request.auth)}, "user": UserShape(self.user).data})


class Organizations(MemberEndpoint):
    """`GET /organization`."""

    def get(self, request: Request) -> Response:
        """List the organizations that the user is a member of, oldest first."""
        rows = Organization.objects.filter(memberships__user=self.user).exclude(status=Organization.Status.DELETED)
        return Response({"organizations": OrganizationShape(rows.order_by("created_at", "id"), many=True).data})


class OrganizationProjects(MemberEndpoint):
    """`GET /organization/{orgId}/projects`."""

    def get(self, request: Request, organization_id: str) -> Response:
        """List the organization's projects, oldest first."""
        organization, _ = access_organization(self.user, organization_id)
        rows = organization.projects.exclude(status=Project.Status.DELETED)
        return Response({"projects": ProjectShape(rows.order_by("created_at", "id"), many=True).data})


def _signed_in(user: User) -> Response:
    return Response({"token": start_session(user), "user": UserShape(user).data})
