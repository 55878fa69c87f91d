"""Provider call: writes the request, sends it, and reads the answer, held back until its first content.

An answer that comes at once is read after its job, where the provider works in jobs, and gets its images fetched.
Answers are bounded in bytes, in bytes of an event of a stream, and in JSON values.
`failover` decides what follows a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from apps.catalog.offers import Offer
from apps.gateway.access.credentials import CREDITS
from apps.gateway.canonical.chat import Chat, DroppedField, Target
from apps.gateway.canonical.events import Event, Failed, ReasoningDelta, Waiting, is_content
from apps.gateway.canonical.hosted_tools import DEFAULT_CALLS
from apps.gateway.canonical.service_tier import USUAL
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.dialect_facts import facts_of
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.adapting.emulated_tools import emulate_tools
from apps.gateway.dialects.adapting.thought_signatures import (
    add_signature_owner,
    client_signature_format,
    remove_signature_owner,
)
from apps.gateway.dialects.adapting.undo_rewrites import undo_rewrites
from apps.gateway.dialects.adapting.unsupported_fields import client_name_of, note_dropped
from apps.gateway.failures import UpstreamFailure, failure_from_error
from apps.gateway.framing import LONG, BrokenFrames, frames_of
from apps.gateway.parallel_calls import parallel_chats
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.preferences import strict_refusal
from apps.gateway.tasks import CallPart, task_of
from apps.gateway.token_estimate import estimate_prompt_tokens
from apps.gateway.tracing.request_trace import AttemptSpan
from apps.gateway.upstream.fan_out import check_fan_out, fan_out
from apps.gateway.upstream.http_response import Timeouts, default_timeouts, timeouts_within
from apps.gateway.upstream.image_calls import make_images
from apps.gateway.upstream.jobs import check_made, follow_job
from apps.gateway.upstream.json_repair import JsonRepair
from apps.gateway.upstream.open_exchange import (
    NO_HEADERS,
    OpenExchange,
    ProviderRequest,
    ProviderResponse,
    open_exchange,
)
from apps.gateway.upstream.remote_images import fetch_images
from apps.gateway.upstream.remote_media import RemoteMedia
from apps.gateway.upstream.split_calls import check_results, join_parts
from apps.gateway.upstream.thought_signature_cache import ThoughtSignatureCache
from apps.kernel.concurrency.native_thread_pool import LARGE, offload
from apps.kernel.json_bounds import Bounds, OutOfBounds, check


class ProviderCall(msgspec.Struct, eq=False):
    """One call of one candidate; its times are monotonic. `first_byte_timeout`, in seconds, shortens the usual one."""

    chat: Chat
    candidate: Candidate
    client_disconnect: ClientDisconnect
    media: RemoteMedia
    # Whether what the provider cannot take is a reason not to ask it.
    strict: bool = False
    thought_signatures: ThoughtSignatureCache | None = None
    first_byte_timeout: float | None = None
    # The deployments that the request has passed (`loop_detection.py`).
    cdn_loop: str = ""
    # The tokens that each answer may have for its hold, None where no further limit is needed.
    token_limit: int | None = None
    # Whether it goes over a connection of its own.
    new_connection: bool = False
    # About how many tokens the prompt has, and the seconds that the client gives the call, None where it does not say.
    prompt_tokens: int = 0
    timeout: float | None = None
    # Bytes of the client's body, and the callback for those of a large answer.
    size: int = 0
    hold_answer: Callable[[int], object] | None = None
    part: CallPart | None = None
    # Calls of the provider that were made at once.
    calls: int = 1
    started_at: float = msgspec.field(default_factory=time.monotonic)
    first_content_at: float | None = None
    status: int | None = None
    bytes_received: int = 0
    # Fields left out of the request.
    dropped_fields: list[DroppedField] = []
    # Fields set that the client did not send.
    changed_fields: list[DroppedField] = []
    json_repair: JsonRepair | None = None
    # Where the request is traced: the attempt, and what tells the provider of it.
    span: AttemptSpan | None = None
    trace_headers: Mapping[str, str] = NO_HEADERS

    def __repr__(self) -> str:
        """Show the candidate, never a credential."""
        return f"ProviderCall({self.candidate.mapping})"

    @property
    def timeouts(self) -> Timeouts:
        """The seconds that it may take."""
        return timeouts_within(self.first_byte_timeout, self.timeout)

    @property
    def has_content(self) -> bool:
        """Whether content has come: from then on there is no failover."""
        return self.first_content_at is not None

    def events(self) -> Iterator[Event]:
        """Return `Waiting` while the provider is silent, then its events from the first content on, held ones first.

        They, or this, raise UpstreamFailure, InvalidRequest for what the provider's format cannot say (it was not
        called then), and ClientGone.
        """
        if self.chat.answers > 1 and (chats := parallel_chats(self.chat, self.candidate.offer)):
            return self._parallel_answers(chats)
        task = task_of(self.chat)
        dialect = task.find_dialect(self.chat, self.candidate.offer)
        if dialect is None:
            raise UpstreamFailure("client_error", f"the wire format of {self.candidate.provider_id} is not spoken here")
        if task.split is not None and (parts := task.split(self.chat, self.candidate.offer)):
            if self.chat.image_request is not None:
                return make_images(self, [replace(self, chat=part.chat, calls=1) for part in parts], parts)
            if len(parts) > 1:
                return self._answer_in_parts(parts, dialect)
            self.part = parts[0]
            self.chat = self.part.chat
        target = target_of(self.candidate)
        answer = self._answer(dialect, target)
        if self.chat.response_format is None:
            return answer
        self.json_repair = JsonRepair(self.chat, target, default_timeouts().tick)
        return self.json_repair.repair_events(answer)

    def _parallel_answers(self, chats: list[Chat]) -> Iterator[Event]:
        """Yield the answers of several calls at once, of a provider that gives one at a time, or to several prompts."""
        is_same = chats[0].messages is self.chat.messages
        read = [self.prompt_tokens if is_same else estimate_prompt_tokens(chat) for chat in chats]
        check_fan_out(len(chats), self.candidate.offer, sum(read), "n" if is_same else "prompt", self.chat.service_tier)
        branches = [replace(self, chat=chat, prompt_tokens=tokens) for chat, tokens in zip(chats, read, strict=True)]
        runs, tick = [branch.events for branch in branches], default_timeouts().tick
        answers = fan_out(runs, read, chats[0].n or 1, self.client_disconnect, tick)
        try:
            for event in answers:
                if not self.has_content and type(event) is not Waiting:
                    # Each was sent as much, and each has begun to answer.
                    self.dropped_fields, self.changed_fields = branches[0].dropped_fields, branches[0].changed_fields
                    self.status, self.calls = branches[0].status, len(chats)
                    self.first_content_at = time.monotonic()
                yield event
        finally:
            self.bytes_received += sum(branch.bytes_received for branch in branches)
            repairs = [branch.json_repair for branch in branches if branch.json_repair is not None]
            self.json_repair = next((repair for repair in repairs if repair.repaired), None)

    def _answer_in_parts(self, parts: list[CallPart], dialect: ProviderDialect) -> Iterator[Event]:
        """Yield the values that several calls give at once, joined in order."""
        branches = [replace(self, chat=part.chat, part=part) for part in parts]
        calls = [partial(branch._answer, dialect, target_of(self.candidate)) for branch in branches]
        try:
            for event in join_parts(calls, parts, self.client_disconnect, default_timeouts().tick):
                if not self.has_content and type(event) is not Waiting:
                    self.dropped_fields, self.changed_fields = branches[0].dropped_fields, branches[0].changed_fields
                    self.status, self.first_content_at = branches[0].status, time.monotonic()
                yield event
        finally:
            self.bytes_received += sum(branch.bytes_received for branch in branches)

    def _answer(self, dialect: ProviderDialect, target: Target) -> Iterator[Event]:
        """Return what the provider answers, as `events` does; traced where the request is."""
        answer = self._call_once(dialect, target)
        return answer if self.span is None else self.span.traced(self, answer)

    def _call_once(self, dialect: ProviderDialect, target: Target) -> Iterator[Event]:
        """Write the request, send it, and yield the answer, held back until its first content."""
        opened: OpenExchange | None = None
        try:
            request = self._write(dialect, target)
            opened = yield from open_exchange(
                self.candidate,
                request,
                self.timeouts,
                self.client_disconnect,
                cdn_loop=self.cdn_loop,
                new_connection=self.new_connection,
                trace_headers=self.trace_headers,
            )
            response = opened.response
            self.status = response.status
            begun = self.has_content
            held: list[Event] = []
            events = self._events(request, opened)
            for event in undo_rewrites(events, target) if target.has_rewrites else events:
                if type(event) is Failed:
                    raise failure_from_error(event.error)
                if type(event) is ReasoningDelta:
                    event = add_signature_owner(event, self.candidate.provider_id)
                if begun or type(event) is Waiting:
                    yield event
                else:
                    held.append(event)
                    if is_content(event):
                        begun = True
                        self.first_content_at = time.monotonic()
                        yield from held
            if not begun:
                self.first_content_at = time.monotonic()
                yield from held
        except UpstreamFailure as failure:
            if opened is None:
                self.status = failure.status
            else:
                opened.redact(failure)
            raise
        finally:
            if opened is not None:
                self.bytes_received += opened.response.bytes_received
                opened.response.close()

    def _write(self, dialect: ProviderDialect, target: Target) -> ProviderRequest:
        """Return the request in the provider's format. Raises InvalidRequest for fields that the format lacks."""
        asked = self._at_usual_tier(self._without_reasoning_off(self._within_limits(target)))
        adapted = task_of(self.chat).adapt_request(asked, target)
        chat = self._with_media_and_thinking(adapted, dialect, target)
        body = offload(self.size, lambda: dialect.write_request(chat, target))
        self._take_dropped_fields(target)
        return ProviderRequest(dialect, chat, target, body, lambda base_url: dialect.url_of(base_url, chat, target))

    def _with_media_and_thinking(self, chat: Chat, dialect: ProviderDialect, target: Target) -> Chat:
        """Return the chat with what the target needs inside of it: files in place of addresses, its thinking back.

        Raises InvalidRequest that names a part whose file cannot be fetched.
        """
        with self.client_disconnect.raise_while_waiting():
            chat = self.media.inline(chat, dialect, target.facts)
        provider_id = self.candidate.provider_id
        if self.thought_signatures is not None:
            chat = self.thought_signatures.restore_thinking(
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
        chat, most = self.chat, target.max_output
        if most is not None and chat.max_tokens is not None and chat.max_tokens > most:
            note_dropped(chat, target, "max_tokens", f"this model writes at most {most} tokens; that is the limit now")
            chat = replace(chat, max_tokens=most)
        if self.token_limit is not None and (chat.max_tokens is None or chat.max_tokens > self.token_limit):
            words = f"the remaining balance covers an answer of {self.token_limit} tokens; that is the limit now"
            self.changed_fields = [DroppedField(client_name_of(chat, "max_tokens"), words)]
            chat = replace(chat, max_tokens=self.token_limit)
        return chat

    def _at_usual_tier(self, chat: Chat) -> Chat:
        """Return the chat with the usual tier of service where credits pay and it names none: the setting of the
        gateway's account at the provider must not decide what a client pays."""
        offer = self.candidate.offer
        if chat.service_tier is not None or not (offer.prices.service_tiers and offer.facts.get("tier_by_account")):
            return chat
        if self.candidate.credential.mode != CREDITS or self.candidate.batch_share is not None:
            return chat
        return replace(chat, service_tier=USUAL)

    def _without_reasoning_off(self, chat: Chat) -> Chat:
        """Return the chat without the wish that the model may not think, where it does not think anyway."""
        asked = chat.reasoning
        if asked is None or asked.effort != "none" or asked.max_tokens is not None or self.candidate.offer.reasoning:
            return chat
        return replace(chat, reasoning=None)

    def _take_dropped_fields(self, target: Target) -> None:
        """Keep the fields dropped for this provider. Raises InvalidRequest when the client wants all or nothing."""
        self.dropped_fields = target.dropped_fields
        if self.strict and target.dropped_fields:
            raise strict_refusal(target.dropped_fields)

    def _events(self, request: ProviderRequest, opened: OpenExchange) -> Iterator[Event]:
        """Yield what the provider says; every wait for it ends when the client leaves."""
        bounds = bounds_of(self.chat, self.candidate.offer)
        if not request.chat.stream:
            yield from _read_whole_answer(self, request, opened, bounds)
            return
        pieces, look = self._interruptible(opened.response), partial(check_event, bounds=bounds)
        try:
            yield from request.dialect.read_events(frames_of(request.dialect.framing)(pieces, bounds.event, look))
        except BrokenFrames as error:
            raise UpstreamFailure("network", str(error)) from error

    def _interruptible(self, response: ProviderResponse) -> Iterator[bytes]:
        pieces = response.iterate_body()
        while True:
            with self.client_disconnect.raise_while_waiting():
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


def _read_whole_answer(
    call: ProviderCall, request: ProviderRequest, opened: OpenExchange, bounds: ResponseBounds
) -> Iterator[Event]:
    """Yield the events of an answer that is not streamed. Raises UpstreamFailure, and ClientGone when the client
    leaves."""
    dialect, leaving, jobs = request.dialect, call.client_disconnect, request.dialect.jobs
    with leaving.raise_while_waiting():
        body = opened.response.read(bounds.reply, call.hold_answer)
    if jobs is not None:
        # Its connection is of use to others while the job goes on.
        opened.response.close()
        until = call.started_at + call.timeouts.total
        body = yield from follow_job(
            jobs, body, request, opened, call.candidate, call.timeouts, until, leaving, call.cdn_loop
        )
    with leaving.raise_while_waiting():
        events = offload(len(body), lambda: read_within(body, bounds, dialect.read_reply))
    if call.part is not None:
        events = check_results(events, call.part)
    if jobs is not None:
        events = check_made(jobs, events, request, opened)
    yield from fetch_images(events, leaving, call.media.owner) if task_of(call.chat).fetches_images else events


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
    if task_of(chat).may_bring_media(chat, offer):
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
