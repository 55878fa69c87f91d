"""Retention of codes, tokens and clients: deletes expired rows.

Used codes and refresh tokens are kept as long as the tokens issued for them may live, so that a second use is detected.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db.models import Q, QuerySet
from oauth2_provider.settings import oauth2_settings

from apps.oauth.models import AccessToken, AuthorizationCode, KeyCode, OAuthClient, RefreshToken

# Lifetime of clients without a consent, and of used codes that were exchanged for a key.
_UNUSED_CLIENT: Final = timedelta(days=2)
_USED_KEY_CODE: Final = timedelta(days=1)
# Rows per statement.
_AT_ONCE: Final = 5_000


def purge(now: datetime) -> int:
    """Delete expired rows; return how many."""
    lives = timedelta(seconds=oauth2_settings.REFRESH_TOKEN_EXPIRE_SECONDS)
    dead_access = AccessToken.objects.filter(expires__lt=now - lives) | AccessToken.objects.filter(
        expires__lt=now, refresh_token=None
    )
    nobodys = OAuthClient.objects.filter(consents=None, created__lt=now - _UNUSED_CLIENT)
    return sum(
        _delete(rows)
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


def _delete(rows: QuerySet) -> int:  # type: ignore[type-arg]  # of any of the tables
    removed = 0
    while ids := list(rows.order_by("pk").values_list("pk", flat=True)[:_AT_ONCE]):
        rows.model._default_manager.filter(pk__in=ids).delete()
        removed += len(ids)
    return removed
