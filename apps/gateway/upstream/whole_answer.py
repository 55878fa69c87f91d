"""Whole answer: reads an answer that comes at once, after its job where the provider works in jobs; fetches its
images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from apps.gateway.canonical.events import Event
from apps.gateway.tasks import task_of
from apps.gateway.upstream.jobs import check_made, follow_job
from apps.gateway.upstream.made_pictures import fetch_pictures
from apps.gateway.upstream.open_exchange import OpenExchange, ProviderRequest
from apps.gateway.upstream.response_bounds import ResponseBounds, read_within
from apps.gateway.upstream.split_calls import check_results
from apps.kernel.offload import offload

if TYPE_CHECKING:
    from apps.gateway.upstream.call_provider import ProviderCall


def read_whole_answer(
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
    yield from fetch_pictures(events, leaving, call.media.owner) if task_of(call.chat).fetches_pictures else events
