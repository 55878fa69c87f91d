"""E-mail addresses, passwords, sign-in methods and invitations of an account: parse, act or query, present."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.kernel.errors import InvalidRequest
from apps.kernel.rest.endpoint import Endpoint, described, message_field
from apps.kernel.rest.origin import address_of
from apps.kernel.rest.serializers import CamelSerializer, Nothing, TextField
from apps.organizations import actions, invitations
from apps.organizations.access import access_organization, require_verified
from apps.organizations.accounts import account_actions, entrance, step_up
from apps.organizations.accounts.account_serializers import (
    MAX_CODE,
    EmailChangeShape,
    InvitationShape,
    NewInvitationShape,
    NewPasskeyShape,
    PasskeyAnswerShape,
    PasskeyNameShape,
    PasskeyShape,
    PasswordChangeShape,
    PasswordResetRequestShape,
    PasswordResetShape,
    ProofShape,
    VerificationShape,
    answered,
    proof,
)
from apps.organizations.credentials import attempt_rate_limiter, passkeys, two_factor
from apps.organizations.credentials.ceremonies import Holder
from apps.organizations.credentials.email_tokens import find_unverified
from apps.organizations.credentials.sessions import MemberEndpoint, start_session
from apps.organizations.models import Role
from apps.organizations.serializers import MemberShape, UserShape


class VerifyEmail(Endpoint):
    """`POST /auth/verify-email`."""

    authentication_classes = []
    permission_classes = []

    @described({"message": message_field()}, body=VerificationShape, refuses=(400, 429))
    def post(self, request: Request) -> Response:
        """Confirm an e-mail address with the token that was sent to it."""
        attempt_rate_limiter.count_attempt((attempt_rate_limiter.VERIFY_PER_ADDRESS, address_of(request)))
        user = find_unverified(self.read(VerificationShape)["token"])
        if user is None or not actions.verify_email(user=user):
            raise InvalidRequest(
                "This token was used or is too old: POST /auth/send-verification-email sends another",
                code="invalid_token",
                param="token",
            )
        return Response({"message": "E-mail address confirmed"})


class RequestPasswordReset(Endpoint):
    """`POST /auth/request-password-reset`."""

    authentication_classes = []
    permission_classes = []

    @described({"message": message_field()}, body=PasswordResetRequestShape, refuses=(429,))
    def post(self, request: Request) -> Response:
        """Send a token to an address, if an account has it: the answer is the same either way."""
        entrance.request_password_reset(address=address_of(request), **self.read(PasswordResetRequestShape))
        return Response({"message": "If this address has an account, we have sent it a link"})


class ResetPassword(Endpoint):
    """`POST /auth/reset-password`."""

    authentication_classes = []
    permission_classes = []

    @described({"message": message_field()}, body=PasswordResetShape, refuses=(429,))
    def post(self, request: Request) -> Response:
        """Choose another password by the token that was sent; every session ends, a second factor stays."""
        attempt_rate_limiter.count_attempt((attempt_rate_limiter.RESET_PER_ADDRESS, address_of(request)))
        if not actions.reset_password(**self.read(PasswordResetShape)):
            raise InvalidRequest(
                "This token was used or is too old: POST /auth/request-password-reset sends another",
                code="invalid_token",
                param="token",
            )
        return Response({"message": "The password was changed"})


class ChangePassword(MemberEndpoint):
    """`POST /auth/change-password`."""

    @described(
        {"message": message_field(), "token": serializers.CharField()}, body=PasswordChangeShape, refuses=(401, 429)
    )
    def post(self, request: Request) -> Response:
        """Choose another password, with proof of who asks. Every session ends; the answer has a new one's token."""
        fields = self.read(PasswordChangeShape, user=self.user)
        step_up.require(holder_of(self), proof(fields))
        account_actions.change_password(user=self.user, password=fields["new_password"])
        return Response({"message": "The password was changed", "token": start_session(self.user)})


