"""Parallel calls: as many calls of a provider as a client's `n`, or its several prompts, take.

Pure.
"""

from __future__ import annotations

from msgspec.structs import replace

from apps.catalog.offers import Offer
from apps.gateway.canonical.chat import Chat
from apps.gateway.tasks import TASKS


def calls_of(chat: Chat, offer: Offer) -> int:
    """Return how many calls at a time it takes an offer's provider to give as many answers (`n`) as are asked for."""
    answers = chat.n
    if answers is None or answers < 2:
        return 1
    task = TASKS[chat.task]
    if not task.writes_tokens:
        return 1
    dialect = task.find_dialect(chat, offer)
    if dialect is None or (dialect.takes_several_answers and not _is_refused("n", offer)):
        return 1
    return answers


def parallel_chats(chat: Chat, offer: Offer) -> list[Chat]:
    """Return what each of several calls at a time is asked, in the order of their answers; nothing where it is one.

    A prompt's call gives all of its own answers, by calls of its own where it must.
    """
    if chat.task == "completions" and len(chat.messages) > 1:
        return [replace(chat, messages=[message], source=None) for message in chat.messages]
    calls = calls_of(chat, offer)
    return [] if calls == 1 else [replace(chat, n=None, source=None)] * calls


def _is_refused(field: str, offer: Offer) -> bool:
    return field in offer.facts.get("unsupported", ())
