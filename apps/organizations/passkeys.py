"""Passkeys (WebAuthn): what an authenticator of the user's signs lets them in, alone or beside a password.

Every one verifies its user (a PIN, a finger, a face), so that it is two factors by itself, and is found without an
address being typed. Knows how a passkey is made, recognized, named and removed. Must never know HTTP, nor whether
whoever asks has proved who they are: `step_up.py` says so beforehand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog
import webauthn
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from webauthn.helpers.structs import (
    AuthenticatorSelectionCriteria,
    AuthenticatorTransport,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from apps.kernel.errors import Forbidden, InvalidRequest, NotFound, Unauthenticated
from apps.kernel.ids import find_id
from apps.organizations import audit, ceremonies, two_factor
from apps.organizations.access import is_verified
from apps.organizations.ceremonies import Holder, Purpose
from apps.organizations.credential_state import forget_begun
from apps.organizations.models import Passkey, User
from apps.organizations.passkey_answers import ALGORITHMS, PasskeyRefused, id_of, transports_of, verify, verify_new

log = structlog.get_logger(__name__)

MOST: Final = 20
MAX_NAME: Final = 100
_VERIFIED: Final = UserVerificationRequirement.REQUIRED


@dataclass(frozen=True, slots=True)
class Asked:
    """A ceremony's secret name, and what the browser's `navigator.credentials` is given."""

    ceremony_id: str
    options: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """The name of a ceremony, and what the authenticator answered, as the browser writes it (`toJSON`)."""

    ceremony_id: str
    credential: Mapping[str, Any]


def are_on() -> bool:
    """Return whether this deployment has a domain that passkeys can be made for."""
    return bool(settings.PASSKEY_DOMAIN.rp_id)


def begin_registration(holder: Holder) -> Asked:
    """Ask for a new passkey. Raises InvalidRequest where there are no passkeys, or as many as one may have."""
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
    """Keep a new passkey; return it, and recovery codes when it is the first second factor, which cannot be had again.

    Raises InvalidRequest for what no authenticator answered to this ceremony, and (409) for one that is kept already.
    """
    challenge = ceremonies.take(answered.ceremony_id, Purpose.REGISTER, holder)
    try:
        made = verify_new(answered.credential, challenge)
    except PasskeyRefused as error:
        log.warning("passkey.not_registered", user=str(holder.user.pk), reason=str(error))
        raise InvalidRequest(
            "This is no passkey that can be kept here", code="invalid_passkey", param="credential"
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
            # Those of one user who are made at once wait for each other: only the first brings recovery codes.
            User.objects.select_for_update(no_key=True).get(pk=holder.user.pk)
            _require_room(holder.user)
            codes = [] if two_factor.is_on(holder.user) else two_factor.renew_recovery_codes(holder.user)
            row.save(force_insert=True)
            forget_begun(holder.user)
            audit.record_of_account("passkey.create", user=holder.user, resource=row)
    except IntegrityError as error:
        raise InvalidRequest(
            "This passkey is kept already", status=409, code="already_exists", param="credential"
        ) from error
    log.info("passkey.created", user=str(holder.user.pk), passkey=str(row.pk))
    return row, codes


def begin_sign_in() -> Asked:
    """Ask whoever is there for a passkey; which ones there are is told to nobody. Raises InvalidRequest."""
    _require_on()
    return _ask(Purpose.SIGN_IN, None, [])


def begin_proof(holder: Holder) -> Asked:
    """Ask somebody who is signed in for a passkey of theirs. Raises InvalidRequest."""
    _require_on()
    return _ask(Purpose.PROVE, holder, _descriptors(holder.user))


def sign_in(answered: Answered, *, user: User | None = None) -> User:
    """Return the active user whose passkey answered; with a `user`, nobody else's will do.

    Raises Unauthenticated, alike for whatever was wrong; InvalidRequest for a ceremony that is none.
    """
    _require_on()
    challenge = ceremonies.take(answered.ceremony_id, Purpose.SIGN_IN)
    return _recognize(answered.credential, challenge, user)


def prove(holder: Holder, answered: Answered) -> None:
    """See that somebody who is signed in has a passkey of theirs at hand. Raises as `sign_in` does."""
    _require_on()
    challenge = ceremonies.take(answered.ceremony_id, Purpose.PROVE, holder)
    _recognize(answered.credential, challenge, holder.user)


def access(user: User, identifier: str) -> Passkey:
    """Return a passkey of the user's. Raises NotFound; Forbidden for others'."""
    found = find_id(identifier)
    row = Passkey.objects.filter(pk=found).first() if found else None
    if row is None:
        raise NotFound("Passkey not found")
    if row.user_id != user.pk:
        raise Forbidden("This passkey is somebody else's")
    return row


@transaction.atomic
def rename(passkey: Passkey, *, name: str) -> Passkey:
    """Give a passkey another name."""
    passkey.name = name
    passkey.save(update_fields=["name"])
    audit.record_of_account("passkey.update", user=passkey.user, resource=passkey)
    return passkey


@transaction.atomic
def remove(passkey: Passkey) -> None:
    """Take a passkey away; after the last second factor, the password alone is asked for again."""
    User.objects.select_for_update(no_key=True).get(pk=passkey.user_id)
    audit.record_of_account("passkey.delete", user=passkey.user, resource=passkey)
    user, identifier = passkey.user, str(passkey.pk)
    passkey.delete()
    forget_begun(user)
    two_factor.forget_if_off(user)
    log.info("passkey.removed", user=str(user.pk), passkey=identifier)


@transaction.atomic
def _recognize(credential: Mapping[str, Any], challenge: bytes, user: User | None) -> User:
    """Return whose credential signed the challenge, and note that it was used. Raises Unauthenticated."""
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
    """Return the passkey that a credential names, locked: its count is compared and set by one at a time."""
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
            "There are no passkeys here: PUBLIC_URL has to be HTTPS and a domain", status=409, code="passkeys_off"
        )


def _require_room(user: User) -> None:
    if user.passkeys.count() >= MOST:
        raise InvalidRequest(f"There are {MOST} passkeys: remove one first", status=409, code="too_many_passkeys")
