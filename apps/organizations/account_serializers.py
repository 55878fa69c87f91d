"""The shapes of confirming an address and of invitations on the wire."""

from __future__ import annotations

from apps.kernel.rest.serializers import CamelModelSerializer, CamelSerializer, ChoiceField, EmailField, TextField
from apps.organizations.email_tokens import MAX_TOKEN
from apps.organizations.models import Invitation, Role


class VerificationShape(CamelSerializer):
    """`POST /auth/verify-email`."""

    token = TextField(max_length=MAX_TOKEN)


class NewInvitationShape(CamelSerializer):
    """`POST /organization/{orgId}/invitations`."""

    email = EmailField(max_length=254)
    role = ChoiceField(Role.choices)


class InvitationShape(CamelModelSerializer):
    """An invitation, to the admins of the organization; never its token."""

    class Meta:
        model = Invitation
        fields = read_only_fields = ["id", "organization_id", "email", "role", "expires_at", "created_at"]
