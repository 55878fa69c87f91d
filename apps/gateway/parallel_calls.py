"""Parallel calls: how many calls of a provider it takes to give as many answers (`n`) as a client asks for.

Decides over values. Must never open a socket or ask a store.
"""

from __future__ import annotations

from apps.catalog.offers import Offer
from apps.gateway.canonical.chat import Chat
from apps.gateway.dialects import optional_attribute
from apps.gateway.tasks import task_of


def calls_of(chat: Chat, offer: Offer) -> int:
    """Return how many calls at a time it takes an offer's provider to give as many answers as are asked for."""
    answers = chat.n
    task = task_of(chat)
    if answers is None or answers < 2 or not task.writes_tokens:
        return 1
    dialect = task.find_dialect(chat, offer)
    if dialect is None or (optional_attribute(dialect, "SEVERAL_ANSWERS") and not _is_refused("n", offer)):
        return 1
    return answers


def _is_refused(field: str, offer: Offer) -> bool:
    return field in offer.facts.get("unsupported", ())
