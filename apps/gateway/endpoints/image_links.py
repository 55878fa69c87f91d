"""Image links: answers of the images endpoints with URLs instead of images.

The interface between the endpoints and the app that stores images for a while, which calls `install`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Protocol

import structlog
from django.db import DatabaseError

from apps.gateway.canonical.chat import Chat, DroppedField
from apps.gateway.canonical.events import Reply
from apps.kernel.errors import InvalidRequest

if TYPE_CHECKING:
    # The app that installs itself here does so in every process; most of them answer no request.
    from apps.gateway.access.policy import Policy
    from apps.gateway.run import ChatRun

log = structlog.get_logger(__name__)

FIELD = "image_links"


class ImageKeeper(Protocol):
    """Stores images for a while."""

    def check(self, policy: Policy) -> None:
        """Raise ApiError, which names the field, where no image of a caller may be kept."""

    def keep(self, policy: Policy, data_url: str) -> str:
        """Keep an image and return its address. Raises DatabaseError."""


class _NoImageStore:
    """The default until `install` is called: no image is stored."""

    def check(self, policy: Policy) -> None:
        raise InvalidRequest(
            f"{FIELD}: this gateway keeps no images; leave the field out", code="unsupported_feature", param=FIELD
        )

    def keep(self, policy: Policy, data_url: str) -> str:
        raise NotImplementedError


_installed: list[Callable[[], ImageKeeper]] = [_NoImageStore]


def install(load: Callable[[], ImageKeeper]) -> None:
    """Have images kept from now on. `load` is called once, for the first of them: most processes have none."""
    _installed[0] = cache(load)


def wants_links(chat: Chat) -> bool:
    """Return whether a request wants URLs instead of images."""
    return chat.image_request is not None and chat.image_request.as_links


def check_links(policy: Policy) -> None:
    """Raise ApiError, which names the field, where a caller cannot have addresses."""
    _installed[0]().check(policy)


def link_images(run: ChatRun, reply: Reply) -> None:
    """Replace a reply's images by URLs. Where they cannot be stored, the client gets the images, which are paid, and a
    dropped field."""
    images = [url for choice in reply.choices for url in choice.images]
    try:
        links = {url: _installed[0]().keep(run.recorder.policy, url) for url in dict.fromkeys(images)}
    except DatabaseError as error:
        log.warning("images.not_kept", error=type(error).__name__)
        words = "the images cannot be kept right now; here they are"
        run.attempts.changed_fields = [*run.attempts.changed_fields, DroppedField(FIELD, words)]
    else:
        for choice in reply.choices:
            choice.images = [links[url] for url in choice.images]
