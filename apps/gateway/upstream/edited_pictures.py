"""Edited pictures: those that a client gives by address, fetched before any provider is asked to change them."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Image
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.upstream.remote_file import MOST_INPUT_BYTES, UnfetchableError, fetch_picture
from apps.kernel.errors import BodyTooLarge, InvalidRequest

# Bytes of all pictures of a request together, as data URLs.
_MAX_TOGETHER = 128 * 1024 * 1024


def has_addresses(chat: Chat) -> bool:
    """Return whether a request to change pictures gives one of them by address."""
    return chat.image_request is not None and any(not url.startswith("data:") for url in _urls(chat))


def fetch_addresses(chat: Chat, owner: UUID, client_disconnect: ClientDisconnect) -> Chat:
    """Return the chat with pictures in the place of their addresses, fetched for an organization.

    Raises InvalidRequest naming the one that cannot be had, BodyTooLarge, RateLimited, ClientGone.
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
            return fetch_picture(url, MOST_INPUT_BYTES, owner)
    except UnfetchableError as error:
        param = f"{place}.image_url"
        raise InvalidRequest(f"{param} is invalid: {error}", param=param) from None
