"""Fan-out: several answers from a provider that gives one at a time, or to several prompts, by as many calls at once.

Nothing is passed on until every call has begun to answer: until then the failure of one is that of all, and another
provider may be asked; after that it ends the whole answer. Counts are added up, and estimated for a call that has not
counted yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import gevent
import msgspec
from gevent.queue import Empty, Queue
from msgspec.structs import replace

from apps.catalog.offers import Offer
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import (
    Event,
    OpaqueDelta,
    ReasoningDelta,
    RefusalDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    UsageReported,
    Waiting,
)
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.tasks import TASKS
from apps.gateway.token_estimate import token_weight, tokens_from_weight
from apps.kernel.errors import InvalidRequest
from apps.kernel.usage import Usage, total_usage

# Answers that a request may ask for in this way, and events of each that wait to be passed on.
MAX_CALLS, _MAX_WAITING = 8, 64
_TEXTS = {TextDelta: "text", ReasoningDelta: "text", RefusalDelta: "text", ToolCallDelta: "arguments"}

Call = Callable[[], Iterator[Event]]


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
