"""Passkeys (WebAuthn): sign-in with an authenticator, alone or as a second factor.

Every passkey verifies its user (PIN, fingerprint, face), so it counts as two factors, and works without typing an
address. Callers of changes have verified the user's identity (`step_up.py`). Clients never learn
which check of an answer failed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog
import webauthn
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from webauthn.helpers import (
    base64url_to_bytes,
    decode_credential_public_key,
    decoded_public_key_to_cryptography,
    parse_attestation_object,
    parse_client_data_json,
)
from webauthn.helpers.cose import COSEAlgorithmIdentifier
from webauthn.helpers.structs import (
    AttestationFormat,
    AuthenticatorSelectionCriteria,
    AuthenticatorTransport,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)
from webauthn.registration.verify_registration_response import VerifiedRegistration

from apps.kernel.errors import Forbidden, InvalidRequest, Unauthenticated
from apps.kernel.postgres.rows import find_row
from apps.organizations.access import is_verified
from apps.organizations.credentials import ceremonies, two_factor
from apps.organizations.credentials.ceremonies import Holder, Purpose
from apps.organizations.credentials.credential_state import forget_begun
from apps.organizations.journal import audit
from apps.organizations.models import Passkey, User

ALGORITHMS: Final = [
    COSEAlgorithmIdentifier.ECDSA_SHA_256,
    COSEAlgorithmIdentifier.EDDSA,
    COSEAlgorithmIdentifier.RSASSA_PKCS1_v1_5_SHA_256,
]
# Attestation is not requested, so manufacturers' certificates in five more formats need not be read.
_FORMATS: Final = (AttestationFormat.NONE, AttestationFormat.PACKED)
_FEWEST_RSA_BITS: Final = 2048
# Bytes, by the standard.
_MAX_ID: Final = 1023
_TRANSPORTS: Final = frozenset(one.value for one in AuthenticatorTransport)


class PasskeyRefused(Exception):
    """A rejected response, with the reason for the log; never shown to the client."""


def verify_new(credential: Mapping[str, Any], challenge: bytes) -> VerifiedRegistration:
    """Verify a new credential and return its data to store. Raises PasskeyRefused."""
    try:
        _require_same_site(credential)
        attested = parse_attestation_object(base64url_to_bytes(credential["response"]["attestationObject"]))
        if attested.fmt not in _FORMATS:
            raise PasskeyRefused("attestation format")
        made = webauthn.verify_registration_response(
            credential=dict(credential),
            expected_challenge=challenge,
            expected_rp_id=settings.PASSKEY_DOMAIN.rp_id,
            expected_origin=list(settings.PASSKEY_DOMAIN.origins),
            require_user_verification=True,
            supported_pub_key_algs=ALGORITHMS,
        )
        key = decoded_public_key_to_cryptography(decode_credential_public_key(made.credential_public_key))
    except PasskeyRefused:
        raise
    except Exception as error:
        # Untrusted bytes in four formats: any error while reading means an invalid passkey.
        raise PasskeyRefused(_reason(error)) from error
    if len(made.credential_id) > _MAX_ID:
        raise PasskeyRefused("credential id too long")
    if isinstance(key, RSAPublicKey) and key.key_size < _FEWEST_RSA_BITS:
        raise PasskeyRefused("weak key")
    return made


def verify(row: Passkey, credential: Mapping[str, Any], challenge: bytes, *, named: bool) -> None:
    """Check that the credential is the row's and signed the challenge; update its counter. Raises PasskeyRefused."""
    try:
        handle = credential["response"].get("userHandle")
        # Without a user name the authenticator names the user; with one it may omit it.
        if (handle or not named) and base64url_to_bytes(str(handle or "")) != row.user.pk.bytes:
            raise PasskeyRefused("another user's handle")
        _require_same_site(credential)
        answer = webauthn.verify_authentication_response(
            credential=dict(credential),
            expected_challenge=challenge,
            expected_rp_id=settings.PASSKEY_DOMAIN.rp_id,
            expected_origin=list(settings.PASSKEY_DOMAIN.origins),
            credential_public_key=bytes(row.public_key),
            credential_current_sign_count=row.sign_count,
            require_user_verification=True,
        )
    except PasskeyRefused:
        raise
    except Exception as error:
        raise PasskeyRefused(_reason(error)) from error
    row.sign_count, row.backed_up = answer.new_sign_count, answer.credential_backed_up


def id_of(credential: Mapping[str, Any]) -> bytes:
    """Return the credential id that a response claims. Raises PasskeyRefused."""
    try:
        return base64url_to_bytes(str(credential["rawId"]))
    except (KeyError, ValueError) as error:
        raise PasskeyRefused("unreadable id") from error


