"""Formats of OAuth tokens and codes, each with its own prefix, so that leaked ones can be identified."""

from __future__ import annotations

import secrets
from typing import Any, Final

ACCESS: Final = "gw_oauth_"
REFRESH: Final = "gw_refresh_"
KEY_CODE: Final = "gw_code_"
# Bytes of randomness.
_RANDOM: Final = 32


def new_access_token(_request: Any) -> str:
    """Return a new access token, 256 random bits."""
    return ACCESS + secrets.token_urlsafe(_RANDOM)


def new_refresh_token(_request: Any) -> str:
    """Return a new refresh token, 256 random bits."""
    return REFRESH + secrets.token_urlsafe(_RANDOM)


def new_key_code() -> str:
    """Return a new code for an API key, 256 random bits."""
    return KEY_CODE + secrets.token_urlsafe(_RANDOM)
