"""Answer transcript: what the client gets, behind guardrails: how it ended, and all of it where it is needed whole."""

from __future__ import annotations

import time
from uuid import UUID

import msgspec

from apps.gateway.canonical.events import Event, Finished, Reply, Started
from apps.gateway.canonical.fold import ReplyBuilder
from apps.gateway.tracing.genai_attributes import answer_of
from apps.gateway.upstream.failover import Failover


class AnswerTranscript(msgspec.Struct, eq=False):
    """One answer's transcript: `fold` joins its events where it is needed whole, `finish` is how it ended."""

    attempts: Failover
    prompt_estimate: int
    fold: ReplyBuilder | None
    log_id: UUID
    finish: Finished | None = None

    def add(self, event: Event) -> None:
        """Add an event before it is passed on. The first one gets the model, the time and the prompt's estimate."""
        if type(event) is Started:
            candidate = self.attempts.latest_candidate
            if (trace := self.attempts.trace) is not None and trace.answer is None:
                trace.answer = answer_of(event)
            event.model, event.provider, event.log_id = candidate.model_id, candidate.provider_id, self.log_id.hex
            event.created = event.created or int(time.time())
            event.prompt_estimate = self.prompt_estimate
        elif type(event) is Finished:
            self.finish = event
        if self.fold is not None:
            self.fold.add(event)

    def reply(self) -> Reply:
        """Return the whole answer so far; an empty one where it is not needed whole."""
        return (self.fold or ReplyBuilder()).reply()
