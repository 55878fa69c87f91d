"""Answer meter: counts what an answer uses while it streams, and extends its hold before more of it is passed on.

The provider got the limit that the hold covers (`worst_case`). The meter holds more for tokens past that limit as far
as possible; where no more can be held, the answer ends as one that reached its limit. It reads the provider's events
directly, before a guardrail holds text back. Text that the provider has not counted yet is estimated: a count that came
before the text (Anthropic's formats begin with one) is not final.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from decimal import Decimal
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace

from apps.billing.pricing import price_storage
from apps.billing.reservations import ExtensionOutcome, Hold
from apps.gateway.access.policy import Policy
from apps.gateway.admission import admit
from apps.gateway.admission.offline_accounts import OfflineHold
from apps.gateway.admission.worst_case import SpendingAllowance, Tariff
from apps.gateway.canonical.chat import DroppedField, asked_region, asked_service_tier
from apps.gateway.canonical.events import (
    AudioBytes,
    AudioDelta,
    Event,
    Finished,
    ImageMade,
    OpaqueDelta,
    ReasoningDelta,
    RefusalDelta,
    ResultsGiven,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from apps.gateway.canonical.hosted_tools import CODE_EXECUTION, runs_code_free
from apps.gateway.dialects.adapting.unsupported_fields import client_name_of
from apps.gateway.metrics import UNRESERVED
from apps.gateway.tasks import TASKS
from apps.gateway.token_estimate import WEIGHT_OF_BYTE, WEIGHT_OF_TOKEN, cut_to_weight, token_weight, tokens_from_weight
from apps.gateway.upstream.failover import Failover
from apps.kernel.errors import ApiError
from apps.kernel.money import NANO, ZERO
from apps.kernel.usage import ModelPass, Usage

log = structlog.get_logger(__name__)

# The least by which a hold grows, in tokens: where not even these are covered, the answer ends.
LEAST_STEP = 64
# Characters of base64, and bytes, that a token of audio comes to: a twentieth of a second, compressed.
_SOUND, _SOUND_BYTES = 1_600, 1_200
# Weight that is never reached: no further hold is needed.
_ENDLESS = sys.maxsize
# Where the text of an event stands that can be cut anywhere.
_TEXTS = {TextDelta: "text", ReasoningDelta: "text", RefusalDelta: "text", ToolCallDelta: "arguments"}


class AnswerMeter(msgspec.Struct, eq=False):
    """One answer's: `written` is what the model wrote so far, as `token_weight` weighs it, whether counted or not."""

    attempts: Failover
    policy: Policy
    prompt_estimate: int
    # The hold, None for a request without one, and how much the answer may write for it.
    hold: Hold | OfflineHold | None = None
    allowance: SpendingAllowance | None = None
    written: int = 0
    images: int = 0
    _usage: Usage | None = None
    # The weight written when the latest counts came, and whether the answer came to its own end.
    _counted: int = 0
    _complete: bool = False
    # Whether the text needs a hold, the weight up to which it has one, and at which prices.
    _watching: bool = False
    _covered: int = _ENDLESS
    _tariff: Tariff | None = None
    # Tokens that were passed on although the store could not be asked.
    _trusted: int = 0

    @property
    def answer_bytes(self) -> int:
        """About how many bytes the answer has so far, also of one that came compressed or from the cache."""
        return max(self.attempts.bytes_received, self.written // WEIGHT_OF_BYTE)

    def count(self, events: Iterator[Event]) -> Iterator[Event]:
        """Yield an answer's events, for which nothing has to be held."""
        self._complete = False
        for event in events:
            note = _NOTES.get(type(event))
            if note is not None:
                note(self, event)
            yield event
        self._complete = True

    def count_within_hold(self, events: Iterator[Event]) -> Iterator[Event]:
        """Return an answer's events as far as they are held for, then the end that a full answer would have."""
        if self.allowance is None or not self.attempts.chat.stream:
            return self.count(events)
        self._watching = True
        return self._count_and_hold(events)

    def _count_and_hold(self, events: Iterator[Event]) -> Iterator[Event]:
        # The answering provider and its price are known once something is written.
        self._complete, self._covered = False, 0
        for event in events:
            note = _NOTES.get(type(event))
            if note is not None:
                before = self.written
                note(self, event)
                if self.written > self._covered and not self._is_covered():
                    yield from self._cut(event, before)
                    if isinstance(events, Generator):
                        # Hangs up on the provider.
                        events.close()
                    for choice in range(self.attempts.chat.answers):
                        yield Finished(choice=choice, reason="length")
                    return
            yield event
        self._complete = True

    @property
    def used(self) -> Usage:
        """The usage: the provider's counts, plus an estimate (marked as one) of everything written since.

        The counts of an answer that came to its own end are final, unless they all came before its text.
        """
        if self._usage is None:
            chat, prices = self.attempts.chat, self.attempts.latest_candidate.offer.prices
            counts = (self.prompt_estimate, tokens_from_weight(self.written), self.images)
            return self._as_asked(TASKS[chat.task].usage_without_counts(chat, *counts, prices))
        usage = self._usage
        if self.images > usage.images:
            usage = replace(usage, images=self.images)
        if usage.estimated:
            usage = self._with_estimates(usage)
        if self.written == self._counted or (self._complete and self._counted):
            return usage
        since = tokens_from_weight(self.written - self._counted)
        if usage.reported_cost is not None:
            # It was what had been written before.
            usage = replace(usage, reported_cost=None)
        if usage.passes:
            usage = replace(usage, passes=(*usage.passes, ModelPass(usage=Usage(output=since))))
        if self._counted:
            return replace(usage, output=usage.output + since, estimated=True)
        # Counted before anything was written: only the prompt's counts are final.
        return replace(usage, output=since, reasoning=0, image_output=0, audio_output=0, estimated=True)

    def _with_estimates(self, usage: Usage) -> Usage:
        """Return counts of which one is none with an estimate in its place: of the prompt, or of all that was written
        when they came. A count of something else that is none stays 0."""
        if usage.passes:
            return usage
        if not usage.prompt_tokens:
            usage = replace(usage, input=self.prompt_estimate)
        return usage if usage.completion_tokens else replace(usage, output=tokens_from_weight(self._counted))

    def _as_asked(self, usage: Usage) -> Usage:
        """Return the counts, served at the tier and in the region that were asked for where the provider told none.

        A cost that the provider states counts where its data file says so; code that was run counts unless it is free.
        """
        chat = self.attempts.chat
        if usage.reported_cost is not None and not self.attempts.latest_candidate.offer.facts.get("states_cost"):
            usage = replace(usage, reported_cost=None)
        if usage.tool_calls is not None and CODE_EXECUTION in usage.tool_calls and runs_code_free(chat):
            others = {name: count for name, count in usage.tool_calls.items() if name != CODE_EXECUTION}
            usage = replace(usage, tool_calls=others or None)
        if chat.service_tier is None and chat.extra is None:
            return usage
        tier, region = usage.service_tier or asked_service_tier(chat), usage.region or asked_region(chat)
        if (tier, region) == (usage.service_tier, usage.region):
            return usage
        return replace(usage, service_tier=tier, region=region)

    # --- taking note

    def _note_text(self, event: TextDelta | ReasoningDelta | RefusalDelta) -> None:
        self.written += token_weight(event.text)

    def _note_call(self, event: ToolCallStarted) -> None:
        self.written += token_weight(event.name)

    def _note_arguments(self, event: ToolCallDelta) -> None:
        self.written += token_weight(event.arguments)

    def _note_audio(self, event: AudioDelta) -> None:
        self.written += token_weight(event.transcript) + len(event.data) * WEIGHT_OF_TOKEN // _SOUND

    def _note_bytes(self, event: AudioBytes) -> None:
        self.written += max(len(event.data) * WEIGHT_OF_TOKEN // _SOUND_BYTES, 1)

    def _note_own(self, event: OpaqueDelta) -> None:
        """Weigh a provider's own blocks as they are written: what it says of the answer as a whole is not written."""
        if event.of == "stream" and isinstance(delta := event.data.get("delta"), dict):
            self.written += token_weight(str(delta.get("partial_json") or ""))

    def _note_image(self, event: ImageMade) -> None:
        self.images += 1

    def _note_results(self, event: ResultsGiven) -> None:
        self.written += len(event.values)

    def _note_usage(self, event: UsageReported) -> None:
        if not self.written and not event.usage.total_tokens and event.usage.plain:
            # Nothing was counted before anything was written, which says nothing of what comes.
            return
        self._usage, self._counted = self._as_asked(event.usage), self.written
        if self._watching:
            self._hold_for(self._usage)

    # --- holding more

    def _tariff_now(self) -> Tariff | None:
        """Return the answering provider's prices, None where no further hold is needed."""
        if self._tariff is None and self._watching and self.allowance is not None:
            self._tariff = self.allowance.tariff_of(self.attempts.latest_candidate)
            self._cover()
        return self._tariff

    def _hold_for(self, usage: Usage) -> None:
        """Hold more at once where the counts cost more than was thought; what cannot be held ends the answer later."""
        tariff, early = self._tariff_now(), not self.written
        if tariff is None or (early and usage.prompt_tokens <= self.prompt_estimate):
            return
        if early and self.allowance is not None:
            # A longer prompt may have other prices.
            tariff = self._tariff = self.allowance.tariff_of(self.attempts.latest_candidate, usage.prompt_tokens)
        cost = self.attempts.latest_candidate.cost_of(usage).total + price_storage(
            usage.total_tokens, self.policy.retention
        )
        if tariff.is_visible:
            # From here on the provider's counts go before the estimate.
            self._tariff = replace(tariff, base=cost - tariff.per_token * tokens_from_weight(self.written))
            self._cover()
        # The rest of the answer is held already, except for the prompt's cost beyond the estimate.
        needed = cost + (tariff.per_token * self._limit(tariff) if early else ZERO)
        missing = needed - self._held
        if missing > 0 and not self._extend(missing, missing, missing, 0) and early:
            self._tariff = replace(tariff, base=cost, is_visible=True)
        self._cover()

    def _is_covered(self) -> bool:
        """Return whether all that was written is held for, after holding more where that can be."""
        while (tariff := self._tariff_now()) is not None and self.written > self._covered:
            covered, limit = tariff.tokens_for(self._held) + self._trusted, self._limit(tariff)
            more = covered if covered * 2 <= limit else max(limit - covered, covered // 4)
            step = max(tokens_from_weight(self.written) - covered, more, LEAST_STEP) + self._trusted
            want, least = tariff.per_token * step, tariff.per_token * LEAST_STEP
            if not self._extend(want, want, least, step):
                return False
            self._cover()
        return True

    def _extend(self, want: Decimal, part: Decimal, least: Decimal, tokens: int) -> bool:
        """Hold more, in USD, for so many tokens; return False where the balance does not cover the least of it.

        Where the balance is unknown, the answer goes on, and the next check comes after as many tokens.
        """
        if self.hold is None:
            return True
        try:
            extended = admit.extend(self.policy, self.hold, want, part, least)
        except ApiError as error:
            log.warning("answer_meter.unreserved", error=type(error).__name__)
            UNRESERVED.inc()
            self._trusted += tokens
            return True
        self.hold = extended.hold
        if extended.growth is ExtensionOutcome.HELD:
            self._trusted = 0
        elif extended.growth is ExtensionOutcome.GONE:
            # Taken for lost and released: nothing can be added to it any more.
            log.warning("answer_meter.unreserved", error="gone")
            UNRESERVED.inc()
            self._watching, self._tariff, self._covered = False, None, _ENDLESS
        return extended.growth is not ExtensionOutcome.SHORT

    def _cover(self) -> None:
        """Compute how much may be written for the hold."""
        tariff = self._tariff
        if tariff is None or not tariff.is_visible:
            self._covered = _ENDLESS
            return
        tokens = max(tariff.tokens_for(self._held) + self._trusted, 0)
        if self.attempts.chat.max_tokens is not None and tokens >= tariff.max_tokens:
            # The provider has the limit too: an estimate may be above its count.
            tokens += tariff.max_tokens // 2
        self._covered = tokens * WEIGHT_OF_TOKEN if tariff.per_token else _ENDLESS

    @property
    def _held(self) -> Decimal:
        """The hold of this answer, in USD."""
        if self.hold is None or self.allowance is None:
            return ZERO
        return Decimal(self.hold.amount_nanos) / NANO - self.allowance.hedge_cost

    def _limit(self, tariff: Tariff) -> int:
        """Return the token limit that was sent to its provider, or the model's own."""
        current, answers = self.attempts.current_call, self.attempts.chat.answers
        limit = current.inputs.token_limit if current is not None else None
        return tariff.max_tokens if limit is None else min(limit * answers, tariff.max_tokens)

    # --- ending

    def _cut(self, event: Event, before: int) -> Iterator[Event]:
        """Yield what of the event is held for, and tell the client why there is no more."""
        name = _TEXTS.get(type(event))
        text = "" if name is None else cut_to_weight(getattr(event, name), self._covered - before)
        self.written = before + token_weight(text)
        self.attempts.changed_fields = [
            *self.attempts.changed_fields,
            DroppedField(
                client_name_of(self.attempts.chat, "max_tokens"),
                f"the remaining balance or limit covers no more than about {tokens_from_weight(self.written)} tokens",
            ),
        ]
        if text and name is not None:
            sealed = {"signature": None, "data": None} if type(event) is ReasoningDelta else {}
            yield replace(event, **{name: text}, **sealed)


# Not by `match`, which asks one kind after the other; a struct's takes four times as long to say no.
_NOTES: dict[type[Event], Callable[[AnswerMeter, Any], None]] = {
    TextDelta: AnswerMeter._note_text,
    ReasoningDelta: AnswerMeter._note_text,
    RefusalDelta: AnswerMeter._note_text,
    ToolCallDelta: AnswerMeter._note_arguments,
    ToolCallStarted: AnswerMeter._note_call,
    AudioDelta: AnswerMeter._note_audio,
    AudioBytes: AnswerMeter._note_bytes,
    OpaqueDelta: AnswerMeter._note_own,
    ImageMade: AnswerMeter._note_image,
    ResultsGiven: AnswerMeter._note_results,
    UsageReported: AnswerMeter._note_usage,
}
