"""Service tiers and regions: at which one a chat asks to be served, and at which one an answer says that it was.

Every vendor has words of its own for the same tiers; prices know them by one name each. Pure.
"""

from __future__ import annotations

from typing import Any, Final

from apps.gateway.canonical.chat import Chat

AUTO: Final = "auto"
USUAL: Final = "default"
# Anthropic's `speed`: prices know it as a tier of service.
FAST: Final = "fast"
# Words for the default. Capacity paid in advance (Anthropic's `priority`, Google's provisioned throughput) has no other
# price for a token, and a batch has its own share of all of them.
_USUAL_WORDS: Final = frozenset(
    {"default", "standard", "standard_only", "on_demand", "provisioned_throughput", "batch"}
)
# OpenAI calls its priority processing fast mode since July 2026, and takes both words.
_ALIASES: Final = {"fast": "priority"}


def asked_service_tier(chat: Chat) -> str:
    """Return the tier that a chat asks for by name; empty for the usual one and for whichever the provider chooses."""
    tier = chat.service_tier
    if chat.extra is not None and chat.dialect == "anthropic" and chat.extra.get("speed") == FAST:
        return FAST
    if tier is None or tier == AUTO or tier in _USUAL_WORDS:
        return ""
    return _ALIASES.get(tier, tier)


def asked_region(chat: Chat) -> str:
    """Return the region in which alone a chat asks to be answered; empty for any."""
    if chat.extra is None or chat.dialect != "anthropic":
        return ""
    region = chat.extra.get("inference_geo")
    return region if isinstance(region, str) and region != "global" else ""


def served_tier(word: Any) -> str:
    """Return the tier that an answer names; empty where it names none."""
    if not isinstance(word, str) or not word:
        return ""
    word = word.lower()
    return USUAL if word in _USUAL_WORDS else _ALIASES.get(word, word)[:40]
