"""Token family: all tokens of one authorization code; the formats and the retention of tokens, codes and clients.

A family is all tokens that came of one authorization code. They end together: when the code or a refresh token comes
twice, and when the consent behind them ends. Used codes and refresh tokens are kept as long as the tokens issued for
them may live, so that a second use is detected.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.db.models import Q
from django.utils import timezone
from oauth2_provider.settings import oauth2_settings

from apps.kernel.postgres.rows import delete_in_pieces
from apps.oauth.models import AccessToken, AuthorizationCode, Consent, KeyCode, OAuthClient, RefreshToken


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


# Lifetime of clients without a consent, and of used codes that were exchanged for a key.
_UNUSED_CLIENT: Final = timedelta(days=2)
_USED_KEY_CODE: Final = timedelta(days=1)


def purge(now: datetime) -> int:
    """Delete expired rows; return how many."""
    lives = timedelta(seconds=oauth2_settings.REFRESH_TOKEN_EXPIRE_SECONDS)
    dead_access = AccessToken.objects.filter(expires__lt=now - lives) | AccessToken.objects.filter(
        expires__lt=now, refresh_token=None
    )
    nobodys = OAuthClient.objects.filter(consents=None, created__lt=now - _UNUSED_CLIENT)
    return sum(
        delete_in_pieces(rows)
        for rows in (
            AuthorizationCode.objects.filter(Q(expires__lt=now, used_at=None) | Q(expires__lt=now - lives)),
            KeyCode.objects.filter(expires__lt=now - _USED_KEY_CODE),
            RefreshToken.objects.filter(revoked__lt=now - lives),
            RefreshToken.objects.filter(revoked=None, access_token__expires__lt=now - lives),
            RefreshToken.objects.filter(revoked=None, access_token=None),
            dead_access,
            nobodys.exclude(registration_source=OAuthClient.RegistrationSource.MANUAL),
        )
    )
