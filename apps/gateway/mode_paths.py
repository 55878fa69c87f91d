"""Mode paths: where models of each mode are asked, for errors that say where else to ask. Pure.

Knows modes and paths. Must never know a model.
"""

from __future__ import annotations

from typing import Final

_PATHS: Final = {
    "audio_speech": "/v1/audio/speech",
    "audio_transcription": "/v1/audio/transcriptions",
    "chat": "/v1/chat/completions",
    "embedding": "/v1/embeddings",
    "image_generation": "/v1/images/generations",
    "moderation": "/v1/moderations",
    "rerank": "/v1/rerank",
}


def hint_of(mode: str) -> str:
    """Return the end of an error's sentence that says where models of the mode are asked; empty where nobody knows."""
    path = _PATHS.get(mode)
    if path is None:
        return ""
    return f"; {'chat with it' if mode == 'chat' else 'ask for it'} at {path}"
