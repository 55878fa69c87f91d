"""Judgements on their way: the events of an answer with judgements, and what all moderation dialects read alike.

Knows judgements and counts. Must never know a wire format.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from apps.gateway.canonical.events import Event, Finished, ResultsGiven, Started, UsageReported
from apps.gateway.canonical.moderation import Judgement
from apps.gateway.dialects.answer_errors import unreadable_answer
from apps.kernel.usage import Usage

# No request has a billion tokens; a count beyond is a provider's bug.
_MOST: Final = 10**9


class WireUsage(msgspec.Struct, frozen=True):
    """Counts, of those who tell them."""

    prompt_tokens: int | None = None


def events_of(judgements: Sequence[Judgement], usage: WireUsage | None) -> Iterator[Event]:
    """Yield the events of a whole answer; without `usage` nobody counted."""
    if not judgements:
        yield unreadable_answer("The provider sent an answer without judgements")
        return
    yield Started()
    yield ResultsGiven(values=list(judgements))
    yield Finished(reason="stop")
    tokens = None if usage is None else usage.prompt_tokens
    if tokens is not None and 0 < tokens <= _MOST:
        yield UsageReported(usage=Usage(input=tokens))
