"""What authenticators answer (WebAuthn), checked: the challenge, the page, the domain, who was there, the signature.

Knows the two kinds of answers and what is asked of both. Must never write, nor tell a client what was wrong with one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import webauthn
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from django.conf import settings
from webauthn.helpers import (
    base64url_to_bytes,
    decode_credential_public_key,
    decoded_public_key_to_cryptography,
    parse_attestation_object,
    parse_client_data_json,
)
from webauthn.helpers.cose import COSEAlgorithmIdentifier
from webauthn.helpers.structs import AttestationFormat, AuthenticatorTransport
from webauthn.registration.verify_registration_response import VerifiedRegistration

from apps.organizations.models import Passkey

ALGORITHMS: Final = [
    COSEAlgorithmIdentifier.ECDSA_SHA_256,
    COSEAlgorithmIdentifier.EDDSA,
    COSEAlgorithmIdentifier.RSASSA_PKCS1_v1_5_SHA_256,
]
# Nobody asks who made the authenticator, so makers' certificates, in five formats more, need not be read.
_FORMATS: Final = (AttestationFormat.NONE, AttestationFormat.PACKED)
_FEWEST_RSA_BITS: Final = 2048
# Bytes, by the standard.
_LONGEST_ID: Final = 1023
_TRANSPORTS: Final = frozenset(one.value for one in AuthenticatorTransport)


class PasskeyRefused(Exception):
    """Why an answer is not taken; for the log, never for whoever presents it."""


def verify_new(credential: Mapping[str, Any], challenge: bytes) -> VerifiedRegistration:
    """Return what is to be kept of a new credential. Raises PasskeyRefused."""
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
        # Four formats of somebody's bytes: whatever reading them raises, they are no passkey.
        raise PasskeyRefused(_reason(error)) from error
    if len(made.credential_id) > _LONGEST_ID:
        raise PasskeyRefused("credential id too long")
    if isinstance(key, RSAPublicKey) and key.key_size < _FEWEST_RSA_BITS:
        raise PasskeyRefused("weak key")
    return made


def verify(row: Passkey, credential: Mapping[str, Any], challenge: bytes, *, named: bool) -> None:
    """See that the credential is the row's, and answers the challenge; take over its count. Raises PasskeyRefused."""
    try:
        handle = credential["response"].get("userHandle")
        # Where nobody said who they are the authenticator does; where somebody did it may keep silent.
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
    """Return which credential an answer says it is of. Raises PasskeyRefused."""
    try:
        return base64url_to_bytes(str(credential["rawId"]))
    except (KeyError, ValueError) as error:
        raise PasskeyRefused("unreadable id") from error


def transports_of(credential: Mapping[str, Any]) -> list[str]:
    """Return how the browser says that the authenticator is reached, as far as that is known."""
    return sorted(_TRANSPORTS.intersection(credential["response"].get("transports") or ()))


def _require_same_site(credential: Mapping[str, Any]) -> None:
    """See that no page of somebody else's has ours in a frame. Raises PasskeyRefused."""
    if parse_client_data_json(base64url_to_bytes(credential["response"]["clientDataJSON"])).cross_origin:
        raise PasskeyRefused("in a frame of another origin")


def _reason(error: Exception) -> str:
    """Return what the log may keep: words of the library's, of which an origin is the only one from outside."""
    return f"{type(error).__name__}: {str(error)[:200]}"