def transports_of(credential: Mapping[str, Any]) -> list[str]:
    """Return the authenticator's transports as reported by the browser."""
    return sorted(_TRANSPORTS.intersection(credential["response"].get("transports") or ()))


def _require_same_site(credential: Mapping[str, Any]) -> None:
    """Check that our page was not embedded in another site's frame. Raises PasskeyRefused."""
    if parse_client_data_json(base64url_to_bytes(credential["response"]["clientDataJSON"])).cross_origin:
        raise PasskeyRefused("in a frame of another origin")


def _reason(error: Exception) -> str:
    """Return the library's message for the log; an origin is its only external text."""
    return f"{type(error).__name__}: {str(error)[:200]}"


log = structlog.get_logger(__name__)

MAX_PASSKEYS: Final = 20
MAX_NAME: Final = 100
_VERIFIED: Final = UserVerificationRequirement.REQUIRED


@dataclass(frozen=True, slots=True)
class Asked:
    """A ceremony's secret id, and the options for the browser's `navigator.credentials`."""

    ceremony_id: str
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """A ceremony's id and the authenticator's response, as the browser writes it (`toJSON`)."""

    ceremony_id: str
    credential: Mapping[str, Any]


def are_on() -> bool:
    """Return whether passkeys are available: they need a domain name."""
    return bool(settings.PASSKEY_DOMAIN.rp_id)


def begin_registration(holder: Holder) -> Asked:
    """Request a new passkey. Raises InvalidRequest if passkeys are off or the user has the maximum."""
    _require_on()
    _require_room(holder.user)
    ceremony = ceremonies.begin(Purpose.REGISTER, holder)
    options = webauthn.generate_registration_options(
        rp_id=settings.PASSKEY_DOMAIN.rp_id,
        rp_name=two_factor.ISSUER,
        user_id=holder.user.pk.bytes,
        user_name=holder.user.email,
        user_display_name=holder.user.name or holder.user.email,
        challenge=ceremony.challenge,
        timeout=ceremonies.LASTS * 1000,
        authenticator_selection=AuthenticatorSelectionCriteria(
            resident_key=ResidentKeyRequirement.REQUIRED, user_verification=_VERIFIED
        ),
        exclude_credentials=_descriptors(holder.user),
        supported_pub_key_algs=ALGORITHMS,
    )
    return _asked(ceremony, options)


def register(holder: Holder, *, answered: Answered, name: str) -> tuple[Passkey, list[str]]:
    """Store a new passkey; return it, and recovery codes if it is the first second factor; they are shown only once.

    Raises InvalidRequest for an invalid response, and (409) for a known passkey.
    """
    challenge = ceremonies.take(answered.ceremony_id, Purpose.REGISTER, holder)
    try:
        made = verify_new(answered.credential, challenge)
    except PasskeyRefused as error:
        log.warning("passkey.not_registered", user=str(holder.user.pk), reason=str(error))
        raise InvalidRequest(
            "This passkey cannot be registered here", code="invalid_passkey", param="credential"
        ) from error
    row = Passkey(
        user=holder.user,
        name=name,
        credential_id=made.credential_id,
        public_key=made.credential_public_key,
        sign_count=made.sign_count,
        transports=transports_of(answered.credential),
        backed_up=made.credential_backed_up,
    )
    try:
        with transaction.atomic():
            # Serialize concurrent registrations of one user: only the first returns recovery codes.
            User.objects.select_for_update(no_key=True).get(pk=holder.user.pk)
            _require_room(holder.user)
            codes = [] if two_factor.is_on(holder.user) else two_factor.renew_recovery_codes(holder.user)
            row.save(force_insert=True)
            forget_begun(holder.user)
            audit.record_of_account("passkey.create", user=holder.user, resource=row)
    except IntegrityError as error:
        raise InvalidRequest(
            "This passkey is already registered", status=409, code="already_exists", param="credential"
        ) from error
    log.info("passkey.created", user=str(holder.user.pk), passkey=str(row.pk))
    return row, codes


def begin_sign_in() -> Asked:
    """Request any passkey of this site; the known ones are not revealed. Raises InvalidRequest."""
    _require_on()
    return _ask(Purpose.SIGN_IN, None, [])


def begin_proof(holder: Holder) -> Asked:
    """Request a passkey of a signed-in user. Raises InvalidRequest."""
    _require_on()
    return _ask(Purpose.PROVE, holder, _descriptors(holder.user))


