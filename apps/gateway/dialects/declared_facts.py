"""Declared facts: what a provider's data file may state for a dialect or for image generation, as each declares it.

The catalog's reader checks data files against it; `manage.py document_facts` writes the documents' tables from it.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import msgspec

from apps.gateway.dialects import find_dialect
from apps.gateway.dialects.media.images import IN_CHAT, ImageCapabilities, find_image_format
from apps.gateway.dialects.media.speech import SpeechCapabilities
from apps.gateway.dialects.media.transcription import TranscriptionCapabilities
from apps.gateway.dialects.values.embeddings import EmbeddingCapabilities
from apps.gateway.dialects.values.moderations import ModerationCapabilities
from apps.gateway.dialects.values.rerank import RerankCapabilities

# Dialects of speech and transcripts alone.
OF_AUDIO: Final = frozenset({"deepgram", "elevenlabs"})


class NoFacts(msgspec.Struct, frozen=True):
    """The facts of a dialect that reads none of its own."""


@cache
def find_facts(dialect: str) -> type[msgspec.Struct] | None:
    """Return what a dialect declares, None when there is no such dialect."""
    provider = find_dialect(dialect)
    if provider is None:
        return NoFacts if dialect in OF_AUDIO or find_image_format(dialect) is not None else None
    return provider.facts or NoFacts


def find_image_facts(dialect: str) -> type[msgspec.Struct] | None:
    """Return what the facts under `images` may state, None when there is no such image dialect."""
    return ImageCapabilities if dialect == IN_CHAT or find_image_format(dialect) is not None else None


# Those of images depend on the image dialect: `declared_facts.find_image_facts`.
KIND_FACTS: Final[dict[str, type[msgspec.Struct]]] = {
    "embeddings": EmbeddingCapabilities,
    "rerank": RerankCapabilities,
    "moderations": ModerationCapabilities,
    "speech": SpeechCapabilities,
    "transcription": TranscriptionCapabilities,
}
