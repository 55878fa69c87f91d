"""`/auth/two-factor`: parse, act, present."""

from __future__ import annotations

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.describe import described, message_field
from apps.kernel.rest.serializers import CamelSerializer, TextField
from apps.organizations import two_factor
from apps.organizations.serializers import MAX_PASSWORD
from apps.organizations.sessions import MemberEndpoint

# Characters of a code, however it is written.
MAX_CODE = 32


class PasswordShape(CamelSerializer):
    """`POST /auth/two-factor`."""

    password = TextField(max_length=MAX_PASSWORD, trim_whitespace=False)


class CodeShape(CamelSerializer):
    """`POST /auth/two-factor/confirm`."""

    code = TextField(max_length=MAX_CODE)


class DisableShape(CamelSerializer):
    """`POST /auth/two-factor/disable`."""

    password = TextField(max_length=MAX_PASSWORD, trim_whitespace=False)
    code = TextField(max_length=MAX_CODE)


class TwoFactorEndpoint(MemberEndpoint):
    """`POST /auth/two-factor`."""

    @described(
        {"secret": serializers.CharField(), "otpauthUrl": serializers.CharField()},
        body=PasswordShape,
        refuses=(401, 409, 429),
    )
    def post(self, request: Request) -> Response:
        """Begin: return the secret for an authenticator app, shown once."""
        begun = two_factor.begin(user=self.user, **self.read(PasswordShape))
        return Response({"secret": begun.secret, "otpauthUrl": begun.url})


class ConfirmTwoFactor(MemberEndpoint):
    """`POST /auth/two-factor/confirm`."""

    @described(
        {"message": message_field(), "recoveryCodes": serializers.ListField(child=serializers.CharField())},
        body=CodeShape,
        refuses=(400, 429),
    )
    def post(self, request: Request) -> Response:
        """Turn it on with a first code; return recovery codes, shown once and each good once."""
        codes = two_factor.confirm(user=self.user, **self.read(CodeShape))
        return Response({"message": "Two-factor authentication is on", "recoveryCodes": codes})


class DisableTwoFactor(MemberEndpoint):
    """`POST /auth/two-factor/disable`."""

    @described({"message": message_field()}, body=DisableShape, refuses=(401, 429))
    def post(self, request: Request) -> Response:
        """Turn it off, with password and code."""
        two_factor.disable(user=self.user, **self.read(DisableShape))
        return Response({"message": "Two-factor authentication is off"})
