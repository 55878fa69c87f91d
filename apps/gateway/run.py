"""Run of an admitted request: its answer is called for, metered, screened, cached and recorded, in that order.

`answer_meter.py` counts the output, `recorder.py` prices and records it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

import msgspec

from apps.billing.reservations import RateLimitStatus
from apps.gateway.answer_meter import AnswerMeter
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Event, Failed, Reply, Summary, TextDelta
from apps.gateway.guard import outside_guard
from apps.gateway.guard.request_guard import RequestGuard
from apps.gateway.guard.response_guard import ResponseGuard
from apps.gateway.guard.restoration import AnswerRestoration
from apps.gateway.metrics import IN_FLIGHT, add
from apps.gateway.recorder import AnswerTranscript, Recorder
from apps.gateway.response_cache import CacheEntry
from apps.gateway.tasks import TASKS
from apps.gateway.token_estimate import estimate_prompt_tokens
from apps.gateway.upstream.failover import Failover
from apps.kernel.errors import ApiError, ClientGone


class ChatRun(msgspec.Struct, eq=False, frozen=True, kw_only=True):
    """An admitted request: runs once, and is recorded once, however it ends."""

    chat: Chat
    attempts: Failover
    meter: AnswerMeter
    transcript: AnswerTranscript
    recorder: Recorder
    # None without guardrails, where nothing was masked that comes back, without a response cache, without a rate limit.
    guard: RequestGuard | None
    restoration: AnswerRestoration | None
    cache: CacheEntry | None
    rate: RateLimitStatus | None

    def events(self) -> Generator[Event, None, None]:
        """Return the answer's events and, last, the summary. The record is made before the summary is yielded.

        Raises ApiError as long as nothing was yielded; after that an error is the last event (`Failed`).
        """
        events = self._recorded_events()
        return events if self.restoration is None else self.restoration.restore(events)

    def _recorded_events(self) -> Generator[Event, None, None]:
        """Yield the events as they are recorded: with placeholders for masked values."""
        begun = False
        add(IN_FLIGHT, 1)
        add_to_transcript, keeps_text = self.transcript.add, self.transcript.fold is not None
        try:
            for event in self._answer():
                # Most events of a stream are text, of which its transcript keeps nothing.
                if keeps_text or type(event) is not TextDelta:
                    add_to_transcript(event)
                begun = True
                yield event
            summary = self._complete()
            begun = True
            yield summary
        except ApiError as error:
            self.recorder.fail(error)
            if not begun:
                raise
            yield Failed(error=error)
        except GeneratorExit:
            self.recorder.fail(ClientGone("The client closed the connection"))
            raise
        except Exception as error:
            failure = self.recorder.fail_unexpectedly()
            if not begun:
                raise failure from error
            yield Failed(error=failure)
        finally:
            add(IN_FLIGHT, -1)
            self.attempts.client_disconnect.close()
            if self.cache is not None:
                self.cache.close()

    @property
    def cached(self) -> bool:
        """Whether the answer is one that was kept."""
        return self.cache is not None and self.cache.hit

    @property
    def answer_bytes(self) -> int:
        """About how many bytes the answer has."""
        return self.meter.answer_bytes

    def reply(self) -> Reply:
        """Return the whole answer, for requests that do not stream."""
        return self.transcript.reply() if self.restoration is None else self.restoration.reply()

    def _answer(self) -> Iterator[Event]:
        """Return the kept answer to the same question, else a provider's."""
        return self._ask_providers() if self.cache is None else self._answer_through_cache(self.cache)

    def _ask_providers(self) -> Iterator[Event]:
        """Return a provider's answer, as far as it is paid for and may pass."""
        return self._screen(self.meter.count_within_hold(self.attempts.run()))

    def _answer_through_cache(self, cache: CacheEntry) -> Iterator[Event]:
        """Yield the kept answer; where there is none, a provider's, which the cache remembers as it passes."""
        yield from self._screen(self.meter.count(cache.replay()))
        if not cache.hit:
            self._narrow_to(cache.left_to_ask(self.chat))
            for event in self._ask_providers():
                yield cache.take(event)

    def _narrow_to(self, left: Chat) -> None:
        """Ask the providers for the remaining part of the request only: no more is paid for."""
        if left is not self.chat:
            self.attempts.chat = left
            self.meter.prompt_estimate = estimate_prompt_tokens(left)

    def _screen(self, events: Iterator[Event]) -> Iterator[Event]:
        """Return what guardrails leave of an answer, where they look at answers."""
        if self.guard is None:
            return events
        if self.guard.compiled.scan_output:
            events = ResponseGuard(self.guard, self.chat.answers, whole=not self.chat.stream).screen(events)
        return outside_guard.screen_answer(self.guard, events) if self.guard.compiled.outside else events

    def _complete(self) -> Summary:
        """Cache and record an answer that came to its end. Raises ApiError where it lacks the requested result."""
        missing = TASKS[self.chat.task].find_missing_result(self.meter.images, self.transcript.finish)
        if missing is not None:
            raise missing
        if self.cache is None:
            return self.recorder.complete(cached=None)
        self.cache.store(self.attempts.latest_candidate.model_id, self.meter.answer_bytes)
        return self.recorder.complete(cached=self.cache.hit, kept_inputs=self.cache.kept_inputs)
