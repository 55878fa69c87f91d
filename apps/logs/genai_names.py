"""Names of a record in OpenTelemetry's semantic conventions for generative AI: operations, providers, ends. Pure.

The names are those of the conventions' version 1.41 (`gen_ai.provider.name`, no longer `gen_ai.system`). Must never
see content.
"""

from __future__ import annotations

from functools import lru_cache

# The conventions' version: the last that has spans and metrics of generative AI under these names. Their own repository
# has begun to rename them since.
SCHEMA_URL = "https://opentelemetry.io/schemas/1.41.0"
# By the kind of request; names of our own where the conventions have none.
OPERATIONS = {
    "chat": "chat",
    "completions": "text_completion",
    "embeddings": "embeddings",
    "images": "image_generation",
    "moderations": "moderation",
    "rerank": "rerank",
    "speech": "speech",
    "transcription": "transcription",
}
# `gen_ai.output.type` by the kind of request, where that alone says it.
OUTPUT_TYPES = {"images": "image", "speech": "speech", "transcription": "text", "completions": "text"}
# By the beginning of a route's name; all others are chats.
_OF_ROUTES = {
    "completions": "text_completion",
    "embed": "embeddings",
    "images": "image_generation",
    "moderations": "moderation",
    "rerank": "rerank",
    "audio_speech": "speech",
    "audio": "transcription",
}
# Providers whose well-known value is another word than their id here.
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "google": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
_FINISH_REASONS = {"completed": "stop", "length_limit": "length"}


def operation_of(task: str) -> str:
    """Return `gen_ai.operation.name` of a kind of request."""
    return OPERATIONS.get(task, task)


@lru_cache(maxsize=128)
def operation_of_route(route: str) -> str:
    """Return `gen_ai.operation.name` of a record, by the name of its route."""
    return next((name for start, name in _OF_ROUTES.items() if route.startswith(start)), "chat")


def finish_reason_of(own: str | None, unified: str | None) -> str:
    """Return why the model stopped: in its own words where retention keeps them, else in the conventions'."""
    return own or _FINISH_REASONS.get(unified or "unknown", unified or "unknown")


def provider_name(provider_id: str) -> str:
    """Return `gen_ai.provider.name` of a provider; a tenant's own keeps no name of its own, which may be anything."""
    return "custom" if provider_id.startswith("custom:") else _PROVIDERS.get(provider_id, provider_id)
