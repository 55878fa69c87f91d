"""Bedrock Converse, provider side: writes a canonical chat as a request body.

Knows the format's fields. Sampling and hints without a word here are noted as lost; what would change the very shape of
the answer is refused before anything is sent. Must never know a model by name.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Reasoning, Target
from apps.gateway.dialects.adapting.foreign_blocks import drop_foreign_blocks
from apps.gateway.dialects.adapting.tool_names import adapt_tool_names
from apps.gateway.dialects.adapting.unsupported_fields import (
    note_dropped,
    note_unsupported_fields,
    note_unsupported_hints,
    repair_tool_results,
    unsupported_feature,
)
from apps.gateway.dialects.chat.anthropic.provider import thinking_signatures
from apps.gateway.dialects.chat.anthropic.shared import wire as anthropic
from apps.gateway.dialects.chat.bedrock.provider.flavor import Flavor, flavor_of
from apps.gateway.dialects.chat.bedrock.provider.write_blocks import Blocks
from apps.gateway.dialects.chat.bedrock.provider.write_messages import write_messages
from apps.gateway.dialects.chat.bedrock.provider.write_response_format import JSON_PLEASE, wants_any_json, with_form
from apps.gateway.dialects.chat.bedrock.provider.write_sampling import sampling_of, write_sampling
from apps.gateway.dialects.chat.bedrock.provider.write_thinking import write_thinking
from apps.gateway.dialects.chat.bedrock.provider.write_tools import write_tools
from apps.gateway.dialects.chat.bedrock.shared.wire import NAME, STREAM_TYPE, Record, encode, without_none

MOST_LABELS = 16

_NAMES, _LONGEST_NAME = re.compile(r"[a-zA-Z0-9_-]+"), 64
# Hints that the format has no words for: the answer is still what was asked for.
_HINTS: Final = (
    *("frequency_penalty", "presence_penalty", "logit_bias", "seed", "user", "prompt_cache_key", "prediction"),
    *("verbosity", "store", "audio", "image_config"),
)
_TIERS: Final = {"flex": "flex", "priority": "priority", "fast": "priority", "reserved": "reserved"}
_USUAL_TIERS: Final = frozenset({"auto", "default", "standard", "standard_only"})
_LABEL = re.compile(r"[a-zA-Z0-9\s:_@$#=/+,.-]{0,256}", re.ASCII)


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return f"/model/{quote(target.model_name, safe='')}/converse{'-stream' if chat.stream else ''}"


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the headers that belong to the format: a stream is no text."""
    return {"Accept": STREAM_TYPE} if chat.stream else {}


def signature_format(chat: Chat, target: Target) -> str | None:
    """Return whose signatures are wanted back: Anthropic's, where a model that knows them is to think."""
    return thinking_signatures.signature_format(chat, target) if flavor_of(target).signs_thinking else None


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request. Raises InvalidRequest (`unsupported_feature`) for what cannot be said."""
    _refuse_unspeakable(chat)
    flavor = flavor_of(target)
    blocks = Blocks(target, flavor)
    chat = repair_tool_results(drop_foreign_blocks(chat, target, NAME), target, runs=True)
    _lose_unheard(chat, target, blocks)
    chat = adapt_tool_names(chat, target, _NAMES, _LONGEST_NAME)
    chat, output = with_form(chat, target)
    system, messages = write_messages(chat, blocks, flavor)
    if wants_any_json(chat):
        system.append(JSON_PLEASE)
        target.rewrites.healing = True
    choices = write_tools(chat, blocks, target, flavor)
    sampling = sampling_of(chat, target, flavor)
    thinking, limit = write_thinking(chat, target, flavor, sampling, messages, forced=choices.forced)
    config, fields = write_sampling(sampling, limit, flavor)
    wire = without_none(
        system=system or None,
        messages=messages,
        inferenceConfig=config or None,
        toolConfig=choices.config,
        additionalModelRequestFields=fields | _betas(chat, target, flavor) | choices.fields | thinking or None,
        outputConfig=output,
        requestMetadata=_labels(chat, target),
        serviceTier=_tier(chat, target),
    )
    return encode(wire)


def _refuse_unspeakable(chat: Chat) -> None:
    """Raise InvalidRequest for what would change the answer's very shape and has no words here."""
    for field, asked in (
        ("n", (chat.n or 1) > 1),
        ("logprobs", bool(chat.logprobs)),
        ("modalities", any(kind != "text" for kind in chat.modalities or ())),
    ):
        if asked:
            raise unsupported_feature(chat, field, f"{field} is not available from this model's provider")


def _lose_unheard(chat: Chat, target: Target, blocks: Blocks) -> None:
    """Note what is left out because the format has no words for it."""
    note_unsupported_hints(chat, target, *_HINTS)

    def is_returnable(part: Reasoning) -> bool:
        return bool(blocks.write(part, "assistant", ""))

    # Previews are noted where they are written.
    note_unsupported_fields(
        replace(chat, betas=None),
        target,
        NAME,
        marks=True,
        names=False,
        details=False,
        thinking=is_returnable,
        documents=True,
    )


def _betas(chat: Chat, target: Target, flavor: Flavor) -> Record:
    """Return the previews of Anthropic's format that the client asks for and the model takes."""
    betas = chat.betas or []
    known = [beta for beta in betas if chat.dialect == anthropic.NAME and beta in flavor.betas]
    if unknown := [beta for beta in betas if beta not in known]:
        target.note_dropped("anthropic-beta", f"previews that the model does not take: {', '.join(unknown)[:200]}")
    return {"anthropic_beta": known} if known else {}


def _labels(chat: Chat, target: Target) -> dict[str, str] | None:
    """Return the client's labels, which Bedrock keeps in its own log of invocations."""
    labels = chat.metadata or {}
    if not labels:
        return None
    texts = [*labels, *labels.values()]
    if len(labels) > MOST_LABELS or not all(isinstance(text, str) and _LABEL.fullmatch(text) for text in texts):
        note_dropped(chat, target, "metadata", "this model's provider takes 16 labels of plain words")
        return None
    return dict(labels)


def _tier(chat: Chat, target: Target) -> Record | None:
    tier = chat.service_tier
    if tier is None or tier in _USUAL_TIERS:
        return None
    if tier not in _TIERS:
        note_dropped(chat, target, "service_tier", "the provider does not have this tier")
        return None
    return {"type": _TIERS[tier]}
