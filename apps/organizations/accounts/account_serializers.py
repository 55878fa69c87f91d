"""The shapes of confirming an address and of invitations on the wire."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError as InvalidPassword
from rest_framework import serializers

from apps.kernel.rest.serializers import CamelModelSerializer, CamelSerializer, ChoiceField, EmailField, TextField
from apps.organizations.credentials.email_tokens import MAX_TOKEN, find_user_to_reset
from apps.organizations.models import Invitation, Role
from apps.organizations.serializers import MAX_PASSWORD, Password


class VerificationShape(CamelSerializer):
    """Body of `POST /auth/verify-email`."""

    token = TextField(max_length=MAX_TOKEN)


class PasswordResetRequestShape(CamelSerializer):
    """`POST /auth/request-password-reset`."""

    email = EmailField(max_length=254)


class PasswordResetShape(CamelSerializer):
    """`POST /auth/reset-password`."""

    token = TextField(max_length=MAX_TOKEN)
    password = Password(max_length=MAX_PASSWORD, trim_whitespace=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Hold the password to the rules for passwords. Raises ValidationError."""
        try:
            validate_password(attrs["password"], find_user_to_reset(attrs["token"]))
        except InvalidPassword as error:
            raise serializers.ValidationError({"password": error.messages}) from error
        return attrs


class NewPasswordShape(CamelSerializer):
    """Another password, of the user who is `user` in the context."""

    new_password = Password(max_length=MAX_PASSWORD, trim_whitespace=False)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Hold it to the rules for passwords. Raises ValidationError."""
        try:
            validate_password(attrs["new_password"], self.context.get("user"))
        except InvalidPassword as error:
            raise serializers.ValidationError({"newPassword": error.messages}) from error
        return attrs


class NewInvitationShape(CamelSerializer):
    """Body of `POST /organization/{orgId}/invitations`."""

    email = EmailField(max_length=254)
    role = ChoiceField(Role.choices)


class InvitationShape(CamelModelSerializer):
    """An open invitation, as the organization's admins see it, without its token."""

    class Meta:
        model = Invitation
        fields = read_only_fields = ["id", "organization_id", "email", "role", "expires_at", "created_at"]
