"""Parallel calls: fan-out, split calls and image calls, where several calls of a provider answer one request at once.

- *Split calls* (`Task.split`): more values than one call gives. Nothing is passed on until all have answered: the
  failure of one is that of all, and another provider may be asked.
- *Fan-out*: several answers from a provider that gives one at a time, or answers to several prompts. Nothing is passed
  on until every call has begun to answer; after that, a failure ends the whole answer.
- *Image calls*: more images than one call makes, passed on as they come, under the numbers that they have in the
  whole. Where some calls fail, the answer is what the others made, is billed for that, and ends as one that was cut
  short; where all fail, another provider may be asked.

Where a call has no counts, or none yet, they are estimated.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import accumulate
from typing import Any, Protocol

import gevent
import msgspec
from gevent.queue import Empty, Queue
from msgspec.structs import replace

from apps.catalog.offers import Offer
from apps.gateway.canonical.chat import Chat, DroppedField
from apps.gateway.canonical.events import (
    Event,
    Finished,
    ImageMade,
    OpaqueDelta,
    ReasoningDelta,
    RefusalDelta,
    ResultsGiven,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReported,
    Waiting,
)
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.failures import StaleConnection, UpstreamFailure
from apps.gateway.tasks import TASKS, CallPart
from apps.gateway.token_estimate import estimate_prompt_tokens, token_weight, tokens_from_weight
from apps.gateway.upstream.http_response import default_timeouts
from apps.gateway.upstream.open_exchange import ProviderCallInputs, ProviderCallOutcome
from apps.kernel.errors import InvalidRequest
from apps.kernel.usage import Usage, total_usage

# Calls of one request that are under way at a time.
MAX_AT_ONCE = 8

Call = Callable[[], Iterator[Event]]


def check_results(events: Iterable[Event], part: CallPart) -> Iterator[Event]:
    """Yield an answer's events. Raises UpstreamFailure where it has fewer values than were asked for, or more, or such
    as cannot be meant."""
    for event in events:
        if type(event) is ResultsGiven:
            if len(event.values) != part.results:
                raise UpstreamFailure(
                    "network", f"the provider gave {len(event.values)} results where {part.results} were asked for"
                )
            if part.find_fault is not None and (fault := part.find_fault(event.values)) is not None:
                raise UpstreamFailure("network", f"the provider {fault}")
        yield event


def join_parts(
    calls: Sequence[Call], parts: Sequence[CallPart], client_disconnect: ClientDisconnect, tick: float
) -> Iterator[Event]:
    """Yield the one answer that the calls give together; `Waiting` after `tick` seconds of silence.

    `parts` are what each call asks. Raises whatever one of them raises.
    """
    answers: list[list[Event]] = [[] for _ in calls]
    arrived: Queue[tuple[int, list[Event] | Exception]] = Queue()
    waiting = deque(range(len(calls)))

    def work() -> None:
        while waiting:
            number = waiting.popleft()
            try:
                with closing(calls[number]()) as events:  # type: ignore[type-var]  # every call is a generator
                    answer = [event for event in events if type(event) is not Waiting]
            except Exception as error:  # noqa: BLE001 - raised again where answers are joined
                arrived.put((number, error))
                return
            arrived.put((number, answer))

    running = [gevent.spawn(work) for _ in range(min(len(calls), MAX_AT_ONCE))]
    left = len(calls)
    try:
        while left:
            with client_disconnect.raise_while_waiting():
                try:
                    number, answer = arrived.get(timeout=tick)
                except Empty:
                    yield Waiting()
                    continue
            if isinstance(answer, Exception):
                raise answer
            answers[number] = answer
            left -= 1
    finally:
        gevent.killall(running, timeout=1)
    yield from _join(answers, parts)


def _join(answers: Sequence[list[Event]], parts: Sequence[CallPart]) -> Iterator[Event]:
    values: list[object] = []
    counted: list[Usage | None] = []
    for answer in answers:
        values += [value for event in answer if type(event) is ResultsGiven for value in event.values]
        counts = [event.usage for event in answer if type(event) is UsageReported]
        counted.append(counts[-1] if counts else None)
    yield next((event for event in answers[0] if type(event) is Started), Started())
    yield ResultsGiven(values=values)
    if any(counted):
        yield UsageReported(usage=_total(counted, parts))
    yield Finished(reason="stop")


def _total(counted: Sequence[Usage | None], parts: Sequence[CallPart]) -> Usage:
    """Return what all calls used, by an estimate for one that was not counted."""
    return total_usage(
        usage or Usage(input=estimate_prompt_tokens(part.chat), estimated=True)
        for usage, part in zip(counted, parts, strict=True)
    )


# Answers that a request may ask for in this way, and events of each that wait to be passed on.
MAX_CALLS, _MAX_WAITING = 8, 64
_TEXTS = {TextDelta: "text", ReasoningDelta: "text", RefusalDelta: "text", ToolCallDelta: "arguments"}


def check_fan_out(calls: int, offer: Offer, read: int, param: str, service_tier: str | None = None) -> None:
    """Raise InvalidRequest, which names `n` or `prompt`, for more answers than one request may ask for, and where the
    counts of several calls added up would have another price than those of each. `read` is about how many tokens all of
    them read."""
    if param == "n" and calls > MAX_CALLS:
        raise _refused(f"This model's provider gives one answer at a time: n may be {MAX_CALLS} at most", param)
    card = offer.prices
    if card.request:
        raise _refused("This model is charged by the request: ask for one answer at a time", param)
    if service_tier not in (None, "default") and card.service_tiers:
        raise _refused("Each answer may be served at another tier: ask for one at a time", param)
    if any(read * 5 // 4 > tier.above_input_tokens for tier in card.tiers):
        raise _refused("The prompt is too long to be asked several times at once: ask for one answer at a time", param)


def fan_out(
    calls: Sequence[Call], read: Sequence[int], answers: int, client_disconnect: ClientDisconnect, tick: float
) -> Iterator[Event]:
    """Yield the events of all calls as they come, each of its own choices; `Waiting` after `tick` seconds of silence.

    `read` is about how many tokens each of them reads, `answers` how many each gives. Raises what one of them raises.
    """
    branches = [_Branch(number * answers, answers, tokens) for number, tokens in enumerate(read)]
    arrived: Queue[tuple[_Branch, Any]] = Queue(_MAX_WAITING * len(calls))
    greenlets = [gevent.spawn(_pass_on, call, branch, arrived) for call, branch in zip(calls, branches, strict=True)]
    held: list[Event] = []
    # Calls that have not ended, and those that have not begun to answer.
    running_calls = silent_calls = len(calls)
    try:
        while running_calls:
            with client_disconnect.raise_while_waiting():
                try:
                    branch, event = arrived.get(timeout=tick)
                except Empty:
                    yield Waiting()
                    continue
            if isinstance(event, BaseException):
                raise event
            if event is None:
                running_calls -= 1
                silent_calls -= not branch.begun
                branch.begun = branch.finished = True
            elif type(event) is not Waiting:
                held += _events_of(branch, event, branches)
                if not branch.begun and _is_content(event):
                    branch.begun = True
                    silent_calls -= 1
            if silent_calls == 0 and held:
                yield from held
                held = []
    finally:
        gevent.killall(greenlets, timeout=1)


class _Branch(msgspec.Struct, eq=False):
    """One call: its first choice in the whole, what it has written, as `token_weight` weighs it, and has counted."""

    first: int
    answers: int
    prompt_tokens: int
    written: int = 0
    usage: Usage | None = None
    begun: bool = False
    finished: bool = False

    @property
    def used(self) -> Usage:
        """Its usage so far: the provider's counts once it is finished, else an estimate."""
        written = tokens_from_weight(self.written)
        if self.usage is None:
            return Usage(input=self.prompt_tokens, output=written, estimated=True)
        if self.finished or self.usage.completion_tokens >= written:
            return self.usage
        return replace(self.usage, output=written, estimated=True)


