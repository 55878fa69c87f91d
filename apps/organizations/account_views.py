"""Confirming an e-mail address, and invitations: parse, act or query, present."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.errors import InvalidRequest, NotFound
from apps.kernel.rest.address import address_of
from apps.kernel.rest.describe import described, message_field
from apps.kernel.rest.endpoint import Endpoint
from apps.kernel.rest.serializers import Nothing
from apps.organizations import actions, attempt_rate_limiter, invitations
from apps.organizations.access import access_organization, identify, require, require_verified
from apps.organizations.account_serializers import InvitationShape, NewInvitationShape, VerificationShape
from apps.organizations.email_tokens import find_unverified
from apps.organizations.models import Role
from apps.organizations.serializers import MemberShape
from apps.organizations.sessions import MemberEndpoint


class VerifyEmail(Endpoint):
    """`POST /auth/verify-email`."""

    authentication_classes = []
    permission_classes = []

    @described({"message": message_field()}, body=VerificationShape, refuses=(400, 429))
    def post(self, request: Request) -> Response:
        """Confirm an e-mail address by the token that was sent to it."""
        attempt_rate_limiter.count_attempt((attempt_rate_limiter.VERIFY_PER_ADDRESS, address_of(request)))
        user = find_unverified(self.read(VerificationShape)["token"])
        if user is None or not actions.verify_email(user=user):
            raise InvalidRequest(
                "This token was used or is too old: POST /auth/send-verification-email sends another",
                code="invalid_token",
                param="token",
            )
        return Response({"message": "E-mail address confirmed"})


class SendVerificationEmail(MemberEndpoint):
    """`POST /auth/send-verification-email`."""

    @described({"message": message_field()}, body=Nothing, refuses=(429,))
    def post(self, request: Request) -> Response:
        """Send a token to the address of whoever is signed in."""
        self.read(Nothing)
        attempt_rate_limiter.count_attempt((attempt_rate_limiter.MESSAGES_PER_USER, str(self.user.id)))
        actions.want_verification(user=self.user)
        return Response({"message": "A message is on its way"})


class Invitations(MemberEndpoint):
    """`GET /organization/{orgId}/invitations`, `POST /organization/{orgId}/invitations`."""

    @described({"invitations": InvitationShape(many=True)}, refuses=(403, 404))
    def get(self, request: Request, organization_id: str) -> Response:
        """List the invitations that wait to be accepted, oldest first."""
        organization, _ = access_organization(self.user, organization_id, Role.ADMIN)
        rows = invitations.waiting(organization).order_by("created_at", "id")
        return Response({"invitations": InvitationShape(rows, many=True).data})

    @described(
        {"message": message_field(), "invitation": InvitationShape()}, body=NewInvitationShape, refuses=(403, 404, 429)
    )
    def post(self, request: Request, organization_id: str) -> Response:
        """Invite an address, whether it has an account or not: the answer is the same."""
        organization, role = access_organization(self.user, organization_id, Role.ADMIN)
        require_verified(self.user)
        fields = self.read(NewInvitationShape)
        require(role, fields["role"])
        attempt_rate_limiter.count_attempt(
            (attempt_rate_limiter.INVITATIONS_PER_ORGANIZATION, str(organization.id)),
            (attempt_rate_limiter.INVITATIONS_PER_ACCOUNT, fields["email"].lower()),
        )
        created = invitations.invite(organization=organization, by=self.user, **fields)
        return Response({"message": "Invitation sent", "invitation": InvitationShape(created).data})


class OneInvitation(MemberEndpoint):
    """`DELETE /organization/{orgId}/invitations/{id}`."""

    @described({"message": message_field()}, refuses=(403, 404))
    def delete(self, request: Request, organization_id: str, invitation_id: str) -> Response:
        """Withdraw an invitation."""
        organization, _ = access_organization(self.user, organization_id, Role.ADMIN)
        identifier = identify(invitation_id, invitations.NO_INVITATION)
        found = invitations.waiting(organization).filter(pk=identifier).first()
        if found is None:
            raise NotFound(invitations.NO_INVITATION)
        invitations.withdraw(organization=organization, invitation=found)
        return Response({"message": "Invitation withdrawn"})


class AcceptInvitation(MemberEndpoint):
    """`POST /organization/{orgId}/invitations/{id}/accept`."""

    @described({"message": message_field(), "member": MemberShape()}, body=Nothing, refuses=(403, 404))
    def post(self, request: Request, organization_id: str, invitation_id: str) -> Response:
        """Become a member, where the invitation is for one's own confirmed address."""
        self.read(Nothing)
        require_verified(self.user)
        identifier = identify(invitation_id, invitations.NO_INVITATION)
        owner = identify(organization_id, invitations.NO_INVITATION)
        found = invitations.waiting().filter(pk=identifier, organization_id=owner).first()
        if found is None:
            raise NotFound(invitations.NO_INVITATION)
        membership = invitations.accept(invitation=found, user=self.user)
        return Response({"message": "Invitation accepted", "member": MemberShape(membership).data})
