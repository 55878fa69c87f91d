"""Tokens of keys that the gateway makes: random, with a prefix that tells what they are, and stored as digests."""

from __future__ import annotations

import hmac
import secrets
import string
from typing import Final

from django.conf import settings

_ALPHABET: Final = string.digits + string.ascii_letters
_RANDOM_LENGTH: Final = 40


def random_token(prefix: str) -> str:
    """Return a new token: the prefix and 40 random characters, about 238 bits."""
    return prefix + "".join(secrets.choice(_ALPHABET) for _ in range(_RANDOM_LENGTH))


def digest_of(token: str) -> bytes:
    """Return the stored digest of a token: HMAC-SHA-256 with the pepper."""
    return hmac.digest(settings.API_KEY_PEPPER.encode(), token.encode(), "sha256")
