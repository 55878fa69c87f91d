"""`/auth/two-factor`: parse, act, present."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.describe import described, message_field
from apps.kernel.rest.serializers import CamelSerializer, TextField
from apps.organizations.accounts import step_up
from apps.organizations.accounts.passkey_shapes import MAX_CODE, ProofShape, proof
from apps.organizations.accounts.passkey_views import holder_of
from apps.organizations.credentials import two_factor
from apps.organizations.credentials.sessions import MemberEndpoint


class CodeShape(CamelSerializer):
    """Body of `POST /auth/two-factor/confirm`."""

    code = TextField(max_length=MAX_CODE)


class TwoFactorEndpoint(MemberEndpoint):
    """`POST /auth/two-factor`."""

    @described(
        {"secret": serializers.CharField(), "otpauthUrl": serializers.CharField()},
        body=ProofShape,
        refuses=(401, 409, 429),
    )
    def post(self, request: Request) -> Response:
        """Start setting up a second factor: the answer has the secret for an authenticator app, shown once."""
        given = proof(self.read(ProofShape))
        two_factor.require_no_app(self.user)
        step_up.require(holder_of(self), given)
        begun = two_factor.begin(user=self.user)
        return Response({"secret": begun.secret, "otpauthUrl": begun.url})


class ConfirmTwoFactor(MemberEndpoint):
    """`POST /auth/two-factor/confirm`."""

    @described(
        {"message": message_field(), "recoveryCodes": serializers.ListField(child=serializers.CharField())},
        body=CodeShape,
        refuses=(400, 429),
    )
    def post(self, request: Request) -> Response:
        """Turn the second factor on with a first code. The answer has recovery codes: shown once, each valid once."""
        codes = two_factor.confirm(user=self.user, source=holder_of(self).session, **self.read(CodeShape))
        return Response({"message": "Two-factor authentication is on", "recoveryCodes": codes})


class DisableTwoFactor(MemberEndpoint):
    """`POST /auth/two-factor/disable`."""

    @described({"message": message_field()}, body=ProofShape, refuses=(401, 409, 429))
    def post(self, request: Request) -> Response:
        """Turn the second factor off, with the password and a code, or with a passkey."""
        step_up.require(holder_of(self), proof(self.read(ProofShape)))
        two_factor.disable(user=self.user)
        return Response({"message": "Two-factor authentication is off"})