def _pass_on(call: Call, branch: _Branch, arrived: Queue[tuple[_Branch, Any]]) -> None:
    """Put a call's events where they are merged, then None for its end, or what it raised."""
    try:
        with closing(call()) as events:  # type: ignore[type-var]  # every call is a generator
            for event in events:
                arrived.put((branch, event))
    except Exception as error:  # noqa: BLE001 - raised again where events are merged
        arrived.put((branch, error))
    else:
        arrived.put((branch, None))


def _events_of(branch: _Branch, event: Event, branches: Sequence[_Branch]) -> list[Event]:
    """Return the client's events for a call's event; those that an answer has once are the first call's alone."""
    first = branch.first == 0
    if type(event) is UsageReported:
        branch.usage = event.usage
        return [UsageReported(usage=total_usage(one.used for one in branches))]
    if type(event) is Started:
        # As many prompts have been read, whatever counts come later.
        return [event, UsageReported(usage=total_usage(one.used for one in branches))] if first else []
    if type(event) is OpaqueDelta and event.of == "reply":
        return [event] if first else []
    if (name := _TEXTS.get(type(event))) is not None:
        branch.written += token_weight(getattr(event, name))
    return [event if first else replace(event, choice=branch.first + min(event.choice, branch.answers - 1))]


def _is_content(event: Event) -> bool:
    return type(event) not in (Started, UsageReported)


