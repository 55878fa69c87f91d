"""Batches: a request for values that takes several calls of its provider, whose values are joined in order.

So many calls at a time are made, and nothing is passed on until all have answered: the failure of one is that of all,
and another provider may be asked. Counts are added up, and estimated for a call without any. Knows events. Must never
know a wire format.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import gevent
from gevent.queue import Empty, Queue
from msgspec.structs import asdict

from apps.gateway.canonical.events import Event, Finished, ResultsGiven, Started, UsageReported, Waiting
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.failures import UpstreamFailure
from apps.gateway.tasks import CallPart
from apps.gateway.token_estimate import estimate_prompt_tokens
from apps.kernel.usage import Usage

# Calls of one request that are under way at a time.
MOST_AT_ONCE = 8

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


def join_batches(
    calls: Sequence[Call], batches: Sequence[CallPart], client_disconnect: ClientDisconnect, tick: float
) -> Iterator[Event]:
    """Yield the one answer that the calls give together; `Waiting` after `tick` seconds of silence.

    `batches` are what each call asks. Raises whatever one of them raises.
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

    running = [gevent.spawn(work) for _ in range(min(len(calls), MOST_AT_ONCE))]
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
    yield from _join(answers, batches)


def _join(answers: Sequence[list[Event]], batches: Sequence[CallPart]) -> Iterator[Event]:
    values: list[Any] = []
    counted: list[Usage | None] = []
    for answer in answers:
        values += [value for event in answer if type(event) is ResultsGiven for value in event.values]
        counts = [event.usage for event in answer if type(event) is UsageReported]
        counted.append(counts[-1] if counts else None)
    yield next((event for event in answers[0] if type(event) is Started), Started())
    yield ResultsGiven(values=values)
    if any(counted):
        yield UsageReported(usage=_sum(counted, batches))
    yield Finished(reason="stop")


def _sum(counted: Sequence[Usage | None], batches: Sequence[CallPart]) -> Usage:
    total: dict[str, Any] = {}
    for usage, batch in zip(counted, batches, strict=True):
        used = usage or Usage(input=estimate_prompt_tokens(batch.chat), estimated=True)
        for name, count in asdict(used).items():
            total[name] = total.get(name, 0) + count
    return Usage(**{**total, "estimated": bool(total["estimated"])})
