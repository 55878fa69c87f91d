"""Token family: all tokens that came of one authorization code; and the formats of tokens and codes.

They end together: when the code or a refresh token comes twice, and when the consent behind them ends.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from django.utils import timezone

from apps.oauth.models import AccessToken, AuthorizationCode, Consent, RefreshToken


def end_family(token_family: UUID) -> None:
    """End the tokens of a family, in the caller's transaction. Used refresh tokens stay known: they may come again."""
    RefreshToken.objects.filter(token_family=token_family, revoked=None).update(revoked=timezone.now())
    AccessToken.objects.filter(token_family=token_family).delete()


def end_consents(consents: Iterable[Consent]) -> None:
    """End consents and all that was given for them, in the caller's transaction; their API keys are left."""
    ids = [one.pk for one in consents]
    now = timezone.now()
    Consent.objects.filter(pk__in=ids, revoked_at=None).update(revoked_at=now)
    AuthorizationCode.objects.filter(consent__in=ids).delete()
    RefreshToken.objects.filter(consent__in=ids, revoked=None).update(revoked=now)
    AccessToken.objects.filter(consent__in=ids).delete()


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
