"""The shapes of confirming an address and of invitations on the wire."""

from __future__ import annotations

from apps.kernel.rest.serializers import CamelModelSerializer, CamelSerializer, Choice, Email, Text
from apps.organizations.email_tokens import MAX_TOKEN
from apps.organizations.models import Invitation, Role


class VerificationShape(CamelSerializer):
    """Body of `POST /auth/verify-email`."""

    token = Text(max_length=MAX_TOKEN)


class NewInvitationShape(CamelSerializer):
    """Body of `POST /organization/{orgId}/invitations`."""

    email = Email(max_length=254)
    role = Choice(Role.choices)


class InvitationShape(CamelModelSerializer):
    """An open invitation, as the organization's admins see it, without its token."""

    class Meta:
        model = Invitation
        fields = read_only_fields = ["id", "organization_id", "email", "role", "expires_at", "created_at"]
