"""Split calls: a request for more values than one call of its provider gives, answered by several, joined in order.

`Task.split` says which calls. So many of them are made at a time, and nothing is passed on until all have answered: the
failure of one is that of all, and another provider may be asked. Counts are added up, and estimated for a call without
any.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing

import gevent
from gevent.queue import Empty, Queue

from apps.gateway.canonical.events import Event, Finished, ResultsGiven, Started, UsageReported, Waiting
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.failures import UpstreamFailure
from apps.gateway.tasks import CallPart
from apps.gateway.token_estimate import estimate_prompt_tokens
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
