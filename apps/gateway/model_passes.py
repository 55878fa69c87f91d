"""Model passes: what an answer takes of models beside its own pass, and what that costs.

Anthropic's compaction reads the conversation a second time and writes a summary; its advisor tool asks another model,
which reads all of it again; a request may name models to fall back to. None of that is in an answer's own counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import structlog

from apps.catalog import catalog_cache
from apps.catalog.offers import Offer
from apps.gateway.canonical.chat import Chat, OpaqueTool
from apps.gateway.routing.candidate import Candidate
from apps.kernel.money import ZERO
from apps.kernel.prices import PriceCard
from apps.kernel.usage import ModelPass, Usage

log = structlog.get_logger(__name__)

# Tokens that a summary has at most, and the advice of one call where the client does not limit it.
MAX_SUMMARY, USUAL_ADVICE = 16_384, 4_096
# Calls of an advisor where the client does not say how many there may be.
USUAL_CALLS: Final = 3


def prices_of_passes(usage: Usage, offer: Offer) -> dict[str, PriceCard]:
    """Return the prices of the other models that an answer took passes over, by the provider's names for them."""
    found: dict[str, PriceCard] = {}
    for name in {one.model for one in usage.passes} - {"", offer.model_id, *offer.own_names}:
        if (other := find_other(offer, name)) is None:
            log.warning("model_passes.unpriced", provider=offer.provider.id, model=name[:100])
        else:
            found[name] = other.prices
    return found


def find_other(offer: Offer, name: str) -> Offer | None:
    """Return what the same provider offers under a name; None where nothing is known of it."""
    return catalog_cache.current().find_offer(offer.provider.id, name)


def beside_answer(chat: Chat, candidate: Candidate, prompt: int) -> Decimal:
    """Return what passes beside the answer's own may cost at most, for a prompt of about so many tokens, in USD."""
    if chat.dialect != "anthropic" or (chat.extra is None and not chat.tools):
        return ZERO
    cost = _cost_of(candidate, "", Usage(input=prompt, output=MAX_SUMMARY)) if _compacts(chat) else ZERO
    for data in advisors_of(chat):
        advice = Usage(input=prompt, output=_number(data, "max_tokens", USUAL_ADVICE))
        cost += _cost_of(candidate, str(data.get("model")), advice) * _number(data, "max_uses", USUAL_CALLS)
    return cost


def _cost_of(candidate: Candidate, model: str, read: Usage) -> Decimal:
    usage = Usage(passes=(ModelPass(model=model, usage=read),))
    return candidate.cost_of(usage, prices_of_passes(usage, candidate.offer)).total


def advisors_of(chat: Chat) -> Iterator[dict[str, Any]]:
    """Yield Anthropic's advisor tools of a chat, as the client wrote them: each asks the model that it names."""
    for tool in chat.tools or ():
        data = tool.data if isinstance(tool, OpaqueTool) else None
        if isinstance(data, dict) and str(data.get("type", "")).startswith("advisor_"):
            yield data


def _compacts(chat: Chat) -> bool:
    management = (chat.extra or {}).get("context_management")
    edits = management.get("edits") if isinstance(management, dict) else None
    kinds = [edit.get("type") for edit in edits or () if isinstance(edit, dict)] if isinstance(edits, list) else []
    return any(isinstance(kind, str) and kind.startswith("compact_") for kind in kinds)


def _number(data: dict[str, Any], name: str, otherwise: int) -> int:
    value = data.get(name)
    return min(value, 100_000) if type(value) is int and value > 0 else otherwise
