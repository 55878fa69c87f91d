"""Verifies authenticators' responses (WebAuthn): challenge, page, domain, user, signature.

Clients never learn which check failed.
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
