"""Key lookup: finds the API keys in a text, whole or masked as on pages."""

from __future__ import annotations

import re

from django.db.models import Q

from apps.keys.secrets import DEVELOPMENT_PREFIX, LIVE_PREFIX, digest_of, is_api_key

_MASKED = re.compile(rf"({LIVE_PREFIX}|{DEVELOPMENT_PREFIX})(?:\.\.\.|\N{{HORIZONTAL ELLIPSIS}})([0-9A-Za-z]{{4}})")


def quoted_key(text: str) -> Q | None:
    """Return a query for the keys in a text, whole or masked; None if it is not a key."""
    masked = _MASKED.fullmatch(text)
    if masked is not None:
        return Q(prefix=masked[1], last_four=masked[2])
    return Q(digest=digest_of(text)) if is_api_key(text) else None
