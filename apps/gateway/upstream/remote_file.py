"""Remote file: fetches the file at a URL: one that a client names, or an image that a provider made.

Every address passes the guard and is called at the very IP that was checked; redirects are not followed; size, time and
an organization's share of a process are bounded. Only the client that sent an address may see it.
"""

from __future__ import annotations

import time
from typing import Final, NamedTuple
from uuid import UUID

import gevent
import requests
from urllib3.exceptions import HTTPError

from apps.gateway.dialects.media.images.client import data_url_of
from apps.kernel.concurrency.fairness import OwnerSlots
from apps.kernel.errors import RateLimited
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
            return _fetch(url, most, patience, owner)
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


def _fetch(url: str, most: int, patience: FetchTimeouts, owner: UUID) -> tuple[bytes, str]:
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
