"""Image calls: more images than one call of a provider makes, by several calls at once, joined in order.

Each call's images are passed on as they come, under the numbers that they have in the whole. Where some calls fail,
the answer is what the others made, is billed for that, and ends as one that was cut short; where all fail, another
provider may be asked. Counts are added up, and estimated for a call without any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import accumulate
from typing import Any, Protocol

import gevent
import msgspec
from gevent.queue import Empty, Queue
from msgspec.structs import replace

from apps.gateway.canonical.chat import DroppedField
from apps.gateway.canonical.events import (
    Event,
    Finished,
    ImageMade,
    OpaqueDelta,
    ReasoningDelta,
    Started,
    TextDelta,
    UsageReported,
    Waiting,
)
from apps.gateway.failures import StaleConnection, UpstreamFailure
from apps.gateway.tasks import TASKS, CallPart
from apps.gateway.token_estimate import token_weight, tokens_from_weight
from apps.gateway.upstream.call_state import ProviderCallInputs, ProviderCallOutcome
from apps.gateway.upstream.http_response import default_timeouts
from apps.gateway.upstream.split_calls import MAX_AT_ONCE
from apps.kernel.errors import InvalidRequest
from apps.kernel.usage import Usage, total_usage


class ImageCall(Protocol):
    """A `ProviderCall`, which several calls for images share, or one of these."""

    inputs: ProviderCallInputs
    outcome: ProviderCallOutcome

    def events(self) -> Generator[Event, None, None]:
        """Return its events."""

    def branch(self, **inputs: Any) -> ImageCall:
        """Return a further call with other inputs."""


class _Branch(msgspec.Struct, eq=False):
    """One call: the number of its first image in the whole, the number of its images, and its result so far."""

    call: ImageCall
    first: int
    images: int
    made: int = 0
    # The text beside them, by `token_weight`, and the provider's counts.
    written: int = 0
    usage: Usage | None = None
    failure: UpstreamFailure | InvalidRequest | None = None


def make_images(call: ImageCall, calls: Sequence[ImageCall], parts: Sequence[CallPart]) -> Generator[Event, None, None]:
    """Yield the answers of the provider calls to all parts as one, into `call`.

    Raises the first call's error where no call made an image.
    """
    firsts = accumulate((part.results for part in parts), initial=0)
    branches = [_Branch(one, first, part.results) for one, part, first in zip(calls, parts, firsts, strict=False)]
    outcome, begun = call.outcome, False
    try:
        for branch, event in _arriving(branches, call):
            if branch is None:
                yield event
                continue
            if not outcome.has_content:
                outcome.begin_as(branch.call.outcome, len(branches))
            for passed in _events_for_client(branch, event, begun=begun):
                begun = True
                yield passed
        failures = [branch.failure for branch in branches if branch.failure is not None]
        if failures and not any(branch.made for branch in branches):
            raise failures[0]
        if failures:
            lacking = sum(branch.images - branch.made for branch in branches if branch.failure is not None)
            words = f"{lacking} images could not be made: {failures[0]}"
            outcome.changed_fields = [*outcome.changed_fields, DroppedField("n", words)]
            yield from _ends_of_lost(branches)
        yield UsageReported(usage=_total(branches, call))
    finally:
        outcome.bytes_received += sum(branch.call.outcome.bytes_received for branch in branches)


def _arriving(branches: Sequence[_Branch], call: ImageCall) -> Generator[tuple[_Branch | None, Event], None, None]:
    """Yield the events of all calls, each with the call that it is of, `Waiting` with none, until all have ended."""
    arrived: Queue[tuple[_Branch, Event | Exception | None]] = Queue()
    waiting = deque(branches)

    def work() -> None:
        while waiting:
            branch = waiting.popleft()
            try:
                for event in _events_of(branch):
                    arrived.put((branch, event))
            except (UpstreamFailure, InvalidRequest) as failure:
                branch.failure = failure
            except Exception as error:  # noqa: BLE001 - raised again where answers are joined
                arrived.put((branch, error))
            arrived.put((branch, None))

    running = [gevent.spawn(work) for _ in range(min(len(branches), MAX_AT_ONCE))]
    left = len(branches)
    try:
        while left:
            with call.inputs.client_disconnect.raise_while_waiting():
                try:
                    branch, event = arrived.get(timeout=default_timeouts().tick)
                except Empty:
                    yield None, Waiting()
                    continue
            if isinstance(event, Exception):
                raise event
            if event is None:
                left -= 1
            else:
                yield branch, event
    finally:
        gevent.killall(running, timeout=1)


def _events_of(branch: _Branch) -> Iterator[Event]:
    """Yield a call's events, but for silence; a call over a closed kept-alive connection is repeated."""
    try:
        with closing(branch.call.events()) as events:
            yield from (event for event in events if type(event) is not Waiting)
    except StaleConnection:
        if branch.call.inputs.new_connection:
            raise
        branch.call = branch.call.branch(new_connection=True)
        yield from _events_of(branch)


def _events_for_client(branch: _Branch, event: Event, *, begun: bool) -> list[Event]:
    """Return the client's events for a call's event; those that an answer has once are those of the first call to
    begin."""
    kind = type(event)
    if isinstance(event, UsageReported):
        branch.usage = event.usage
        return []
    if kind is Started or (isinstance(event, OpaqueDelta) and event.of == "reply"):
        return [] if begun and kind is Started else [event]
    if kind is ImageMade:
        branch.made += 1
    elif isinstance(event, TextDelta | ReasoningDelta):
        branch.written += token_weight(event.text)
    return [replace(event, choice=event.choice + branch.first)]


def _ends_of_lost(branches: Sequence[_Branch]) -> Iterator[Event]:
    """Yield the ends of the missing images: an answer that lacks some is not cached."""
    for branch in branches:
        if branch.failure is not None:
            for number in range(branch.made, branch.images):
                yield Finished(choice=branch.first + number, reason="length")


def _total(branches: Sequence[_Branch], call: ImageCall) -> Usage:
    """Return what the calls used that made anything, or failed in nothing."""
    inputs = call.inputs
    estimate, prices = TASKS[inputs.chat.task].usage_without_counts, inputs.candidate.offer.prices
    return total_usage(
        branch.usage
        or estimate(inputs.chat, inputs.prompt_tokens, tokens_from_weight(branch.written), branch.made, prices)
        for branch in branches
        if branch.made or branch.failure is None
    )
