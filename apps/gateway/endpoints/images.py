"""`POST /v1/images/generations` and `/v1/images/edits`: OpenAI's images format in and out.

The app that stores images for a while calls `install`: answers may then have URLs instead of images.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import structlog
from django.db import DatabaseError

from apps.gateway.access.policy import Policy, find_current_policy
from apps.gateway.canonical.chat import Chat, DroppedField
from apps.gateway.canonical.events import Reply
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.client.multipart import MULTIPART, read_form
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.dialects.media.images import client as openai
from apps.gateway.dialects.media.multipart_form import FormField
from apps.gateway.endpoints.answering import answer_authenticated, complete_response, stream_response
from apps.gateway.pipeline import open_chat
from apps.gateway.run import ChatRun
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import InvalidRequest

log = structlog.get_logger(__name__)

FIELD = "image_links"


def images_generations(request: ClientRequest) -> ClientResponse:
    """Answer a request for new images."""
    return _answer(
        request, "images_generations", lambda body: offload(len(body), partial(openai.read_generation, body))
    )


def images_edits(request: ClientRequest) -> ClientResponse:
    """Answer a request to change images."""
    request.accepted_content_types = ("application/json", MULTIPART)

    def read(body: bytes) -> Chat:
        if request.content_type == MULTIPART:
            return offload(len(body), lambda: openai.read_edit_form(_read_form(request, body)))
        return offload(len(body), partial(openai.read_edit, body))

    return _answer(request, "images_edits", read)


def _answer(request: ClientRequest, route: str, read: Callable[[bytes], Chat]) -> ClientResponse:
    def answer(token: str) -> ClientResponse:
        def read_with_links(body: bytes) -> Chat:
            chat = read(body)
            if wants_links(chat):
                check_links(find_current_policy(token))
            return chat

        run = open_chat(request, route, token, read_with_links)
        if run.chat.stream:
            return stream_response(run, openai.write_events)
        change_reply = partial(link_images, run) if wants_links(run.chat) else None
        return complete_response(run, openai.write_reply, change_reply=change_reply)

    return answer_authenticated(request, route, OPENAI, answer)


def _read_form(request: ClientRequest, body: bytes) -> list[FormField]:
    """Return the parts of a form; the model of an Azure path stands for the form's."""
    fields = read_form(body, request.content_type_header)
    if request.deployment is None:
        return fields
    return [*(part for part in fields if part.name != "model"), FormField("model", None, request.deployment.encode())]


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


_installed: list[ImageKeeper] = [_NoImageStore()]


def install(keeper: ImageKeeper) -> None:
    """Have images kept from now on."""
    _installed[0] = keeper


def wants_links(chat: Chat) -> bool:
    """Return whether a request wants URLs instead of images."""
    return chat.image_request is not None and chat.image_request.as_links


def check_links(policy: Policy) -> None:
    """Raise ApiError, which names the field, where a caller cannot have addresses."""
    _installed[0].check(policy)


def link_images(run: ChatRun, reply: Reply) -> None:
    """Replace a reply's images by URLs. Where they cannot be stored, the client gets the images, which are paid, and a
    dropped field."""
    images = [url for choice in reply.choices for url in choice.images]
    try:
        links = {url: _installed[0].keep(run.recorder.policy, url) for url in dict.fromkeys(images)}
    except DatabaseError as error:
        log.warning("images.not_kept", error=type(error).__name__)
        words = "the images cannot be kept right now; here they are"
        run.attempts.changed_fields = [*run.attempts.changed_fields, DroppedField(FIELD, words)]
    else:
        for choice in reply.choices:
            choice.images = [links[url] for url in choice.images]
