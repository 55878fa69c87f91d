"""A canonical chat to Google's `generateContent`.

Knows the format's fields. What it has no words for is refused before anything is sent, unless it only asks for
bookkeeping or speed (`user`, `metadata`, `store`, `prompt_cache_key`, `prediction`). Must never know a model by name.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from apps.gateway.canonical.chat import Chat, Effort, ReasoningRequest, Target
from apps.gateway.dialects.google.contents_out import write_contents
from apps.gateway.dialects.google.flavor import Flavor, flavor_of
from apps.gateway.dialects.google.tools_out import write_tools
from apps.gateway.dialects.google.wire import Record, encode, stated
from apps.kernel.errors import InvalidRequest

MAX_STOPS, MAX_SEED = 5, 2**31 - 1

# Tokens of thinking for an effort, where a model takes a budget; kept within the bounds of the model.
_BUDGETS: Final[dict[Effort, int]] = {
    "none": 0,
    "minimal": 512,
    "low": 2_048,
    "medium": 8_192,
    "high": 24_576,
    "xhigh": 65_536,
    "max": 65_536,
}
_NOT_LEVELS: Final = frozenset({"none", "max"})
_TIERS: Final = {"default": "standard", "standard": "standard", "flex": "flex", "priority": "priority"}
_PICTURE_OPTIONS: Final = {"aspect_ratio": "aspectRatio", "image_size": "imageSize"}
_WITHOUT_WORDS: Final = ("logit_bias", "verbosity", "audio")


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    method = "streamGenerateContent?alt=sse" if chat.stream else "generateContent"
    return f"/models/{quote(target.model_name)}:{method}"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest (`unsupported_feature`) for what cannot be said."""
    flavor = flavor_of(target)
    for name in _WITHOUT_WORDS:
        if getattr(chat, name) is not None:
            raise _refused(f"This model's provider has no {name}", name)
    instructions, contents = write_contents(chat.messages, sealed=flavor.sealed)
    config = _sampling(chat) | _form(chat) | _pictures(chat) | _thinking(chat.reasoning, flavor)
    wire = stated(
        systemInstruction={"parts": instructions} if instructions else None,
        contents=contents,
        **write_tools(chat, flavor),
        generationConfig=config or None,
        serviceTier=_tier(chat.service_tier),
    )
    return encode(wire)


def _sampling(chat: Chat) -> Record:
    if chat.stop is not None and len(chat.stop) > MAX_STOPS:
        raise _refused(f"This model's provider takes at most {MAX_STOPS} stop sequences", "stop")
    seed = chat.seed
    if seed is None and chat.image_config:
        seed = chat.image_config.get("seed")
    if seed is not None and not -MAX_SEED <= seed <= MAX_SEED:
        raise _refused("This model's provider takes a seed of 32 bits", "seed")
    return stated(
        maxOutputTokens=chat.max_tokens,
        temperature=chat.temperature,
        topP=chat.top_p,
        # OpenAI-alikes write -1 for "all of them".
        topK=None if chat.top_k == -1 else chat.top_k,
        candidateCount=chat.n,
        stopSequences=chat.stop or None,
        seed=seed,
        presencePenalty=chat.presence_penalty,
        frequencyPenalty=chat.frequency_penalty,
        responseLogprobs=chat.logprobs,
        logprobs=chat.top_logprobs,
    )


def _form(chat: Chat) -> Record:
    """Return the form that the answer must have."""
    form = chat.response_format
    if form is None or form.kind == "text":
        return {}
    return stated(responseMimeType="application/json", responseJsonSchema=form.schema)


def _pictures(chat: Chat) -> Record:
    """Return which modalities the answer has, and of which kind its pictures are."""
    asked = {name: value for name, value in (chat.image_config or {}).items() if value is not None and name != "seed"}
    if asked.pop("n", 1) != 1:
        raise _refused("This model's provider makes one picture for an answer; ask for several answers", "image_config")
    unknown = asked.keys() - _PICTURE_OPTIONS.keys()
    if unknown:
        raise _refused(f"This model's provider takes no {min(unknown)} of pictures", "image_config")
    config = {_PICTURE_OPTIONS[name]: value for name, value in asked.items()}
    modalities = chat.modalities or (["text", "image"] if config else None)
    return stated(
        responseModalities=[modality.upper() for modality in modalities] if modalities else None,
        imageConfig=config or None,
    )


def _thinking(asked: ReasoningRequest | None, flavor: Flavor) -> Record:
    """Return how much to think: a budget where tokens are named or the model takes nothing else, or a level."""
    if asked is None:
        return {}
    config: Record = {}
    if asked.max_tokens is not None:
        config["thinkingBudget"] = asked.max_tokens
    elif asked.effort is not None and flavor.thinking == "budget":
        config["thinkingBudget"] = _budget(asked.effort, flavor.reasoning_budget or {})
    elif asked.effort is not None:
        if asked.effort in _NOT_LEVELS:
            raise _refused(f"This model has no reasoning effort {asked.effort}", "reasoning_effort")
        config["thinkingLevel"] = asked.effort.upper()
    if not asked.exclude and config.get("thinkingBudget") != 0:
        config["includeThoughts"] = True
    return {"thinkingConfig": config} if config else {}


def _budget(effort: Effort, bounds: dict[str, int]) -> int:
    """Return the tokens that an effort stands for; none at all is always 0, whatever the model's least."""
    tokens = _BUDGETS[effort]
    if effort == "none":
        return tokens
    return max(min(tokens, bounds.get("max", tokens)), bounds.get("min", tokens))


def _tier(tier: str | None) -> str | None:
    if tier is None or tier == "auto":
        return None
    if tier not in _TIERS:
        raise _refused(f"This model's provider has no service tier {tier[:64]}", "service_tier")
    return _TIERS[tier]


def _refused(message: str, param: str) -> InvalidRequest:
    return InvalidRequest(message, code="unsupported_feature", param=param)
