"""Remote media: fetches images and documents given by address.

For providers that accept only bytes they are inlined; images to edit are fetched before any provider is asked, and
those that a provider leaves at a URL before the client gets them. Fetches are bounded in size and time, and a file's
type is found by its first bytes.

Every address passes the guard and is called at the very IP that was checked; redirects are not followed; an
organization's share of a process is bounded. Only the client that sent an address may see it.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

import gevent
import msgspec
import requests
from django.conf import settings
from gevent.pool import Pool
from msgspec.structs import replace
from urllib3.exceptions import HTTPError

from apps.gateway.canonical.chat import Chat, File, Image, Message, Part, ToolResult
from apps.gateway.canonical.events import Event, ImageMade
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.media.images.client import data_url_of
from apps.gateway.dialects.reading.fields import image_type_of
from apps.gateway.failures import UpstreamFailure
from apps.kernel.concurrency.fairness import OwnerSlots
from apps.kernel.errors import ApiError, BodyTooLarge, InvalidRequest, RateLimited
from apps.keys.ssrf_guard import BUSY, RETRY_AFTER, BusyAddressError, UnsafeAddressError, resolve_safe_address

# Bytes of a client's image, and of one that a provider made.
MAX_INPUT_BYTES, MAX_OUTPUT_BYTES = 20 * 1024 * 1024, 100 * 1024 * 1024
_PIECE = 65_536
# Files of one organization that a process fetches at a time; further ones wait within their time.
_SLOTS: Final = OwnerSlots(10)
# Nothing is unpacked: a few bytes could become many.
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "model-gateway"}


class UnfetchableError(Exception):
    """A file that cannot be fetched; the message is for the client or provider that named the URL."""


class FetchTimeouts(NamedTuple):
    """Seconds: to connect, between bytes, and for all of one file."""

    connect: float
    silence: float
    total: float


# Images are large, and their clients wait long anyway.
_FOR_PICTURES: Final = FetchTimeouts(5.0, 15.0, 60.0)


def fetch_file(url: str, most: int, patience: FetchTimeouts, owner: UUID) -> tuple[bytes, str]:
    """Return the bytes at an address, `most` at the most, and what they are called there.

    `owner` is the organization for which it is fetched. Raises UnfetchableError; RateLimited where the organization
    has as much under way as it may.
    """
    until = time.monotonic() + patience.total
    with _SLOTS.slot(owner, patience.total, "Too many files by address are being fetched; send fewer at once"):
        return _fetch_within(max(until - time.monotonic(), 0.001), url, most, patience, owner)


def _fetch_within(seconds: float, url: str, most: int, patience: FetchTimeouts, owner: UUID) -> tuple[bytes, str]:
    try:
        with gevent.Timeout(seconds, _TooSlowError()):
            return _fetch_file(url, most, patience, owner)
    except BusyAddressError as error:
        raise RateLimited(str(error), code=BUSY, retry_after=RETRY_AFTER) from error
    except UnsafeAddressError as error:
        raise UnfetchableError(str(error)[:1].lower() + str(error)[1:]) from error
    except (_TooSlowError, requests.Timeout):
        raise UnfetchableError("it did not answer in time") from None
    except (requests.RequestException, HTTPError, OSError):
        raise UnfetchableError("it could not be fetched") from None


def fetch_image(url: str, most: int, owner: UUID) -> str:
    """Return the image at an address as a data URL. Raises as `fetch_file` does."""
    data, _ = fetch_file(url, most, _FOR_PICTURES, owner)
    found = data_url_of(data)
    if found is None:
        raise UnfetchableError("it holds no PNG, JPEG, WebP or GIF image")
    return found


class _TooSlowError(Exception):
    """The whole time is over."""


def _fetch_file(url: str, most: int, patience: FetchTimeouts, owner: UUID) -> tuple[bytes, str]:
    address = resolve_safe_address(url, owner)
    timeout = (patience.connect, patience.silence)
    with (
        address.session() as session,
        session.get(url, stream=True, allow_redirects=False, timeout=timeout, headers=_HEADERS) as response,
    ):
        if response.status_code != requests.codes.ok:
            raise UnfetchableError(f"it answered with status {response.status_code}")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise UnfetchableError("it is packed, which was not asked for")
        pieces: list[bytes] = []
        size = 0
        for piece in response.raw.stream(_PIECE, decode_content=False):
            size += len(piece)
            if size > most:
                raise UnfetchableError(f"it is larger than {most} bytes")
            pieces.append(piece)
        return b"".join(pieces), response.headers.get("Content-Type", "")


# How many addresses a request may have, and bytes of one file and of all together.
MAX_FILES: Final = 20
MAX_BYTES: Final = 20 * 1024 * 1024
MAX_TOTAL_BYTES: Final = 32 * 1024 * 1024
_PATIENCE = FetchTimeouts(5.0, 5.0, 10.0)
_AT_ONCE = 5
_REMOTE = ("https://", "http://")
_MAX_TOLD = 200

_PDF = "application/pdf"
_OFFICE = "application/vnd.openxmlformats-officedocument."


# The kinds of parts among which `_addresses` finds any.
MAY_HAVE_ADDRESSES: Final = (Image, File, ToolResult)


def has_addresses(chat: Chat) -> bool:
    """Return whether a chat gives an image or document by address."""
    return next(_addresses(chat), None) is not None


class RemoteMedia(msgspec.Struct, eq=False):
    """The files of one request of an organization, each fetched once, however many providers are asked."""

    owner: UUID
    _fetched: dict[str, tuple[str, bytes]] = {}

    def inline(self, chat: Chat, dialect: ProviderDialect, facts: dict[str, object]) -> Chat:
        """Return the chat with every image and document in it inline where the target takes no addresses, which the
        fact `media_urls` says, else the format. Raises InvalidRequest that names the part, and RateLimited."""
        if facts.get("media_urls", dialect.takes_media_urls):
            return chat
        named = dict(_addresses(chat))
        wanted = {url: param for url, param in named.items() if url not in self._fetched}
        if len(named) > MAX_FILES:
            raise _refused("messages", f"at most {MAX_FILES} images and documents by address can be sent")
        if wanted:
            pool = Pool(_AT_ONCE)
            try:
                fetched = pool.imap(partial(_found, self.owner), wanted, wanted.values())
                for url, found in zip(wanted, fetched, strict=True):
                    if isinstance(found, ApiError):
                        raise found
                    self._fetched[url] = found
            finally:
                pool.kill(block=False)
        if sum(len(data) for _, data in self._fetched.values()) > MAX_TOTAL_BYTES:
            raise _refused("messages", f"the files by address are larger than {MAX_TOTAL_BYTES} bytes together")
        if not named:
            return chat
        messages = [_with_bytes(message, number, self._inlined) for number, message in enumerate(chat.messages)]
        return replace(chat, messages=messages, source=None)

    def _inlined(self, part: Part, param: str) -> Part:
        url = _address_of(part)
        if url is None:
            return part
        media_type, data = self._fetched[url]
        if isinstance(part, Image) and not media_type.startswith("image/"):
            raise _refused(param, "behind the address is no image of a kind that can be sent")
        written = b64encode(data).decode()
        if isinstance(part, File):
            return replace(part, url=None, data=written, media_type=media_type)
        return replace(part, url=f"data:{media_type};base64,{written}")


def _with_bytes(message: Message, number: int, inlined: Callable[[Part, str], Part]) -> Message:
    parts: list[Part] = []
    for place, part in enumerate(message.parts):
        param = _name_of(number, place)
        if isinstance(part, ToolResult):
            parts.append(replace(part, parts=[inlined(inner, param) for inner in part.parts]))
        else:
            parts.append(inlined(part, param))
    return replace(message, parts=parts)


def _name_of(message: int, part: int) -> str:
    return f"messages[{message}].content[{part}]"


def _addresses(chat: Chat) -> Iterator[tuple[str, str]]:
    """Yield the addresses in a chat, each with the client's name for the part."""
    for number, message in enumerate(chat.messages):
        for place, part in enumerate(message.parts):
            for one in part.parts if isinstance(part, ToolResult) else [part]:
                if url := _address_of(one):
                    yield url, _name_of(number, place)


