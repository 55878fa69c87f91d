"""Google's token endpoint, `POST /token`: a service account's statement for an access token.

The signature is not looked at. An account whose name begins with `invalid` is refused.
"""
# alone: an endpoint of Google's accounts, not of a model; routes.py only leads to it

from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import Any
from urllib.parse import parse_qs

import msgspec

PATH = "/token"
GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_SECONDS = 3_599


def account_of(body: bytes) -> str | None:
    """Return the account of a token request; None for an invalid request."""
    fields = parse_qs(body.decode("latin-1"))
    if fields.get("grant_type") != [GRANT]:
        return None
    try:
        _, claims, _ = fields["assertion"][0].split(".")
        said = msgspec.json.decode(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)), type=dict[str, Any])
        account, audience = said["iss"], said["aud"]
    except (KeyError, ValueError, msgspec.MsgspecError):
        return None
    return account if isinstance(account, str) and str(audience).endswith(PATH) else None


def token_answer(account: str | None) -> tuple[int, dict[str, Any]]:
    """Return status and body of the answer."""
    if account is None or account.startswith("invalid"):
        return 400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
    return 200, {"access_token": f"ya29.sandbox-{account}", "expires_in": _SECONDS, "token_type": "Bearer"}
