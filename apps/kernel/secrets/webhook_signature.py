"""Signatures of webhooks, as in Standard Webhooks (https://www.standardwebhooks.com). Pure.

The headers are `webhook-id`, `webhook-timestamp` and `webhook-signature`.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from datetime import datetime
from typing import Final

# Prefix of a secret, and bounds of its length in bytes.
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what every secret begins with
MIN_SECRET, MAX_SECRET = 24, 64


def secret_key(secret: str) -> bytes:
    """Return the bytes of a webhook's secret. Raises ValueError unless it is `whsec_` and 24 to 64 bytes in base64."""
    if not secret.startswith(SECRET_PREFIX):
        raise ValueError("no prefix")
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error
    if not MIN_SECRET <= len(key) <= MAX_SECRET:
        raise ValueError("too short or too long")
    return key


def signed_headers(key: bytes, name: str, now: datetime, body: bytes) -> dict[str, str]:
    """Return the headers that sign a message; `name` identifies it, and `now` is the time that is signed."""
    moment = str(int(now.timestamp()))
    signature = base64.b64encode(hmac.digest(key, f"{name}.{moment}.".encode() + body, "sha256")).decode()
    return {"webhook-id": name, "webhook-timestamp": moment, "webhook-signature": f"v1,{signature}"}
