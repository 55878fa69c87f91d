"""Custom providers: an organization's own OpenAI-compatible endpoint, named `custom:<providerName>/<model>`. Pure.

A provider that no data file describes can do everything, and its prices are unknown. A server at the address of a
catalog's provider has the same demands as that provider.
"""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import urlsplit

from apps.catalog.offers import Catalog, CatalogProvider, Offer
from apps.gateway.access.credentials import API_KEYS, CREDITS, Credential
from apps.gateway.access.policy import Policy
from apps.kernel.errors import InvalidRequest
from apps.kernel.prices import PriceCard

PREFIX = "custom:"
_MAX_NAME_LENGTH = 255
# Every OpenAI-alike understands these; what else it takes cannot be known and is sent as the client wrote it.
_FACTS: dict[str, object] = {
    "takes": ["reasoning_details", "images", "web_search_options", "extra_content"],
    "reasoning_field": "any",
    "images": {
        "dialect": "openai",
        "most": 10,
        "inputs": 16,
        "takes": [
            *("any_size", "background", "input_fidelity", "mask", "moderation", "output_compression", "style", "user"),
        ],
        "qualities": ["standard", "hd", "low", "medium", "high", "xhigh", "max"],
        "formats": ["png", "jpeg", "webp"],
    },
    "speech": {
        "dialect": "openai",
        "most_characters": 100_000,
        "formats": ["mp3", "opus", "aac", "flac", "wav", "pcm"],
        "takes": ["instructions", "speed", "custom_voice"],
    },
    # Not every one of them streams transcripts, which none is asked to.
    "transcription": {
        "dialect": "openai",
        "takes": ["prompt", "response_format", "segments", "speakers", "temperature", "translation", "words"],
    },
}


# Demands of a provider, without which it refuses a conversation whatever the credential.
_DEMANDS = ("reasoning_field", "reasoning_required")


def is_custom(model: str) -> bool:
    """Return whether a client's model name means a provider of its organization's own."""
    return model.startswith(PREFIX)


def resolve_custom(policy: Policy, catalog: Catalog, requested: str) -> list[tuple[Offer, Credential]]:
    """Return the offer and each credential for it. Raises InvalidRequest (400 `model_not_found`)."""
    provider_id, slash, model_name = requested.partition("/")
    if not slash or not model_name or len(requested) > _MAX_NAME_LENGTH:
        raise _not_found("A model of your own provider is named custom:<providerName>/<model>")
    credentials = policy.own_credentials.get(provider_id, ())
    if not credentials:
        raise _not_found(f"There is no active provider key named `{provider_id.removeprefix(PREFIX)}`")
    if policy.mode == CREDITS:
        raise _not_found("This project is in credits mode; your own providers need the mode api-keys or hybrid")
    return [
        (_offer(provider_id, model_name, requested, _facts_at(own.base_url, catalog)), Credential(API_KEYS, own=own))
        for own in credentials
    ]


@lru_cache(maxsize=1_000)
def _host(address: str) -> str | None:
    return urlsplit(address).hostname


def _facts_at(base_url: str, catalog: Catalog) -> dict[str, object]:
    """Return the assumed facts of a server, with the demands of the catalog's provider at the same host."""
    host = _host(base_url)
    for provider in catalog.providers.values():
        if "reasoning_required" in provider.facts and _host(provider.base_url) == host:
            return _FACTS | {name: provider.facts[name] for name in _DEMANDS}
    return _FACTS


def _offer(provider_id: str, model_name: str, requested: str, facts: dict[str, object]) -> Offer:
    provider = CatalogProvider(
        id=provider_id,
        name=provider_id.removeprefix(PREFIX),
        dialect="openai",
        auth="bearer",
        base_url="",
        api_key_env="",
        facts=facts,
        priority=1.0,
    )
    return Offer(
        provider=provider,
        model_id=requested,
        model_name=model_name,
        prices=PriceCard(),
        context_length=None,
        max_output=None,
        streaming=True,
        cancellation=True,
        vision=True,
        tools=True,
        parallel_tools=True,
        tool_choice=True,
        reasoning=True,
        structured_outputs=True,
        json_output=True,
        web_search=True,
        prompt_cache=True,
        temperature=True,
        stability="stable",
        facts=facts,
        deprecated_at=None,
        deactivated_at=None,
        priority=1.0,
        active=True,
    )


def _not_found(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="model_not_found", param="model")
