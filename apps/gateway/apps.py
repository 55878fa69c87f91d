"""Django's registration of the app; hands the catalog what dialects declare of their facts."""

from __future__ import annotations

from django.apps import AppConfig

from apps.catalog.facts import Declarations, use_declarations


class GatewayConfig(AppConfig):
    """See the package's docstring."""

    name = "apps.gateway"
    label = "gateway"

    def ready(self) -> None:
        """Let the catalog check data files against the dialects' declarations."""
        from apps.gateway.dialects.declared_facts import find_facts, find_image_facts
        from apps.gateway.dialects.embeddings.provider.abilities import EmbeddingAbilities
        from apps.gateway.dialects.speech.provider.abilities import SpeechAbilities
        from apps.gateway.dialects.transcription.provider.abilities import TranscriptionAbilities

        use_declarations(
            Declarations(find_facts, find_image_facts, EmbeddingAbilities, SpeechAbilities, TranscriptionAbilities)
        )
