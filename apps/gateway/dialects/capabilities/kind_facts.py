"""Kind facts: what data files may state of models of each kind of request, by the name that it stands under."""

from __future__ import annotations

from typing import Final

import msgspec

from apps.gateway.dialects.media.speech.provider.capabilities import SpeechCapabilities
from apps.gateway.dialects.media.transcription.provider.capabilities import TranscriptionCapabilities
from apps.gateway.dialects.values.embeddings.provider.capabilities import EmbeddingCapabilities
from apps.gateway.dialects.values.moderations.provider.capabilities import ModerationCapabilities
from apps.gateway.dialects.values.rerank.provider.capabilities import RerankCapabilities

# Those of images depend on the image dialect: `declared_facts.find_image_facts`.
KIND_FACTS: Final[dict[str, type[msgspec.Struct]]] = {
    "embeddings": EmbeddingCapabilities,
    "rerank": RerankCapabilities,
    "moderations": ModerationCapabilities,
    "speech": SpeechCapabilities,
    "transcription": TranscriptionCapabilities,
}
