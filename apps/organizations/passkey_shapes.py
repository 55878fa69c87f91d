"""The shapes of passkeys on the wire: what browsers write (`PublicKeyCredential.toJSON()`), and what is kept of it."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.kernel.rest.serializers import CamelModelSerializer, CamelSerializer, ChoiceField, EmailField, TextField
from apps.organizations.account_serializers import NewPasswordShape
from apps.organizations.ceremonies import MAX_ID
from apps.organizations.models import Passkey
from apps.organizations.passkeys import MAX_NAME, Answered
from apps.organizations.serializers import MAX_PASSWORD, SignInShape
from apps.organizations.step_up import Proof

# Characters of a code, however it is written.
MAX_CODE = 32
# Characters of base64url: an id has at most 1,023 bytes, and what else there is has room to spare.
_MAX_CREDENTIAL_ID, _MAX_CLIENT_DATA, _MAX_ATTESTATION, _MAX_SIGNATURE, _MAX_HANDLE = 1_364, 4_096, 8_192, 2_048, 128
_MAX_TRANSPORTS, _MAX_TRANSPORT = 16, 32


class _Credential(CamelSerializer):
    id = TextField(max_length=_MAX_CREDENTIAL_ID)
    rawId = TextField(max_length=_MAX_CREDENTIAL_ID)  # noqa: N815 - the standard's name
    type = ChoiceField([("public-key", "public-key")])


class AttestationShape(CamelSerializer):
    """What an authenticator says of a new passkey."""

    clientDataJSON = TextField(max_length=_MAX_CLIENT_DATA)  # noqa: N815 - the standard's names, here and below
    attestationObject = TextField(max_length=_MAX_ATTESTATION)  # noqa: N815 - the standard's name
    transports = serializers.ListField(
        child=TextField(max_length=_MAX_TRANSPORT), max_length=_MAX_TRANSPORTS, required=False
    )


class AssertionShape(CamelSerializer):
    """What an authenticator signs with a passkey."""

    clientDataJSON = TextField(max_length=_MAX_CLIENT_DATA)  # noqa: N815 - the standard's names, here and below
    authenticatorData = TextField(max_length=_MAX_CLIENT_DATA)  # noqa: N815 - the standard's name
    signature = TextField(max_length=_MAX_SIGNATURE)
    userHandle = TextField(max_length=_MAX_HANDLE, required=False, allow_null=True, allow_blank=True)  # noqa: N815 - its name


class NewCredentialShape(_Credential):
    """What `navigator.credentials.create()` answered."""

    response = AttestationShape()


class CredentialShape(_Credential):
    """What `navigator.credentials.get()` answered."""

    response = AssertionShape()


class PasskeyAnswerShape(CamelSerializer):
    """The answer to a ceremony: its name, and what the authenticator said."""

    ceremony_id = TextField(max_length=MAX_ID)
    credential = CredentialShape()


class ProofShape(CamelSerializer):
    """What proves who has the session: a passkey, or the password with a code where a second factor is on."""

    password = TextField(max_length=MAX_PASSWORD, trim_whitespace=False, required=False)
    code = TextField(max_length=MAX_CODE, required=False)
    passkey = PasskeyAnswerShape(required=False)


class EmailChangeShape(ProofShape):
    """Body of `POST /auth/change-email`: the address to be, and proof of who asks."""

    new_email = EmailField(max_length=254)


class PasswordChangeShape(NewPasswordShape, ProofShape):
    """Body of `POST /auth/change-password`: the password to be, and proof of who asks."""


class SignInWithPasskeyShape(SignInShape):
    """`POST /auth/sign-in/email`: with a code or a passkey where a second factor is on."""

    passkey = PasskeyAnswerShape(required=False, allow_null=True)


class NewPasskeyShape(CamelSerializer):
    """`POST /auth/passkeys`."""

    ceremony_id = TextField(max_length=MAX_ID)
    credential = NewCredentialShape()
    name = TextField(max_length=MAX_NAME)


class PasskeyNameShape(CamelSerializer):
    """`PATCH /auth/passkeys/{id}`."""

    name = TextField(max_length=MAX_NAME)


class PasskeyShape(CamelModelSerializer):
    """A passkey, to whoever it is of; without what it is made of."""

    class Meta:
        model = Passkey
        fields = read_only_fields = ["id", "name", "transports", "backed_up", "last_used_at", "created_at"]


def answered(fields: dict[str, Any]) -> Answered:
    """Return what was read as a `PasskeyAnswerShape` or a `NewPasskeyShape`."""
    return Answered(fields["ceremony_id"], fields["credential"])


def proof(fields: dict[str, Any]) -> Proof:
    """Return what was read as a `ProofShape`."""
    passkey = fields.get("passkey")
    return Proof(fields.get("password"), fields.get("code"), answered(passkey) if passkey else None)
