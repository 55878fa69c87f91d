"""Token family: all tokens that came of one authorization code.

They end together: when the code or a refresh token comes twice, and when the consent behind them ends.
"""

from __future__ import annotations

from collections.abc import Iterable
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
