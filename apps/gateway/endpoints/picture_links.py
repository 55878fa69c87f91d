"""Picture links: answers of the images endpoints that name addresses in the place of pictures.

The seam between the endpoints and whoever keeps pictures for a while: nobody does until `install` is called. Knows what
is asked of whoever does. Must never store anything.
"""

from __future__ import annotations

from typing import Protocol

import structlog
from django.db import DatabaseError

from apps.gateway.access.policy import Policy
from apps.gateway.canonical.chat import Chat, DroppedField
from apps.gateway.canonical.events import Reply
from apps.gateway.run import ChatRun
from apps.kernel.errors import InvalidRequest

log = structlog.get_logger(__name__)

FIELD = "image_links"


class PictureKeeper(Protocol):
    """Whoever keeps pictures for a while."""

    def check(self, policy: Policy) -> None:
        """Raise ApiError, which names the field, where no picture of a caller may be kept."""

    def keep(self, policy: Policy, data_url: str) -> str:
        """Keep a picture and return its address. Raises DatabaseError."""


class _Nobody:
    """Nobody keeps pictures."""

    def check(self, policy: Policy) -> None:
        raise InvalidRequest(
            f"{FIELD}: this gateway keeps no images; leave the field out", code="unsupported_feature", param=FIELD
        )

    def keep(self, policy: Policy, data_url: str) -> str:
        raise NotImplementedError


_installed: list[PictureKeeper] = [_Nobody()]


def install(keeper: PictureKeeper) -> None:
    """Have pictures kept from now on."""
    _installed[0] = keeper


def wants_links(chat: Chat) -> bool:
    """Return whether a request wants addresses in the place of pictures."""
    return chat.image_request is not None and chat.image_request.as_links


def check_links(policy: Policy) -> None:
    """Raise ApiError, which names the field, where a caller cannot have addresses."""
    _installed[0].check(policy)


def link_pictures(run: ChatRun, reply: Reply) -> None:
    """Put addresses in the place of a reply's pictures. Where they cannot be kept the client gets the pictures, which
    are paid, and a notice."""
    pictures = [url for choice in reply.choices for url in choice.images]
    try:
        links = {url: _installed[0].keep(run.recorder.policy, url) for url in dict.fromkeys(pictures)}
    except DatabaseError as error:
        log.warning("images.not_kept", error=type(error).__name__)
        words = "the images cannot be kept right now; here they are"
        run.attempts.notices = [*run.attempts.notices, DroppedField(FIELD, words)]
    else:
        for choice in reply.choices:
            choice.images = [links[url] for url in choice.images]
