"""Retention of codes, tokens and clients: deletes expired rows.

Used codes and refresh tokens are kept as long as the tokens issued for them may live, so that a second use is detected.
"""
# alone: tasks.py only starts work, which is elsewhere

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db.models import Q
from oauth2_provider.settings import oauth2_settings

from apps.kernel.postgres.deletion import delete_in_pieces
from apps.oauth.models import AccessToken, AuthorizationCode, KeyCode, OAuthClient, RefreshToken

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