def _refused(message: str, param: str) -> InvalidRequest:
    return InvalidRequest(message, code="unsupported_feature", param=param)


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


class ImageCall(Protocol):
    """A `ProviderCall`, which several calls for images share, or one of these."""

    inputs: ProviderCallInputs
    outcome: ProviderCallOutcome

    def events(self) -> Generator[Event, None, None]:
        """Return its events."""

    def branch(self, **inputs: Any) -> ImageCall:
        """Return a further call with other inputs."""


class _ImageCall(msgspec.Struct, eq=False):
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
    branches = [_ImageCall(one, first, part.results) for one, part, first in zip(calls, parts, firsts, strict=False)]
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
        yield UsageReported(usage=_total_of_images(branches, call))
    finally:
        outcome.bytes_received += sum(branch.call.outcome.bytes_received for branch in branches)


def _arriving(
    branches: Sequence[_ImageCall], call: ImageCall
) -> Generator[tuple[_ImageCall | None, Event], None, None]:
    """Yield the events of all calls, each with the call that it is of, `Waiting` with none, until all have ended."""
    arrived: Queue[tuple[_ImageCall, Event | Exception | None]] = Queue()
    waiting = deque(branches)

    def work() -> None:
        while waiting:
            branch = waiting.popleft()
            try:
                for event in _image_events_of(branch):
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


def _image_events_of(branch: _ImageCall) -> Iterator[Event]:
    """Yield a call's events, but for silence; a call over a closed kept-alive connection is repeated."""
    try:
        with closing(branch.call.events()) as events:
            yield from (event for event in events if type(event) is not Waiting)
    except StaleConnection:
        if branch.call.inputs.new_connection:
            raise
        branch.call = branch.call.branch(new_connection=True)
        yield from _image_events_of(branch)


def _events_for_client(branch: _ImageCall, event: Event, *, begun: bool) -> list[Event]:
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


def _ends_of_lost(branches: Sequence[_ImageCall]) -> Iterator[Event]:
    """Yield the ends of the missing images: an answer that lacks some is not cached."""
    for branch in branches:
        if branch.failure is not None:
            for number in range(branch.made, branch.images):
                yield Finished(choice=branch.first + number, reason="length")


def _total_of_images(branches: Sequence[_ImageCall], call: ImageCall) -> Usage:
    """Return what the calls used that made anything, or failed in nothing."""
    inputs = call.inputs
    estimate, prices = TASKS[inputs.chat.task].usage_without_counts, inputs.candidate.offer.prices
    return total_usage(
        branch.usage
        or estimate(inputs.chat, inputs.prompt_tokens, tokens_from_weight(branch.written), branch.made, prices)
        for branch in branches
        if branch.made or branch.failure is None
    )
