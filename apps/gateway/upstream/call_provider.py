"""Provider call: writes the request, sends it, and reads the answer, held back until its first content.

An answer that comes at once is read after its job, where the provider works in jobs, and gets its images fetched.
Answers are bounded in bytes, in bytes of an event of a stream, and in JSON values.
`failover` decides what follows a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from apps.catalog.offers import Offer
from apps.gateway.access.credentials import CREDITS
from apps.gateway.canonical.chat import USUAL_TIER, Chat, DroppedField, Target
from apps.gateway.canonical.events import Event, Failed, ReasoningDelta, Waiting, is_content
from apps.gateway.canonical.hosted_tools import DEFAULT_CALLS
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.adapting.emulated_tools import emulate_tools
from apps.gateway.dialects.adapting.thinking import (
    add_signature_owner,
    client_signature_format,
    remove_signature_owner,
)
from apps.gateway.dialects.adapting.undo_rewrites import undo_rewrites
from apps.gateway.dialects.adapting.unsupported_fields import client_name_of, note_dropped
from apps.gateway.failures import UpstreamFailure, failure_from_error
from apps.gateway.framing import FRAMINGS, LONG, BrokenFrames
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.preferences import strict_refusal
from apps.gateway.routing.replica_choice import count_in_flight
from apps.gateway.tasks import TASKS, CallPart, facts_of
from apps.gateway.token_estimate import estimate_prompt_tokens
from apps.gateway.upstream.batch_exchange import exchange_of
from apps.gateway.upstream.http_response import default_timeouts
from apps.gateway.upstream.jobs import check_made, follow_job
from apps.gateway.upstream.json_repair import JsonRepair
from apps.gateway.upstream.open_exchange import (
    NO_HEADERS,
    OpenExchange,
    ProviderCallInputs,
    ProviderCallOutcome,
    ProviderRequest,
    ProviderResponse,
    open_exchange,
)
from apps.gateway.upstream.parallel_calls import (
    check_fan_out,
    check_results,
    fan_out,
    join_parts,
    make_images,
    parallel_chats,
)
from apps.gateway.upstream.remote_media import MAY_HAVE_ADDRESSES, fetch_images
from apps.kernel.concurrency.native_thread_pool import LARGE, offload
from apps.kernel.json_bounds import Bounds, OutOfBounds, check


class ProviderCall(msgspec.Struct, eq=False):
    """One call of one candidate; it began at `started_at` on the monotonic clock."""

    inputs: ProviderCallInputs
    outcome: ProviderCallOutcome = msgspec.field(default_factory=ProviderCallOutcome)
    started_at: float = msgspec.field(default_factory=time.monotonic)
    # The headers that tell the provider of the trace, where the request is traced.
    trace_headers: Mapping[str, str] = NO_HEADERS

    def __repr__(self) -> str:
        """Show the candidate, never a credential nor content."""
        return f"ProviderCall({self.inputs.candidate.mapping})"

    @property
    def status(self) -> int | None:
        """The HTTP status of the provider's answer."""
        return self.outcome.status

    def branch(self, **inputs: Any) -> ProviderCall:
        """Return a further call for the same request, with other inputs, of which nothing has come yet."""
        return ProviderCall(replace(self.inputs, **inputs), started_at=self.started_at)

    def events(self) -> Generator[Event, None, None]:
        """Return `Waiting` while the provider is silent, then its events from the first content on, held ones first.

        They, or this, raise UpstreamFailure, InvalidRequest for what the provider's format cannot say (it was not
        called then), and ClientGone.
        """
        chat, candidate = self.inputs.chat, self.inputs.candidate
        if chat.answers > 1 and (chats := parallel_chats(chat, candidate.offer)):
            return self._parallel_answers(chats)
        task = TASKS[chat.task]
        dialect = task.find_dialect(chat, candidate.offer)
        if dialect is None:
            raise UpstreamFailure("client_error", f"the wire format of {candidate.provider_id} is not spoken here")
        if task.split is not None and (parts := task.split(chat, candidate.offer)):
            if chat.image_request is not None:
                return make_images(self, [self.branch(chat=part.chat) for part in parts], parts)
            if len(parts) > 1:
                return self._answer_in_parts(parts, dialect)
            chat = parts[0].chat
            self.inputs = replace(self.inputs, chat=chat, part=parts[0])
        target = target_of(candidate)
        answer = self._answer(dialect, target)
        if chat.response_format is None:
            return answer
        self.outcome.json_repair = JsonRepair(chat, target, default_timeouts().tick)
        return self.outcome.json_repair.repair_events(answer)

    def _parallel_answers(self, chats: list[Chat]) -> Generator[Event, None, None]:
        """Yield the answers of several calls at once, of a provider that gives one at a time, or to several prompts."""
        inputs = self.inputs
        is_same = chats[0].messages is inputs.chat.messages
        read = [inputs.prompt_tokens if is_same else estimate_prompt_tokens(chat) for chat in chats]
        check_fan_out(
            len(chats), inputs.candidate.offer, sum(read), "n" if is_same else "prompt", inputs.chat.service_tier
        )
        branches = [self.branch(chat=chat, prompt_tokens=tokens) for chat, tokens in zip(chats, read, strict=True)]
        runs, tick = [branch.events for branch in branches], default_timeouts().tick
        answers = fan_out(runs, read, chats[0].n or 1, inputs.client_disconnect, tick)
        try:
            for event in answers:
                if not self.outcome.has_content and type(event) is not Waiting:
                    self.outcome.begin_as(branches[0].outcome, len(chats))
                yield event
        finally:
            outcomes = [branch.outcome for branch in branches]
            self.outcome.bytes_received += sum(one.bytes_received for one in outcomes)
            repairs = [one.json_repair for one in outcomes if one.json_repair is not None]
            self.outcome.json_repair = next((repair for repair in repairs if repair.repaired), None)

    def _answer_in_parts(self, parts: list[CallPart], dialect: ProviderDialect) -> Generator[Event, None, None]:
        """Yield the values that several calls give at once, joined in order."""
        branches = [self.branch(chat=part.chat, part=part) for part in parts]
        calls = [partial(branch._answer, dialect, target_of(self.inputs.candidate)) for branch in branches]
        try:
            for event in join_parts(calls, parts, self.inputs.client_disconnect, default_timeouts().tick):
                if not self.outcome.has_content and type(event) is not Waiting:
                    self.outcome.begin_as(branches[0].outcome)
                yield event
        finally:
            self.outcome.bytes_received += sum(branch.outcome.bytes_received for branch in branches)

    def _answer(self, dialect: ProviderDialect, target: Target) -> Generator[Event, None, None]:
        """Return what the provider answers, as `events` does; traced where the request is."""
        answer = self._call_once(dialect, target)
        if self.inputs.candidate.credential.replica is not None:
            answer = count_in_flight(self.inputs.candidate, answer)
        return answer if self.inputs.span is None else self.inputs.span.traced(self, answer)

    def _call_once(self, dialect: ProviderDialect, target: Target) -> Generator[Event, None, None]:
        """Write the request, send it, and yield the answer, held back until its first content."""
        inputs, outcome = self.inputs, self.outcome
        opened: OpenExchange | None = None
        try:
            request = self._write(dialect, target)
            opened = yield from self._exchange(request)
            outcome.status, outcome.headers_at = opened.response.status, time.monotonic()
            if request.chat.stream:
                events: Iterable[Event] = self._streamed_events(request, opened.response)
            else:
                events = yield from self._whole_events(request, opened)
            begun = outcome.has_content
            held: list[Event] = []
            for event in undo_rewrites(events, target) if target.has_rewrites else events:
                if type(event) is Failed:
                    raise failure_from_error(event.error)
                if type(event) is ReasoningDelta:
                    event = add_signature_owner(event, inputs.candidate.provider_id)
                if begun or type(event) is Waiting:
                    yield event
                else:
                    held.append(event)
                    if is_content(event):
                        begun = True
                        outcome.first_content_at = time.monotonic()
                        yield from held
            if not begun:
                outcome.first_content_at = time.monotonic()
                yield from held
        except UpstreamFailure as failure:
            if opened is None:
                outcome.status = failure.status
            else:
                opened.redact(failure)
            raise
        finally:
            if opened is not None:
                outcome.bytes_received += opened.response.bytes_received
                opened.response.close()

    def _exchange(self, request: ProviderRequest) -> Generator[Event, None, OpenExchange]:
        """Return what `open_exchange` does: over HTTP, or by the batch API that the candidate is asked by."""
        inputs, by_batch = self.inputs, self.inputs.candidate.exchange
        return (open_exchange if by_batch is None else exchange_of(by_batch).open)(
            inputs.candidate,
            request,
            inputs.timeouts,
            inputs.client_disconnect,
            cdn_loop=inputs.cdn_loop,
            new_connection=inputs.new_connection,
            trace_headers=self.trace_headers,
            on_connect=self.outcome.note_connection,
        )

    def _write(self, dialect: ProviderDialect, target: Target) -> ProviderRequest:
        """Return the request in the provider's format. Raises InvalidRequest for fields that the format lacks, or that
        are left out of a request that may lack none."""
        chat = self._within_limits(target)
        if chat.reasoning is not None:
            chat = self._without_reasoning_off(chat)
        if self.inputs.candidate.offer.prices.service_tiers:
            chat = self._at_usual_tier(chat)
        chat = self._with_media_and_thinking(TASKS[chat.task].adapt_request(chat, target), dialect, target)
        body = offload(self.inputs.size, dialect.write_request, chat, target)
        self.outcome.dropped_fields = target.dropped_fields
        if self.inputs.strict and target.dropped_fields:
            raise strict_refusal(target.dropped_fields)
        return ProviderRequest(dialect, chat, target, body, partial(dialect.url_of, chat=chat, target=target))

    def _with_media_and_thinking(self, chat: Chat, dialect: ProviderDialect, target: Target) -> Chat:
        """Return the chat with what the target needs inside of it: files in place of addresses, its thinking back.

        Raises InvalidRequest that names a part whose file cannot be fetched.
        """
        inputs = self.inputs
        if not chat.kinds.isdisjoint(MAY_HAVE_ADDRESSES):
            with inputs.client_disconnect.raise_while_waiting():
                chat = inputs.media.inline(chat, dialect, target.facts)
        provider_id = inputs.candidate.provider_id
        if inputs.thought_signatures is not None:
            chat = inputs.thought_signatures.restore_thinking(
                chat, client_signature_format(dialect.signature_format(chat, target), provider_id)
            )
        if chat.is_plain:
            return chat
        return emulate_tools(remove_signature_owner(chat, provider_id, target), dialect, target)

    def _within_limits(self, target: Target) -> Chat:
        """Return the chat with a limit on its answer that the model can keep, and that the hold covers.

        A client's limit above the model's is reported as a dropped field, and so is a limit that the client did not
        set.
        """
        chat, most = self.inputs.chat, target.max_output
        limit = self.inputs.token_limit
        if most is not None and chat.max_tokens is not None and chat.max_tokens > most:
            note_dropped(chat, target, "max_tokens", f"this model writes at most {most} tokens; that is the limit now")
            chat = replace(chat, max_tokens=most)
        if limit is not None and (chat.max_tokens is None or chat.max_tokens > limit):
            words = f"the remaining balance or limit covers an answer of {limit} tokens; that is the limit now"
            self.outcome.changed_fields = [DroppedField(client_name_of(chat, "max_tokens"), words)]
            chat = replace(chat, max_tokens=limit)
        return chat

    def _at_usual_tier(self, chat: Chat) -> Chat:
        """Return the chat with the usual tier of service where credits pay and it names none: the setting of the
        gateway's account at the provider must not decide what a client pays."""
        offer = self.inputs.candidate.offer
        if chat.service_tier is not None or not (offer.prices.service_tiers and offer.facts.get("tier_by_account")):
            return chat
        if self.inputs.candidate.credential.mode != CREDITS or self.inputs.candidate.batch_share is not None:
            return chat
        return replace(chat, service_tier=USUAL_TIER)

    def _without_reasoning_off(self, chat: Chat) -> Chat:
        """Return the chat without the wish that the model may not think, where it does not think anyway."""
        asked = chat.reasoning
        if (
            asked is None
            or asked.effort != "none"
            or asked.max_tokens is not None
            or self.inputs.candidate.offer.reasoning
        ):
            return chat
        return replace(chat, reasoning=None)

    def _streamed_events(self, request: ProviderRequest, response: ProviderResponse) -> Iterator[Event]:
        """Return the events of a stream. They raise UpstreamFailure, and ClientGone when the client leaves."""
        bounds = bounds_of(self.inputs.chat, self.inputs.candidate.offer)
        frames = FRAMINGS[request.dialect.framing]
        look = partial(check_event, bounds=bounds)
        return request.dialect.read_events(frames(self._interruptible(response), bounds.event, look))

    def _whole_events(self, request: ProviderRequest, opened: OpenExchange) -> Generator[Event, None, Iterable[Event]]:
        """Return the events of an answer that is not streamed; yields `Waiting` while a job makes it.

        Raises UpstreamFailure, and ClientGone when the client leaves; so do the events.
        """
        inputs, dialect, jobs = self.inputs, request.dialect, request.dialect.jobs
        leaving, bounds = inputs.client_disconnect, bounds_of(inputs.chat, inputs.candidate.offer)
        waiting = leaving.raise_while_waiting()
        with waiting:
            body = opened.response.read(bounds.reply, inputs.hold_answer)
        if jobs is not None:
            # Its connection is of use to others while the job goes on.
            opened.response.close()
            until = self.started_at + inputs.timeouts.total
            body = yield from follow_job(
                jobs, body, request, opened, inputs.candidate, inputs.timeouts, until, leaving, inputs.cdn_loop
            )
        with waiting:
            events = offload(len(body), read_within, body, bounds, dialect.read_reply)
        if inputs.part is not None:
            events = check_results(events, inputs.part)
        if jobs is not None:
            events = check_made(jobs, events, request, opened)
        return fetch_images(events, leaving, inputs.media.owner) if TASKS[inputs.chat.task].fetches_images else events

    def _interruptible(self, response: ProviderResponse) -> Iterator[bytes]:
        pieces, leaving = response.iterate_body(), self.inputs.client_disconnect.raise_while_waiting()
        while True:
            with leaving:
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece


