"""Bedrock Converse, provider side: writes sampling parameters and stop sequences (`inferenceConfig`,
`additionalModelRequestFields`).

Knows facts. Must never know a model by name.
"""

from __future__ import annotations

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped
from apps.gateway.dialects.chat.bedrock.provider.flavor import Flavor
from apps.gateway.dialects.chat.bedrock.shared.wire import Record, without_none

_CHOOSING = ("temperature", "top_p", "top_k")


def sampling_of(chat: Chat, target: Target, flavor: Flavor) -> Record:
    """Return what the model can be told of it, by the canonical language's names; the rest is noted."""
    said = without_none(
        temperature=chat.temperature,
        top_p=chat.top_p,
        # OpenAI-alikes write -1 for "all of them".
        top_k=None if chat.top_k is not None and chat.top_k < 0 else chat.top_k,
        stop=[stop for stop in chat.stop or () if stop.strip()] or None,
    )
    if len(said.get("stop", ())) < len(chat.stop or ()):
        note_dropped(chat, target, "stop", "stop sequences of white space alone are not taken")
    for name in _CHOOSING:
        if name in said and target.facts.get("temperature") is False and said.pop(name) != 1:
            note_dropped(chat, target, name, "the model chooses its words alone")
    if said.get("temperature", 0) > 1:
        said["temperature"] = 1.0
        note_dropped(chat, target, "temperature", "sent as 1, the most that this model's provider takes")
    if flavor.signs_thinking and "temperature" in said and said.pop("top_p", 1) != 1:
        note_dropped(chat, target, "top_p", "not taken beside a temperature")
    if "top_k" in said and not flavor.takes & {"top_k", "inferenceConfig.topK"}:
        del said["top_k"]
        note_dropped(chat, target, "top_k", "not taken by this model")
    return said


def write_sampling(said: Record, limit: int | None, flavor: Flavor) -> tuple[Record, Record]:
    """Return `inferenceConfig`, and the fields for the model itself."""
    config = without_none(
        maxTokens=limit,
        temperature=said.get("temperature"),
        topP=said.get("top_p"),
        stopSequences=said.get("stop"),
    )
    if "top_k" not in said:
        return config, {}
    top_k = said["top_k"]
    return config, {"top_k": top_k} if "top_k" in flavor.takes else {"inferenceConfig": {"topK": top_k}}
