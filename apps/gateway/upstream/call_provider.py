"""Provider call: write the request, send it, and read the answer, held back until its first content.

Knows the steps of a call and how it can fail. Must never know what comes after a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from functools import partial

import msgspec
from msgspec.structs import replace

from apps.gateway.access.pinned_address import pinned_ip
from apps.gateway.access.schemes import SignableRequest, authorize, collect_secrets, fill_base_url
from apps.gateway.canonical.chat import Chat, Loss, Target
from apps.gateway.canonical.events import (
    Event,
    Failed,
    ImageMade,
    Logprobs,
    OpaqueDelta,
    ReasoningDelta,
    Started,
    UsageReported,
    Waiting,
)
from apps.gateway.client import loop_detection
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.dialects import Outbound, headers_of, seal_of, url_of
from apps.gateway.dialects.images import as_asked
from apps.gateway.dialects.signature_owner import owned, with_owner, without_owner
from apps.gateway.dialects.undo_rewrites import restored
from apps.gateway.failures import UpstreamFailure, error_type_for_status, failure_from_error, parse_retry_after
from apps.gateway.framing import BrokenFrames, frames_of
from apps.gateway.pictures import dialect_of
from apps.gateway.routing.candidates import Candidate
from apps.gateway.routing.dialect_facts import facts_of
from apps.gateway.upstream import connection_pool
from apps.gateway.upstream.http_response import Timeouts, UpstreamResponse
from apps.gateway.upstream.json_repair import JsonRepair
from apps.gateway.upstream.remote_file import MOST_OUTPUT_BYTES, UnfetchableError, fetch_picture
from apps.gateway.upstream.remote_media import RemoteMedia
from apps.gateway.upstream.response_bounds import bounds_of, check_event, read_within
from apps.gateway.upstream.thought_signature_cache import ThoughtSignatureCache
from apps.gateway.upstream.timeouts import default_timeouts
from apps.kernel.errors import InvalidRequest
from apps.kernel.offload import offload

_MAX_ERROR_BYTES = 256 * 1024


class ProviderCall(msgspec.Struct, eq=False):
    """One call of one candidate; its times are monotonic. `first_byte_timeout`, in seconds, shortens the usual one."""

    chat: Chat
    candidate: Candidate
    client_disconnect: ClientDisconnect
    # Whether what the provider cannot take is a reason not to ask it.
    strict: bool = False
    thought_signatures: ThoughtSignatureCache | None = None
    media: RemoteMedia = msgspec.field(default_factory=RemoteMedia)
    first_byte_timeout: float | None = None
    # The deployments that the request has passed (`loop_detection.py`).
    cdn_loop: str = ""
    # The most tokens that each answer may have for what is held, None where nothing more has to be said of it.
    token_limit: int | None = None
    # Whether it goes over a connection of its own.
    new_connection: bool = False
    # Bytes of the client's body, and who is told of those of a large answer.
    size: int = 0
    hold_answer: Callable[[int], object] | None = None
    started_at: float = msgspec.field(default_factory=time.monotonic)
    first_content_at: float | None = None
    status: int | None = None
    bytes_received: int = 0
    # What was left out of the request.
    losses: list[Loss] = []
    # What was set that the client did not ask for.
    notices: list[Loss] = []
    json_repair: JsonRepair | None = None
    # What was presented to the provider: the credential, and the headers made of it.
    _presented: tuple[str, dict[str, str]] = ("", {})

    def __repr__(self) -> str:
        """Show whom it asks, never what was presented."""
        return f"ProviderCall({self.candidate.mapping})"

    @property
    def has_content(self) -> bool:
        """Whether content has come: from then on there is no failover."""
        return self.first_content_at is not None

    def events(self) -> Iterator[Event]:
        """Return `Waiting` while the provider is silent, then its events from the first content on, held ones first.

        They, or this, raise UpstreamFailure, InvalidRequest for what the provider's format cannot say (it was not
        called then), and ClientGone.
        """
        dialect = dialect_of(self.chat, self.candidate.offer)
        if dialect is None:
            raise UpstreamFailure("client_error", f"the wire format of {self.candidate.provider_id} is not spoken here")
        target = target_of(self.candidate)
        answer = self._answer(dialect, target)
        if self.chat.response_format is None:
            return answer
        self.json_repair = JsonRepair(self.chat, target, default_timeouts().tick)
        return self.json_repair.repair_events(answer)

    def _answer(self, dialect: Outbound, target: Target) -> Iterator[Event]:
        """Yield what the provider answers, as `events` does."""
        response: UpstreamResponse | None = None
        try:
            response = yield from self._send(dialect, target)
            begun = self.has_content
            held: list[Event] = []
            for event in restored(self._events(dialect, response), target):
                if type(event) is Failed:
                    raise failure_from_error(event.error)
                if type(event) is ReasoningDelta:
                    event = with_owner(event, self.candidate.provider_id)
                if begun or type(event) is Waiting:
                    yield event
                else:
                    held.append(event)
                    if _is_content(event):
                        begun = True
                        self.first_content_at = time.monotonic()
                        yield from held
            if not begun:
                self.first_content_at = time.monotonic()
                yield from held
        except UpstreamFailure as failure:
            # A provider's words may quote what it was sent.
            failure.redact(collect_secrets(*self._presented))
            raise
        finally:
            if response is not None:
                self.bytes_received += response.bytes_received
                response.close()

    def _send(self, dialect: Outbound, target: Target) -> Generator[Event, None, UpstreamResponse]:
        """Return the response of a provider that answered 2xx; yields while it is silent. Raises UpstreamFailure."""
        provider, credential = self.candidate.offer.provider, self.candidate.credential
        chat = self._with_media_and_thinking(
            as_asked(self._without_reasoning_off(self._within_limits(target)), target), dialect, target
        )
        body = offload(self.size, lambda: dialect.write_request(chat, target))
        self._take_losses(target)
        secret, own_address = credential.secret(), credential.base_url
        own = credential.own is not None
        base_url = own_address or fill_base_url(provider.auth, secret, provider.base_url, own=own)
        url = url_of(dialect, base_url, chat, target)
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream" if chat.stream else "application/json",
            "User-Agent": "model-gateway",
            **headers_of(dialect, chat, target),
        }
        if own_address:
            headers[loop_detection.HEADER] = loop_detection.append_own_token(self.cdn_loop)
        with self.client_disconnect.raise_while_waiting():
            presented = authorize(provider.auth, secret, SignableRequest("POST", url, headers, body))
            headers |= presented
            self._presented = secret, presented
            ip = pinned_ip(url) if own_address else None
        sending = connection_pool.send(
            "POST", url, headers, body, self._timeouts(), ip, new_connection=self.new_connection
        )
        with closing(sending):
            while True:
                try:
                    with self.client_disconnect.raise_while_waiting():
                        next(sending)
                except StopIteration as done:
                    response: UpstreamResponse = done.value
                    break
                yield Waiting()
        self.status = response.status
        if 200 <= response.status < 300:
            return response
        try:
            refusal = dialect.read_failure(response.status, response.read(_MAX_ERROR_BYTES))
            status = refusal.status or response.status
            raise UpstreamFailure(
                error_type_for_status(status),
                refusal.message,
                status=status,
                code=refusal.code,
                param=refusal.param,
                retry_after=parse_retry_after(response.headers.get("retry-after")),
            )
        finally:
            response.close()

    def _with_media_and_thinking(self, chat: Chat, dialect: Outbound, target: Target) -> Chat:
        """Return the chat with what the target needs inside of it: files in place of addresses, its thinking back.

        Raises InvalidRequest that names a part whose file cannot be had.
        """
        with self.client_disconnect.raise_while_waiting():
            chat = self.media.inline(chat, dialect, target.facts)
        provider_id = self.candidate.provider_id
        if self.thought_signatures is not None:
            chat = self.thought_signatures.restore_thinking(chat, owned(seal_of(dialect, chat, target), provider_id))
        return without_owner(chat, provider_id, target)

    def _within_limits(self, target: Target) -> Chat:
        """Return the chat with a limit on its answer that the model can keep, and that what is held covers.

        A client's that is larger than the model's is told as a loss, one that it did not set as a notice.
        """
        chat, most = self.chat, target.max_output
        if most is not None and chat.max_tokens is not None and chat.max_tokens > most:
            target.lose("max_tokens", f"this model writes at most {most} tokens; that is the limit now")
            chat = replace(chat, max_tokens=most)
        if self.token_limit is not None and (chat.max_tokens is None or chat.max_tokens > self.token_limit):
            words = f"what is left to spend covers an answer of {self.token_limit} tokens; that is the limit now"
            self.notices = [Loss("max_tokens", words)]
            chat = replace(chat, max_tokens=self.token_limit)
        return chat

    def _without_reasoning_off(self, chat: Chat) -> Chat:
        """Return the chat without the wish that the model may not think, where it does not think anyway."""
        asked = chat.reasoning
        if asked is None or asked.effort != "none" or asked.max_tokens is not None or self.candidate.offer.reasoning:
            return chat
        return replace(chat, reasoning=None)

    def _take_losses(self, target: Target) -> None:
        """Keep what was left out for this provider. Raises InvalidRequest when the client wants all or nothing."""
        self.losses = target.losses
        if self.strict and target.losses:
            left_out = "; ".join(f"{loss.param}: {loss.message}" for loss in target.losses)
            raise InvalidRequest(
                f"With X-Strict nothing may be left out, and this would be: {left_out}",
                code="unsupported_feature",
                param=target.losses[0].param,
            )

    def _events(self, dialect: Outbound, response: UpstreamResponse) -> Iterator[Event]:
        """Yield what the provider says; every wait for it ends when the client leaves."""
        bounds = bounds_of(self.chat, self.candidate.offer)
        if not self.chat.stream:
            with self.client_disconnect.raise_while_waiting():
                body = response.read(bounds.reply, self.hold_answer)
                events = offload(len(body), lambda: read_within(body, bounds, dialect.read_reply))
            yield from events if self.chat.drawing is None else map(self._with_picture, events)
            return
        pieces, look = self._interruptible(response), partial(check_event, bounds=bounds)
        try:
            yield from dialect.read_events(frames_of(dialect.FRAMING)(pieces, bounds.event, look))
        except BrokenFrames as error:
            raise UpstreamFailure("network", str(error)) from error

    def _with_picture(self, event: Event) -> Event:
        """Put a picture in the place of its address, for clients who ask for pictures. Raises UpstreamFailure."""
        if isinstance(event, ImageMade) and not event.url.startswith("data:"):
            try:
                with self.client_disconnect.raise_while_waiting():
                    event.url = fetch_picture(event.url, MOST_OUTPUT_BYTES)
            except UnfetchableError as error:
                raise UpstreamFailure("network", f"an image it made cannot be had: {error}") from error
        return event

    def _interruptible(self, response: UpstreamResponse) -> Iterator[bytes]:
        pieces = response.iterate_body()
        while True:
            with self.client_disconnect.raise_while_waiting():
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece

    def _timeouts(self) -> Timeouts:
        usual = default_timeouts()
        if self.first_byte_timeout is None:
            return usual
        return replace(usual, first_byte=min(usual.first_byte, self.first_byte_timeout))


# What may come before an answer begins.
_BEFORE_CONTENT = frozenset({Started, UsageReported, Logprobs})


def target_of(candidate: Candidate) -> Target:
    """Return what a dialect is told of a candidate."""
    offer = candidate.offer
    return Target(model_name=candidate.model_name, facts=facts_of(offer), max_output=offer.max_output)


def _is_content(event: Event) -> bool:
    """Return whether an event is part of the answer itself, or a provider's own block of it that begins."""
    if type(event) is OpaqueDelta:
        return event.of == "stream"
    return type(event) not in _BEFORE_CONTENT