class SendVerificationEmail(Endpoint):
    """`POST /auth/send-verification-email`."""

    authentication_classes = []
    permission_classes = []

    @described({"message": message_field()}, body=PasswordResetRequestShape, refuses=(429,))
    def post(self, request: Request) -> Response:
        """Send a new confirmation token to an address, if an account has yet to confirm it: the answer is the same."""
        entrance.send_verification(address=address_of(request), **self.read(PasswordResetRequestShape))
        return Response({"message": "If this address is not confirmed yet, we have sent it a link"})


class ChangeEmail(MemberEndpoint):
    """`POST /auth/change-email`."""

    @described({"message": message_field()}, body=EmailChangeShape, refuses=(401, 429))
    def post(self, request: Request) -> Response:
        """Send a token to the address that you want, with proof of who asks; it counts once it is confirmed."""
        fields = self.read(EmailChangeShape)
        step_up.require(holder_of(self), proof(fields))
        entrance.request_email_change(user=self.user, email=fields["new_email"])
        return Response({"message": "A message is on its way to the new address"})


class ConfirmEmailChange(Endpoint):
    """`POST /auth/change-email/confirm`."""

    authentication_classes = []
    permission_classes = []

    @described({"message": message_field()}, body=VerificationShape, refuses=(429,))
    def post(self, request: Request) -> Response:
        """Change an account's e-mail address by the token that was sent to the new one."""
        attempt_rate_limiter.count_attempt((attempt_rate_limiter.VERIFY_PER_ADDRESS, address_of(request)))
        if not account_actions.change_email(**self.read(VerificationShape)):
            raise InvalidRequest(
                "This token was used or is too old: POST /auth/change-email sends another",
                code="invalid_token",
                param="token",
            )
        return Response({"message": "The e-mail address was changed"})


class Invitations(MemberEndpoint):
    """`GET /organization/{orgId}/invitations`, `POST /organization/{orgId}/invitations`."""

    @described({"invitations": InvitationShape(many=True)}, refuses=(403, 404))
    def get(self, request: Request, organization_id: str) -> Response:
        """List the open invitations, oldest first."""
        organization, _ = access_organization(self.user, organization_id, Role.ADMIN)
        rows = invitations.waiting(organization).order_by("created_at", "id")
        return Response({"invitations": InvitationShape(rows, many=True).data})

    @described(
        {"message": message_field(), "invitation": InvitationShape()}, body=NewInvitationShape, refuses=(403, 404, 429)
    )
    def post(self, request: Request, organization_id: str) -> Response:
        """Invite an e-mail address; the answer does not reveal whether it has an account."""
        organization, role = access_organization(self.user, organization_id, Role.ADMIN)
        require_verified(self.user)
        fields = self.read(NewInvitationShape)
        created = entrance.invite_member(by=self.user, own_role=role, organization=organization, **fields)
        return Response({"message": "Invitation sent", "invitation": InvitationShape(created).data})


class OneInvitation(MemberEndpoint):
    """`DELETE /organization/{orgId}/invitations/{id}`."""

    @described({"message": message_field()}, refuses=(403, 404))
    def delete(self, request: Request, organization_id: str, invitation_id: str) -> Response:
        """Withdraw an invitation."""
        organization, _ = access_organization(self.user, organization_id, Role.ADMIN)
        found = entrance.find_invitation(organization, invitation_id)
        invitations.withdraw(organization=organization, invitation=found)
        return Response({"message": "Invitation withdrawn"})


class AcceptInvitation(MemberEndpoint):
    """`POST /organization/{orgId}/invitations/{id}/accept`."""

    @described({"message": message_field(), "member": MemberShape()}, body=Nothing, refuses=(403, 404))
    def post(self, request: Request, organization_id: str, invitation_id: str) -> Response:
        """Accept an invitation that was sent to your own, confirmed e-mail address."""
        self.read(Nothing)
        membership = entrance.accept_invitation(
            user=self.user, organization_id=organization_id, identifier=invitation_id
        )
        return Response({"message": "Invitation accepted", "member": MemberShape(membership).data})


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
