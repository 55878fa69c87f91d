"""Origins as browsers send them (`Origin`): what is one, and what a key's list of them may be. Pure.

Must never know which request asks, nor what an answer says.
"""

from __future__ import annotations

import re
from typing import Final

from django.core.exceptions import ValidationError

MOST_ORIGINS: Final = 50
MAX_LENGTH: Final = 255
WRITTEN_AS: Final = "Must be an origin such as https://app.example.com: scheme, host, port if need be, nothing else"
# As browsers write it: in lower case, without a path. Beside the web's schemes those of apps that are browsers inside.
_HOST = r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?|\[[0-9a-f:.]+\]"
_ORIGIN: Final = re.compile(rf"[a-z][a-z0-9+.-]{{0,31}}://(?:{_HOST})(?::\d{{1,5}})?")


def is_origin(text: str) -> bool:
    """Tell whether a text is an origin as browsers write one. `null` is none: all sandboxed pages share it."""
    return len(text) <= MAX_LENGTH and _ORIGIN.fullmatch(text) is not None


def validate_origins(value: object) -> None:
    """Hold a column's value to a list of origins. Raises Django's ValidationError."""
    if not isinstance(value, list) or len(value) > MOST_ORIGINS:
        raise ValidationError(f"Must be a list of at most {MOST_ORIGINS} origins")
    for origin in value:
        if not isinstance(origin, str) or not is_origin(origin):
            raise ValidationError(WRITTEN_AS)
