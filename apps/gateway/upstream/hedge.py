"""Hedging: call a second provider when the first is later than usual; the first to answer wins, the other is closed.

Opted in to by a client (`X-Hedge`) or a project, for streams. The loser's prompt is paid for, so a second call is only
made when that costs no more than a cap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import gevent
from django.conf import settings

from apps.billing.pricing import Cost
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Event, Waiting
from apps.gateway.canonical.service_tier import asked_region, asked_service_tier
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.client.http_request import ClientRequest
from apps.gateway.failures import UpstreamFailure
from apps.gateway.routing.candidate import Candidate
from apps.gateway.upstream.call_provider import ProviderCall
from apps.kernel.errors import ApiError, InvalidRequest
from apps.kernel.usage import Usage

# USD that a second call may add to a request, where the client names no other cap, and the most it can name.
USUAL_CAP, HIGHEST_CAP = Decimal("0.01"), Decimal(10)
# Seconds: the shortest time after which a second provider is asked, and the longest that a client can name.
_SOONEST, _LATEST = 0.05, 120.0
_WORDS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Hedge:
    """After how many seconds a second provider is asked (None: when the first is later than its usual 95th percentile),
    and what that may add in USD."""

    after: float | None
    max_cost: Decimal = USUAL_CAP

    def delay(self, p95_latency: float | None) -> float | None:
        """Return the seconds to wait, given the first's usual latest in milliseconds; None when unknown."""
        if self.after is not None:
            return self.after
        return None if p95_latency is None else max(p95_latency / 1000, _SOONEST)

    def allows(self, candidate: Candidate, prompt_tokens: int, chat: Chat) -> bool:
        """Return whether losing the race costs no more than the cap with this candidate."""
        return losing_cost(candidate, prompt_tokens, chat).total <= self.max_cost


def losing_cost(candidate: Candidate, prompt_tokens: int, chat: Chat) -> Cost:
    """Return what a call costs that was closed before its first token: the prompt has been read, at the tier asked."""
    tier, region = asked_service_tier(chat), asked_region(chat)
    return candidate.cost_of(Usage(input=prompt_tokens, service_tier=tier, region=region))


def read_hedge(request: ClientRequest, *, by_default: bool) -> Hedge | None:
    """Return how a request is to be hedged, None when it is not. Raises InvalidRequest naming the header.

    `X-Hedge` is `true`, `false`, or milliseconds; `X-Hedge-Max-Cost` is USD.
    """
    said = (request.header("x-hedge") or "").strip().lower()
    wanted = _WORDS.get(said, by_default if not said else None)
    if wanted is False:
        return None
    after = None if wanted else _number(said, "X-Hedge", Decimal(1000 * _LATEST).to_integral_value()) / 1000
    max_cost = request.header("x-hedge-max-cost")
    most = USUAL_CAP if max_cost is None else _number(max_cost, "X-Hedge-Max-Cost", HIGHEST_CAP)
    return Hedge(None if after is None else max(float(after), _SOONEST), most)


def _number(text: str, name: str, most: Decimal) -> Decimal:
    try:
        value = Decimal(text.strip())
    except InvalidOperation:
        value = Decimal(-1)
    if not value.is_finite() or not 0 <= value <= most:
        raise InvalidRequest(f"{name}: must be a number from 0 to {most}", code="invalid_parameters", param=name)
    return value


if TYPE_CHECKING:
    _Run = gevent.Greenlet[..., Any]


def race(
    first: ProviderCall,
    find_second: Callable[[], ProviderCall | None],
    delay: float,
    client_disconnect: ClientDisconnect,
    on_failure: Callable[[ProviderCall, UpstreamFailure | InvalidRequest], None],
) -> Iterator[ProviderCall | Event]:
    """Yield `Waiting` until an attempt answers, then the attempt that won, then its events.

    `on_failure` is called with one that fails while another runs. Raises what the last one running failed with.
    """
    runs: dict[_Run, ProviderCall] = {gevent.spawn(_run_to_first_content, first): first}
    second_at: float | None = time.monotonic() + delay
    silent_until = time.monotonic() + settings.HEARTBEAT_INTERVAL
    try:
        while True:
            wake_at = silent_until if second_at is None else min(silent_until, second_at)
            patience = max(wake_at - time.monotonic(), 0.0)
            with client_disconnect.raise_while_waiting():
                done = gevent.wait(list(runs), timeout=patience, count=1)
            if done:
                provider_call, outcome = runs.pop(done[0]), done[0].get()
                if not isinstance(outcome, Exception):
                    _kill_all(runs)
                    yield provider_call
                    yield from outcome
                    return
                if not runs or not isinstance(outcome, UpstreamFailure | InvalidRequest):
                    raise outcome
                on_failure(provider_call, outcome)
            elif second_at is not None and time.monotonic() >= second_at:
                second_at = None
                second = find_second()
                if second is not None:
                    runs[gevent.spawn(_run_to_first_content, second)] = second
            elif time.monotonic() >= silent_until:
                silent_until += settings.HEARTBEAT_INTERVAL
                yield Waiting()
    finally:
        _kill_all(runs)


def _run_to_first_content(provider_call: ProviderCall) -> Iterator[Event] | Exception:
    """Run an attempt to its first content; return all of its events, or what it failed with."""
    try:
        events = provider_call.events()
        for event in events:
            if not isinstance(event, Waiting):
                return _prepend(event, events)
    except (UpstreamFailure, ApiError) as failure:
        return failure
    except Exception as error:  # noqa: BLE001 - raised again in the waiting greenlet
        return error
    return iter(())


def _prepend(first: Event, rest: Iterator[Event]) -> Iterator[Event]:
    yield first
    yield from rest


def _kill_all(runs: dict[_Run, ProviderCall]) -> None:
    """End those who are still running: their providers' connections are closed on the way out."""
    gevent.killall(list(runs), timeout=1)
    runs.clear()
