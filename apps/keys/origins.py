"""Origins as browsers send them (`Origin`): syntax, and validation of a key's list. Pure."""

from __future__ import annotations

import re
from typing import Final

from django.core.exceptions import ValidationError

MAX_ORIGINS: Final = 50
MAX_LENGTH: Final = 255
WRITTEN_AS: Final = (
    "Must be an origin such as https://app.example.com: scheme, host and optionally a port, nothing else"
)
# As browsers write them: lower case, without a path. Apps that embed a browser have their own schemes.
_HOST = r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?|\[[0-9a-f:.]+\]"
_ORIGIN: Final = re.compile(rf"[a-z][a-z0-9+.-]{{0,31}}://(?:{_HOST})(?::\d{{1,5}})?")


def is_origin(text: str) -> bool:
    """Return whether a text is an origin as browsers write it. `null` is not: all sandboxed pages share it."""
    return len(text) <= MAX_LENGTH and _ORIGIN.fullmatch(text) is not None


def validate_origins(value: object) -> None:
    """Validate a column's list of origins. Raises Django's ValidationError."""
    if not isinstance(value, list) or len(value) > MAX_ORIGINS:
        raise ValidationError(f"Must be a list of at most {MAX_ORIGINS} origins")
    for origin in value:
        if not isinstance(origin, str) or not is_origin(origin):
            raise ValidationError(WRITTEN_AS)
