"""Anthropic Messages, provider side: writes sampling parameters and stop sequences; what has no counterpart is noted or
refused.

Knows facts. Must never know a model by name.
"""

from __future__ import annotations

from typing import Any

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped, note_unsupported_hints, unsupported_feature
from apps.gateway.dialects.chat.anthropic.provider.flavor import flavor_of

Record = dict[str, Any]

# Hints that the format has no words for.
_HINTS = (
    *("frequency_penalty", "presence_penalty", "logit_bias", "seed", "verbosity", "prediction", "store"),
    *("prompt_cache_key", "image_config", "metadata", "audio"),
)
_TIERS = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}
_SAMPLING = ("temperature", "top_p", "top_k")
# The least share that is taken beside thinking.
_LEAST_TOP_P = 0.95


def refuse_unsupported_fields(chat: Chat) -> None:
    """Raise InvalidRequest for what would change the answer's very shape and has no words here."""
    for field, asked in (
        ("n", (chat.n or 1) > 1),
        ("logprobs", bool(chat.logprobs)),
        ("modalities", any(kind != "text" for kind in chat.modalities or ())),
    ):
        if asked:
            raise unsupported_feature(chat, field, f"{field} is not available from this model's provider")


def write_sampling(wire: Record, chat: Chat, target: Target, *, same_dialect: bool) -> None:
    """Add how words are chosen and where the answer ends."""
    for name, value in (
        ("temperature", _temperature(chat, target)),
        ("top_p", _top_p(chat, target, same_dialect=same_dialect)),
        ("top_k", None if chat.top_k is not None and chat.top_k < 0 else chat.top_k),
        ("stop_sequences", _stops(chat, target, same_dialect=same_dialect)),
        ("service_tier", chat.service_tier if same_dialect else _TIERS.get(chat.service_tier or "")),
    ):
        if value is not None:
            wire[name] = value
    if chat.service_tier is not None and "service_tier" not in wire:
        note_dropped(chat, target, "service_tier", "the provider does not have this tier")
    note_unsupported_hints(chat, target, *_HINTS)
    drop_sampling(wire, chat, target)


def drop_sampling(wire: Record, chat: Chat, target: Target) -> None:
    """Leave out what a model that chooses its words alone refuses."""
    if not flavor_of(target).temperature:
        for name in _SAMPLING:
            if wire.pop(name, None) is not None and getattr(chat, name) != 1:
                note_dropped(chat, target, name, "the model chooses its words alone")


def fit_to_thinking(wire: Record, chat: Chat, target: Target) -> None:
    """Leave out what is refused beside thinking."""
    for name, fits in (
        ("temperature", lambda value: value == 1),
        ("top_p", lambda value: value >= _LEAST_TOP_P),
        ("top_k", lambda value: False),
    ):
        if name in wire and not fits(wire[name]):
            del wire[name]
            note_dropped(chat, target, name, "not taken beside thinking")


def _temperature(chat: Chat, target: Target) -> float | None:
    if chat.temperature is None or chat.temperature <= 1:
        return chat.temperature
    note_dropped(chat, target, "temperature", "sent as 1, the most that this model's provider takes")
    return 1.0


def _top_p(chat: Chat, target: Target, *, same_dialect: bool) -> float | None:
    """Return the share of likely words; newer models take it or a temperature."""
    if same_dialect or chat.top_p is None or chat.temperature is None:
        return chat.top_p
    if chat.top_p != 1:
        note_dropped(chat, target, "top_p", "not taken beside a temperature")
    return None


def _stops(chat: Chat, target: Target, *, same_dialect: bool) -> list[str] | None:
    """Return the stop sequences; those of white space alone are refused."""
    if chat.stop is None or same_dialect:
        return chat.stop
    kept = [stop for stop in chat.stop if stop.strip()]
    if len(kept) < len(chat.stop):
        note_dropped(chat, target, "stop", "stop sequences of white space alone are not taken")
    return kept or None
