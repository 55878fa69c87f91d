"""An authenticator in software: makes passkeys (ES256, attestation "none") and signs with them, or does so wrongly."""

from __future__ import annotations

import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

from apps.organizations.models import User
from tests.support.cast import PASSWORD, Caller

ORIGIN, RP_ID = "http://localhost:8000", "localhost"
OPTIONS, SIGN_IN = "/auth/sign-in/passkey/options", "/auth/sign-in/passkey"
PROOF = "/auth/passkeys/proof/options"
REFUSED = {"message": "This passkey was not accepted"}
NO_CEREMONY = {"message": "This ceremony was used, has expired, or belongs to another session: start again"}
PRESENT, VERIFIED, ATTESTED = 1, 4, 64


@dataclass
class Authenticator:
    """One passkey, made by the first `create`; `flags` say who was there, `count` how often it has signed."""

    origin: str = ORIGIN
    rp_id: str = RP_ID
    flags: int = PRESENT | VERIFIED
    count: int = 0
    # Fields that the browser adds to, or replaces in, its description of the page.
    client_data: dict[str, Any] = field(default_factory=dict)
    fmt: str = "none"
    handle: bytes | None = None
    credential_id: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    key: EllipticCurvePrivateKey = field(default_factory=lambda: generate_private_key(SECP256R1()))

    def create(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return what `navigator.credentials.create()` would, as JSON."""
        self.handle = decode(options["user"]["id"])
        attested = bytes(16) + len(self.credential_id).to_bytes(2, "big") + self.credential_id + self._public_key()
        data = self._data(ATTESTED) + attested
        response = {
            "clientDataJSON": encode(self._client_data("webauthn.create", options)),
            "attestationObject": encode(cbor2.dumps({"fmt": self.fmt, "attStmt": {}, "authData": data})),
            "transports": ["internal"],
        }
        return self._credential(response)

    def get(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return what `navigator.credentials.get()` would, as JSON."""
        self.count += 1
        said, data = self._client_data("webauthn.get", options), self._data(0)
        signature = self.key.sign(data + sha256(said).digest(), ECDSA(SHA256()))
        response = {
            "clientDataJSON": encode(said),
            "authenticatorData": encode(data),
            "signature": encode(signature),
            "userHandle": encode(self.handle or b""),
        }
        return self._credential(response)

    def _client_data(self, kind: str, options: dict[str, Any]) -> bytes:
        said = {"type": kind, "challenge": options["challenge"], "origin": self.origin, "crossOrigin": False}
        return json.dumps({**said, **self.client_data}).encode()

    def _data(self, flags: int) -> bytes:
        return sha256(self.rp_id.encode()).digest() + bytes([self.flags | flags]) + self.count.to_bytes(4, "big")

    def _public_key(self) -> bytes:
        point = self.key.public_key().public_numbers()
        return cbor2.dumps({1: 2, 3: -7, -1: 1, -2: point.x.to_bytes(32, "big"), -3: point.y.to_bytes(32, "big")})

    def _credential(self, response: dict[str, Any]) -> dict[str, Any]:
        identifier = encode(self.credential_id)
        return {"id": identifier, "rawId": identifier, "type": "public-key", "response": response} | {
            "authenticatorAttachment": "platform",
            "clientExtensionResults": {},
        }


def encode(data: bytes) -> str:
    """Return base64url without padding."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Return the bytes of base64url without padding."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def registration(caller: Caller, authenticator: Authenticator, name: str = "laptop", **proof: Any) -> dict[str, Any]:
    """Return the body that adds the authenticator's passkey, begun with a proof; the password without another."""
    begun = caller.post("/auth/passkeys/options", proof or {"password": PASSWORD}).json()
    return {"ceremonyId": begun["ceremonyId"], "credential": authenticator.create(begun["options"]), "name": name}


def add_passkey(caller: Caller, authenticator: Authenticator | None = None, **proof: Any) -> Authenticator:
    """Give the caller's user a passkey."""
    made = authenticator or Authenticator()
    response = caller.post("/auth/passkeys", registration(caller, made, **proof))
    if response.status_code != 200:
        raise RuntimeError(response.content)
    return made


def answer(caller: Caller, authenticator: Authenticator, path: str = OPTIONS) -> dict[str, Any]:
    """Return the answer to a new ceremony: to sign in, or to prove who one is (`PROOF`)."""
    begun = caller.post(path).json()
    return {"ceremonyId": begun["ceremonyId"], "credential": authenticator.get(begun["options"])}


def sign_in(user: User, **fields: Any) -> Any:
    """Answer what signing in with the password answers."""
    return Caller().post("/auth/sign-in/email", {"email": user.email, "password": PASSWORD, **fields})
