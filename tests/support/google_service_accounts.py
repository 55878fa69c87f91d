"""Service accounts of Google Cloud with keys of their own, made for a test run."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa


@cache
def private_key() -> str:
    """Return an RSA key in PEM."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def account_json(email: str = "gateway@acme.iam.gserviceaccount.com", **changes: Any) -> str:
    """Return the JSON of an account, as Google hands it out; a field that is None is left out."""
    fields = {
        "type": "service_account",
        "project_id": "acme-project",
        "private_key_id": "0123abcd",
        "private_key": private_key(),
        "client_email": email,
        "client_id": "1",
        "token_uri": "https://oauth2.googleapis.com/token",
        **changes,
    }
    return json.dumps({name: value for name, value in fields.items() if value is not None})
