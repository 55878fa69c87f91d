"""Kind facts: what data files may state of models of each kind of request, by the name that it stands under.

Knows which kinds have facts of their own. Must never know what one means.
"""

from __future__ import annotations

from typing import Final

import msgspec

from apps.gateway.dialects.embeddings.provider.abilities import EmbeddingAbilities
from apps.gateway.dialects.moderations.provider.abilities import ModerationAbilities
from apps.gateway.dialects.rerank.provider.abilities import RerankAbilities
from apps.gateway.dialects.speech.provider.abilities import SpeechAbilities
from apps.gateway.dialects.transcription.provider.abilities import TranscriptionAbilities

# Those of images depend on the image dialect: `declared_facts.find_image_facts`.
KIND_FACTS: Final[dict[str, type[msgspec.Struct]]] = {
    "embeddings": EmbeddingAbilities,
    "rerank": RerankAbilities,
    "moderations": ModerationAbilities,
    "speech": SpeechAbilities,
    "transcription": TranscriptionAbilities,
}
