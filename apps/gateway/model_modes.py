"""Model modes: the names and endpoints of each mode, and the refusal of a model of another mode. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from apps.catalog.offers import CatalogModel
from apps.gateway.canonical.chat import Chat
from apps.kernel.errors import InvalidRequest

_PATHS: Final = {
    "audio_speech": "/v1/audio/speech",
    "audio_transcription": "/v1/audio/transcriptions",
    "chat": "/v1/chat/completions",
    "embedding": "/v1/embeddings",
    "image_generation": "/v1/images/generations",
    "moderation": "/v1/moderations",
    "rerank": "/v1/rerank",
}


@dataclass(frozen=True, slots=True)
class ModelMode:
    """A mode of the catalog, whose models answer one kind of request alone; `adjective` goes before "model"."""

    name: str
    adjective: str

    def serves(self, model: CatalogModel, chat: Chat) -> bool:
        """Return whether a model is of this mode."""
        return model.mode == self.name

    def check(self, model: CatalogModel, chat: Chat) -> None:
        """Raise InvalidRequest, which says where else to ask, unless a model is of this mode."""
        if not self.serves(model, chat):
            message = f"{model.id} is no {self.adjective} model{hint_of(model.mode)}"
            raise InvalidRequest(message, code="unsupported_feature", param="model")


def hint_of(mode: str) -> str:
    """Return the end of an error's sentence that names the endpoint for models of the mode; empty where unknown."""
    path = _PATHS.get(mode)
    if path is None:
        return ""
    return f"; {'chat with it' if mode == 'chat' else 'ask for it'} at {path}"
