"""Remote images: fetches the images that a client wants edited, before any provider is asked, and those that a provider
leaves at a URL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from uuid import UUID

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Image
from apps.gateway.canonical.events import Event, ImageMade
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.failures import UpstreamFailure
from apps.gateway.upstream.remote_file import MAX_INPUT_BYTES, MAX_OUTPUT_BYTES, UnfetchableError, fetch_image
from apps.kernel.errors import BodyTooLarge, InvalidRequest

# Bytes of all images of a request together, as data URLs.
_MAX_TOGETHER = 128 * 1024 * 1024


def has_addresses(chat: Chat) -> bool:
    """Return whether a request to change images gives one of them by address."""
    return chat.image_request is not None and any(not url.startswith("data:") for url in _urls(chat))


def fetch_addresses(chat: Chat, owner: UUID, client_disconnect: ClientDisconnect) -> Chat:
    """Return the chat with images instead of their URLs, fetched for an organization.

    Raises InvalidRequest naming one that cannot be fetched, BodyTooLarge, RateLimited, ClientGone.
    """
    together = 0
    for message in chat.messages:
        for place, part in enumerate(message.parts):
            if isinstance(part, Image):
                part.url = _fetch(part.url, f"images[{place}]", owner, client_disconnect)
                together += len(part.url)
                if together > _MAX_TOGETHER:
                    raise BodyTooLarge("The images are too large together", param="images")
    image_request = chat.image_request
    if image_request is None or image_request.mask is None:
        return chat
    return replace(
        chat, image_request=replace(image_request, mask=_fetch(image_request.mask, "mask", owner, client_disconnect))
    )


def _urls(chat: Chat) -> Iterator[str]:
    for message in chat.messages:
        for part in message.parts:
            if isinstance(part, Image):
                yield part.url
    if chat.image_request is not None and chat.image_request.mask is not None:
        yield chat.image_request.mask


def _fetch(url: str, place: str, owner: UUID, client_disconnect: ClientDisconnect) -> str:
    if url.startswith("data:"):
        return url
    try:
        with client_disconnect.raise_while_waiting():
            return fetch_image(url, MAX_INPUT_BYTES, owner)
    except UnfetchableError as error:
        param = f"{place}.image_url"
        raise InvalidRequest(f"{param} is invalid: {error}", param=param) from None


def fetch_images(events: Iterable[Event], client_disconnect: ClientDisconnect, owner: UUID) -> Iterator[Event]:
    """Yield an answer's events with images instead of their URLs, fetched for an organization.

    Raises UpstreamFailure, and RateLimited where the organization has too much under way.
    """
    for event in events:
        if isinstance(event, ImageMade) and not event.url.startswith("data:"):
            try:
                with client_disconnect.raise_while_waiting():
                    event.url = fetch_image(event.url, MAX_OUTPUT_BYTES, owner)
            except UnfetchableError as error:
                raise UpstreamFailure("network", f"an image that it made cannot be fetched: {error}") from error
        yield event
