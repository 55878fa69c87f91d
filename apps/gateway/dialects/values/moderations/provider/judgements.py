"""Judgements on their way: the events of an answer with judgements, and what all moderation dialects read alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from apps.gateway.canonical.events import Event, Finished, ResultsGiven, Started, UsageReported
from apps.gateway.canonical.moderation import Judgement
from apps.gateway.dialects.reading.answer_errors import unreadable_answer
from apps.gateway.dialects.reading.reported_counts import count_at
from apps.kernel.usage import Usage


def events_of(judgements: Sequence[Judgement], usage: Any) -> Iterator[Event]:
    """Yield the events of a whole answer; `usage` is what the provider says that it counted, if it says anything."""
    if not judgements:
        yield unreadable_answer("The provider sent an answer without judgements")
        return
    yield Started()
    yield ResultsGiven(values=list(judgements))
    yield Finished(reason="stop")
    if tokens := count_at(usage, "prompt_tokens"):
        yield UsageReported(usage=Usage(input=tokens))
