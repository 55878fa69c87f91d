"""Made pictures: those that a provider leaves at an address, fetched for clients who ask for pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from apps.gateway.canonical.events import Event, ImageMade
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.failures import UpstreamFailure
from apps.gateway.upstream.remote_file import MAX_OUTPUT_BYTES, UnfetchableError, fetch_picture


def fetch_pictures(events: Iterable[Event], client_disconnect: ClientDisconnect, owner: UUID) -> Iterator[Event]:
    """Yield an answer's events with images instead of their URLs, fetched for an organization.

    Raises UpstreamFailure, and RateLimited where the organization has too much under way.
    """
    for event in events:
        if isinstance(event, ImageMade) and not event.url.startswith("data:"):
            try:
                with client_disconnect.raise_while_waiting():
                    event.url = fetch_picture(event.url, MAX_OUTPUT_BYTES, owner)
            except UnfetchableError as error:
                raise UpstreamFailure("network", f"an image that it made cannot be fetched: {error}") from error
        yield event