def sign_in(answered: Answered, *, user: User | None = None) -> User:
    """Return the active user of the passkey; with a `user`, only theirs is accepted.

    Raises Unauthenticated with the same message for every failure; InvalidRequest for an unknown ceremony.
    """
    _require_on()
    challenge = ceremonies.take(answered.ceremony_id, Purpose.SIGN_IN)
    return _recognize(answered.credential, challenge, user)


def prove(holder: Holder, answered: Answered) -> None:
    """Verify a passkey of a signed-in user. Raises as `sign_in` does."""
    _require_on()
    challenge = ceremonies.take(answered.ceremony_id, Purpose.PROVE, holder)
    _recognize(answered.credential, challenge, holder.user)


def access(user: User, identifier: str) -> Passkey:
    """Return a passkey of the user. Raises NotFound; Forbidden for other users' passkeys."""
    row = find_row(Passkey.objects.all(), identifier, "Passkey not found")
    if row.user_id != user.pk:
        raise Forbidden("This passkey belongs to another user")
    return row


@transaction.atomic
def rename(passkey: Passkey, *, name: str) -> Passkey:
    """Rename a passkey."""
    passkey.name = name
    passkey.save(update_fields=["name"])
    audit.record_of_account("passkey.update", user=passkey.user, resource=passkey)
    return passkey


@transaction.atomic
def remove(passkey: Passkey) -> None:
    """Remove a passkey; without any second factor left, the password alone signs in again."""
    User.objects.select_for_update(no_key=True).get(pk=passkey.user_id)
    audit.record_of_account("passkey.delete", user=passkey.user, resource=passkey)
    user, identifier = passkey.user, str(passkey.pk)
    passkey.delete()
    forget_begun(user)
    two_factor.forget_if_off(user)
    log.info("passkey.removed", user=str(user.pk), passkey=identifier)


@transaction.atomic
def _recognize(credential: Mapping[str, Any], challenge: bytes, user: User | None) -> User:
    """Return the user whose credential signed the challenge, and record its use. Raises Unauthenticated."""
    row: Passkey | None = None
    try:
        row = _find(credential)
        if user is not None and row.user_id != user.pk:
            raise PasskeyRefused("another user's")
        verify(row, credential, challenge, named=user is not None)
    except PasskeyRefused as error:
        log.warning("passkey.refused", passkey=str(row.pk) if row else None, reason=str(error))
        raise Unauthenticated("This passkey was not accepted", code="invalid_passkey") from error
    row.last_used_at = timezone.now()
    row.save(update_fields=["sign_count", "backed_up", "last_used_at"])
    return row.user


def _find(credential: Mapping[str, Any]) -> Passkey:
    """Return the passkey of a credential, locked so that its counter is checked and set atomically."""
    rows = Passkey.objects.select_for_update(no_key=True, of=("self",)).select_related("user")
    row = rows.filter(credential_id=id_of(credential), user__is_active=True).first()
    if row is None:
        raise PasskeyRefused("unknown")
    if not is_verified(row.user):
        raise PasskeyRefused("address not confirmed")
    return row


def _ask(purpose: Purpose, holder: Holder | None, allowed: list[PublicKeyCredentialDescriptor]) -> Asked:
    ceremony = ceremonies.begin(purpose, holder)
    options = webauthn.generate_authentication_options(
        rp_id=settings.PASSKEY_DOMAIN.rp_id,
        challenge=ceremony.challenge,
        timeout=ceremonies.LASTS * 1000,
        allow_credentials=allowed,
        user_verification=_VERIFIED,
    )
    return _asked(ceremony, options)


def _asked(ceremony: ceremonies.Ceremony, options: Any) -> Asked:
    return Asked(ceremony.id, json.loads(webauthn.options_to_json(options)))


def _descriptors(user: User) -> list[PublicKeyCredentialDescriptor]:
    return [
        PublicKeyCredentialDescriptor(
            id=bytes(row.credential_id), transports=[AuthenticatorTransport(one) for one in row.transports]
        )
        for row in user.passkeys.order_by("id")
    ]


def _require_on() -> None:
    if not are_on():
        raise InvalidRequest(
            "Passkeys are not available: PUBLIC_URL must be an HTTPS address with a domain name",
            status=409,
            code="passkeys_off",
        )


def _require_room(user: User) -> None:
    if user.passkeys.count() >= MAX_PASSKEYS:
        raise InvalidRequest(
            f"You already have {MAX_PASSKEYS} passkeys: remove one first", status=409, code="too_many_passkeys"
        )
