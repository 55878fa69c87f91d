"""The shapes of accounts on the wire: confirmed addresses, invitations, and passkeys.

Passkeys have the format of browsers (`PublicKeyCredential.toJSON()`) and that of the API.
"""

from __future__ import annotations

from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError as InvalidPassword
from rest_framework import serializers

from apps.kernel.rest.serializers import (
    CamelModelSerializer,
    CamelSerializer,
    ChoiceField,
    EmailField,
    NameField,
    TextField,
)
from apps.organizations.accounts.step_up import Proof
from apps.organizations.credentials.ceremonies import MAX_ID
from apps.organizations.credentials.email_tokens import MAX_TOKEN, find_user_to_reset
from apps.organizations.credentials.passkeys import MAX_NAME, Answered
from apps.organizations.models import MAX_REASON, Invitation, Passkey, Role
from apps.organizations.serializers import MAX_PASSWORD, Password, SignInShape


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


# Characters of a code in any notation.
MAX_CODE = 32
# Characters of base64url: an id has at most 1,023 bytes; the other limits are generous.
_MAX_CREDENTIAL_ID, _MAX_CLIENT_DATA, _MAX_ATTESTATION, _MAX_SIGNATURE, _MAX_HANDLE = 1_364, 4_096, 8_192, 2_048, 128
_MAX_TRANSPORTS, _MAX_TRANSPORT = 16, 32


class _Credential(CamelSerializer):
    id = TextField(max_length=_MAX_CREDENTIAL_ID)
    rawId = TextField(max_length=_MAX_CREDENTIAL_ID)  # noqa: N815 - the standard's name
    type = ChoiceField([("public-key", "public-key")])


class AttestationShape(CamelSerializer):
    """An authenticator's response with a new passkey."""

    clientDataJSON = TextField(max_length=_MAX_CLIENT_DATA)  # noqa: N815 - the standard's names, here and below
    attestationObject = TextField(max_length=_MAX_ATTESTATION)  # noqa: N815 - the standard's name
    transports = serializers.ListField(
        child=TextField(max_length=_MAX_TRANSPORT), max_length=_MAX_TRANSPORTS, required=False
    )


class AssertionShape(CamelSerializer):
    """An authenticator's signed response."""

    clientDataJSON = TextField(max_length=_MAX_CLIENT_DATA)  # noqa: N815 - the standard's names, here and below
    authenticatorData = TextField(max_length=_MAX_CLIENT_DATA)  # noqa: N815 - the standard's name
    signature = TextField(max_length=_MAX_SIGNATURE)
    userHandle = TextField(max_length=_MAX_HANDLE, required=False, allow_null=True, allow_blank=True)  # noqa: N815 - its name


class NewCredentialShape(_Credential):
    """The result of `navigator.credentials.create()`."""

    response = AttestationShape()


class CredentialShape(_Credential):
    """The result of `navigator.credentials.get()`."""

    response = AssertionShape()


class PasskeyAnswerShape(CamelSerializer):
    """A ceremony's id and the authenticator's response."""

    ceremony_id = TextField(max_length=MAX_ID)
    credential = CredentialShape()


class ProofShape(CamelSerializer):
    """Proof of identity: a passkey, or the password with a code if a second factor is on."""

    password = TextField(max_length=MAX_PASSWORD, trim_whitespace=False, required=False)
    code = TextField(max_length=MAX_CODE, required=False)
    passkey = PasskeyAnswerShape(required=False)


class DeletionShape(ProofShape):
    """Body of `DELETE /organization/{orgId}`: a reason for the operators' journal, and proof of identity."""

    reason = NameField(max_length=MAX_REASON, required=False, allow_blank=True)


class EmailChangeShape(ProofShape):
    """Body of `POST /auth/change-email`: the new address, and proof of identity."""

    new_email = EmailField(max_length=254)


class PasswordChangeShape(NewPasswordShape, ProofShape):
    """Body of `POST /auth/change-password`: the new password, and proof of identity."""


class SignInWithPasskeyShape(SignInShape):
    """Body of `POST /auth/sign-in/email`: with a code or a passkey if a second factor is on."""

    passkey = PasskeyAnswerShape(required=False, allow_null=True)


class NewPasskeyShape(CamelSerializer):
    """`POST /auth/passkeys`."""

    ceremony_id = TextField(max_length=MAX_ID)
    credential = NewCredentialShape()
    name = NameField(max_length=MAX_NAME)


class PasskeyNameShape(CamelSerializer):
    """`PATCH /auth/passkeys/{id}`."""

    name = NameField(max_length=MAX_NAME)


class PasskeyShape(CamelModelSerializer):
    """A passkey as its owner sees it, without key material."""

    class Meta:
        model = Passkey
        fields = read_only_fields = ["id", "name", "transports", "backed_up", "last_used_at", "created_at"]


def answered(fields: dict[str, Any]) -> Answered:
    """Return the validated fields of a `PasskeyAnswerShape` or a `NewPasskeyShape`."""
    return Answered(fields["ceremony_id"], fields["credential"])


def proof(fields: dict[str, Any]) -> Proof:
    """Return the validated fields of a `ProofShape`."""
    passkey = fields.get("passkey")
    return Proof(fields.get("password"), fields.get("code"), answered(passkey) if passkey else None)