def _address_of(part: Part) -> str | None:
    """Return the address that a part has in place of bytes."""
    url = part.url if isinstance(part, Image | File) else None
    return url if url is not None and url.lower().startswith(_REMOTE) else None


def _found(owner: UUID, url: str, param: str) -> tuple[str, bytes] | ApiError:
    """Return what `_fetch` does, or its refusal: raised in a greenlet, it would be printed with the address."""
    try:
        return _fetch(url, param, owner)
    except ApiError as error:
        return error


def _fetch(url: str, param: str, owner: UUID) -> tuple[str, bytes]:
    """Return the media type and the bytes behind an address. Raises InvalidRequest that names the part, RateLimited."""
    if not url.startswith("https://") and not settings.GATEWAY_ALLOW_PRIVATE_ADDRESSES:
        raise _refused(param, "only https addresses are fetched")
    try:
        data, stated = fetch_file(url, MAX_BYTES, _PATIENCE, owner)
    except UnfetchableError as error:
        raise _refused(param, f"the file at the address cannot be fetched: {error}") from None
    media_type = sniff_media_type(data, stated.partition(";")[0].strip().lower())
    if media_type is None:
        raise _refused(param, "behind the address is neither an image nor a document of a kind that can be sent")
    return media_type, data


def sniff_media_type(data: bytes, stated: str) -> str | None:
    """Return the media type that the first bytes tell; what is `stated` only tells texts and office files apart."""
    if media_type := image_type_of(data):
        return media_type
    if data.startswith(b"%PDF-"):
        return _PDF
    if data.startswith(b"PK\x03\x04"):
        return stated if stated.startswith(_OFFICE) else None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if not text or "\0" in text or stated.startswith(("image/", "audio/", "video/")):
        return None
    return stated if stated.startswith("text/") else "text/plain"


def _refused(param: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"{param}: {why}"[:_MAX_TOLD], code="invalid_parameters", param=param)


# Bytes of all images of a request together, as data URLs.
_MAX_TOGETHER = 128 * 1024 * 1024


def has_image_addresses(chat: Chat) -> bool:
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
                part.url = _fetch_input(part.url, f"images[{place}]", owner, client_disconnect)
                together += len(part.url)
                if together > _MAX_TOGETHER:
                    raise BodyTooLarge("The images are too large together", param="images")
    image_request = chat.image_request
    if image_request is None or image_request.mask is None:
        return chat
    return replace(
        chat,
        image_request=replace(image_request, mask=_fetch_input(image_request.mask, "mask", owner, client_disconnect)),
    )


def _urls(chat: Chat) -> Iterator[str]:
    for message in chat.messages:
        for part in message.parts:
            if isinstance(part, Image):
                yield part.url
    if chat.image_request is not None and chat.image_request.mask is not None:
        yield chat.image_request.mask


def _fetch_input(url: str, place: str, owner: UUID, client_disconnect: ClientDisconnect) -> str:
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
