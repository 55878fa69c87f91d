"""Declared facts: what a provider's data file may state for a dialect or for image generation, as each declares it.

The catalog's reader checks data files against it; `manage.py document_facts` writes the documents' tables from it.
Pure. Must never know what a fact means.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

from apps.gateway.dialects import find_dialect, optional_attribute
from apps.gateway.dialects.images import IN_CHAT, find_image_format
from apps.gateway.dialects.images.provider.abilities import Abilities

# Dialects that data files may name before the gateway speaks them: their models are listed, and never asked.
NOT_SPOKEN: Final[frozenset[str]] = frozenset()
# Dialects of speech and transcripts alone.
OF_AUDIO: Final = frozenset({"deepgram", "elevenlabs"})


class NoFacts(msgspec.Struct, frozen=True):
    """The facts of a dialect that reads none of its own."""


@cache
def find_facts(dialect: str) -> type[msgspec.Struct] | None:
    """Return what a dialect declares, None when there is no such dialect."""
    module = find_dialect(dialect) if dialect.isidentifier() else None
    if module is None or not hasattr(module, "NAME"):
        spoken = dialect in NOT_SPOKEN | OF_AUDIO or (dialect.isidentifier() and find_image_format(dialect) is not None)
        return NoFacts if spoken else None
    declared: type[msgspec.Struct] | None = optional_attribute(module, "Facts")
    return declared or NoFacts


def find_image_facts(dialect: str) -> type[msgspec.Struct] | None:
    """Return what the facts under `images` may state, None when there is no such image dialect."""
    return Abilities if dialect == IN_CHAT or (dialect.isidentifier() and find_image_format(dialect)) else None