def target_of(candidate: Candidate) -> Target:
    """Return a candidate's facts for its dialect."""
    offer = candidate.offer
    return Target(
        model_name=candidate.model_name,
        facts=facts_of(offer),
        max_output=offer.max_output,
        max_searches=DEFAULT_CALLS if offer.prices.web_search and candidate.credential.mode == CREDITS else None,
    )


T = TypeVar("T")

_MIB: Final = 1024 * 1024
# Texts of several choices, with all that searches cite; and what comes with images, ten of four megapixels, or audio.
_REPLY, _REPLY_WITH_MEDIA = 32 * _MIB, 128 * _MIB
_EVENT, _EVENT_WITH_MEDIA = 16 * _MIB, 64 * _MIB
# Values of an answer; where the likeliest alternatives come with each, they are some 160 a token, and vectors of a
# batch have millions.
_VALUES, _MAX_VALUES = 200_000, 3_000_000
_DEPTH: Final = 256


class ResponseBounds(NamedTuple):
    """Bytes of a whole answer and of one event of a stream, and what JSON in them may hold."""

    reply: int
    event: int
    json: Bounds


def bounds_of(chat: Chat, offer: Offer) -> ResponseBounds:
    """Return how much an offer may answer to a chat."""
    bounds = _MANY_VALUES if chat.logprobs or chat.embedding is not None else _USUAL
    if TASKS[chat.task].may_bring_media(chat, offer):
        return bounds._replace(reply=_REPLY_WITH_MEDIA, event=_EVENT_WITH_MEDIA)
    return bounds


def read_within(body: bytes, bounds: ResponseBounds, read: Callable[[bytes], Iterable[T]]) -> Iterable[T]:
    """Return the values read from a whole answer, all at once for a large one. Raises UpstreamFailure."""
    if len(body) > LONG:
        try:
            check(body, bounds.json)
        except OutOfBounds as passed:
            raise UpstreamFailure("network", f"the answer {passed}") from None
    events = read(body)
    return events if len(body) < LARGE else list(events)


def check_event(event: bytes, bounds: ResponseBounds) -> None:
    """Raise BrokenFrames where an event of a stream holds too much."""
    try:
        check(event, bounds.json)
    except OutOfBounds as passed:
        raise BrokenFrames(f"an event of the stream {passed}") from None


_USUAL: Final = ResponseBounds(_REPLY, _EVENT, Bounds(_VALUES, _DEPTH, LONG, LONG))
_MANY_VALUES: Final = ResponseBounds(_REPLY_WITH_MEDIA, _EVENT, Bounds(_MAX_VALUES, _DEPTH, LONG, LONG))
