"""Kind facts: what data files may state of models of each kind of request, by the name that it stands under."""

from __future__ import annotations

from typing import Final

import msgspec

from apps.gateway.dialects.media.speech.provider.abilities import SpeechAbilities
from apps.gateway.dialects.media.transcription.provider.abilities import TranscriptionAbilities
from apps.gateway.dialects.values.embeddings.provider.abilities import EmbeddingAbilities
from apps.gateway.dialects.values.moderations.provider.abilities import ModerationAbilities
from apps.gateway.dialects.values.rerank.provider.abilities import RerankAbilities

# Those of images depend on the image dialect: `declared_facts.find_image_facts`.
KIND_FACTS: Final[dict[str, type[msgspec.Struct]]] = {
    "embeddings": EmbeddingAbilities,
    "rerank": RerankAbilities,
    "moderations": ModerationAbilities,
    "speech": SpeechAbilities,
    "transcription": TranscriptionAbilities,
}
