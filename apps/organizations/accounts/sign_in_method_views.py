"""`/auth/two-factor`, `/auth/passkeys` and `/auth/sign-in/passkey`: parse, act, present."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.rest.describe import described, message_field
from apps.kernel.rest.endpoint import Endpoint
from apps.kernel.rest.origin import address_of
from apps.kernel.rest.serializers import CamelSerializer, Nothing, TextField
from apps.organizations.accounts import step_up
from apps.organizations.accounts.account_serializers import (
    MAX_CODE,
    NewPasskeyShape,
    PasskeyAnswerShape,
    PasskeyNameShape,
    PasskeyShape,
    ProofShape,
    answered,
    proof,
)
from apps.organizations.credentials import attempt_rate_limiter, passkeys, two_factor
from apps.organizations.credentials.ceremonies import Holder
from apps.organizations.credentials.sessions import MemberEndpoint, start_session
from apps.organizations.serializers import UserShape


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


_ASKED: dict[str, serializers.Field[Any, Any, Any, Any]] = {
    "ceremonyId": serializers.CharField(),
    "options": serializers.DictField(),
}


def holder_of(endpoint: MemberEndpoint) -> Holder:
    """Return who is signed in, and in which of their sessions."""
    session: Any = endpoint.request.auth
    return Holder(endpoint.user, str(session.pk))


class PasskeySignInOptions(Endpoint):
    """`POST /auth/sign-in/passkey/options`."""

    authentication_classes = []
    permission_classes = []

    @described(_ASKED, body=Nothing, refuses=(409, 429))
    def post(self, request: Request) -> Response:
        """Begin to sign in: return what `navigator.credentials.get` is given as `publicKey`, good for five minutes."""
        self.read(Nothing)
        attempt_rate_limiter.count_attempt((attempt_rate_limiter.PASSKEY_PER_ADDRESS, address_of(request)))
        return _asked(passkeys.begin_sign_in())


class PasskeySignIn(Endpoint):
    """`POST /auth/sign-in/passkey`."""

    authentication_classes = []
    permission_classes = []

    @described(
        {"token": serializers.CharField(), "user": UserShape()}, body=PasskeyAnswerShape, refuses=(401, 409, 429)
    )
    def post(self, request: Request) -> Response:
        """Begin a session with a passkey alone."""
        fields = self.read(PasskeyAnswerShape)
        user = step_up.sign_in_with_passkey(answered(fields), address=address_of(request))
        return Response({"token": start_session(user), "user": UserShape(user).data})


class Passkeys(MemberEndpoint):
    """`GET /auth/passkeys`, `POST /auth/passkeys`."""

    @described({"passkeys": PasskeyShape(many=True)})
    def get(self, request: Request) -> Response:
        """List one's passkeys, oldest first."""
        return Response({"passkeys": PasskeyShape(self.user.passkeys.order_by("id"), many=True).data})

    @described(
        {
            "message": message_field(),
            "passkey": PasskeyShape(),
            "recoveryCodes": serializers.ListField(child=serializers.CharField()),
        },
        body=NewPasskeyShape,
        refuses=(409, 429),
    )
    def post(self, request: Request) -> Response:
        """Keep a new passkey; with the first second factor, return recovery codes, shown once and each good once."""
        fields = self.read(NewPasskeyShape)
        row, codes = passkeys.register(holder_of(self), answered=answered(fields), name=fields["name"])
        return Response({"message": "Passkey added", "passkey": PasskeyShape(row).data, "recoveryCodes": codes})


class PasskeyOptions(MemberEndpoint):
    """`POST /auth/passkeys/options`."""

    @described(_ASKED, body=ProofShape, refuses=(401, 409, 429))
    def post(self, request: Request) -> Response:
        """Begin to add a passkey: return what `navigator.credentials.create` is given as `publicKey`."""
        step_up.require(holder_of(self), proof(self.read(ProofShape)))
        return _asked(passkeys.begin_registration(holder_of(self)))


class PasskeyProofOptions(MemberEndpoint):
    """`POST /auth/passkeys/proof/options`."""

    @described(_ASKED, body=Nothing, refuses=(409, 429))
    def post(self, request: Request) -> Response:
        """Begin to prove with a passkey who one is; its answer is the `passkey` of what asks for proof."""
        self.read(Nothing)
        attempt_rate_limiter.count_attempt((attempt_rate_limiter.PASSKEY_PER_USER, str(self.user.pk)))
        return _asked(passkeys.begin_proof(holder_of(self)))


class OnePasskey(MemberEndpoint):
    """`PATCH /auth/passkeys/{id}`."""

    @described({"message": message_field(), "passkey": PasskeyShape()}, body=PasskeyNameShape, refuses=(403, 404))
    def patch(self, request: Request, passkey_id: str) -> Response:
        """Give a passkey another name."""
        row = passkeys.access(self.user, passkey_id)
        renamed = passkeys.rename(row, **self.read(PasskeyNameShape))
        return Response({"message": "Passkey renamed", "passkey": PasskeyShape(renamed).data})


class RemovePasskey(MemberEndpoint):
    """`POST /auth/passkeys/{id}/remove`."""

    @described({"message": message_field()}, body=ProofShape, refuses=(401, 403, 404, 409, 429))
    def post(self, request: Request, passkey_id: str) -> Response:
        """Take a passkey away, with proof of who asks; after the last second factor the password alone is enough."""
        row = passkeys.access(self.user, passkey_id)
        step_up.require(holder_of(self), proof(self.read(ProofShape)))
        passkeys.remove(row)
        return Response({"message": "Passkey removed"})


def _asked(asked: passkeys.Asked) -> Response:
    return Response({"ceremonyId": asked.ceremony_id, "options": asked.options})
