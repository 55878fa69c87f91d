"""`POST /v1/images/generations` and `/v1/images/edits`: OpenAI's images format in and out."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial

from apps.gateway.access.policy import find_current_policy
from apps.gateway.canonical.chat import Chat, Image
from apps.gateway.client.client_disconnect import ClientDisconnect
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.client.multipart import MULTIPART, read_form
from apps.gateway.dialects.images.client import openai, openai_stream
from apps.gateway.dialects.images.client.image_inputs import FormField
from apps.gateway.endpoints.answering import answer_authenticated, complete_response, stream_response
from apps.gateway.endpoints.picture_links import LinkingWriter, check_links, wants_links
from apps.gateway.pipeline import open_chat
from apps.gateway.upstream.remote_file import MOST_INPUT_BYTES, UnfetchableError, fetch_picture
from apps.kernel.errors import BodyTooLarge, InvalidRequest
from apps.kernel.offload import offload

# Bytes of all pictures of a request together, as data URLs.
_MOST_TOGETHER = 128 * 1024 * 1024


def images_generations(request: ClientRequest) -> ClientResponse:
    """Answer a request for new pictures."""
    return _answer(
        request, "images_generations", lambda body: offload(len(body), partial(openai.read_generation, body))
    )


def images_edits(request: ClientRequest) -> ClientResponse:
    """Answer a request to change pictures."""
    request.accepted_content_types = ("application/json", MULTIPART)
    client_disconnect = request.watch_disconnect()

    def read(body: bytes) -> Chat:
        if request.content_type == MULTIPART:
            return offload(len(body), lambda: openai.read_edit_form(_read_form(request, body)))
        with closing(client_disconnect):
            return _fetched(offload(len(body), partial(openai.read_edit, body)), client_disconnect)

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
            return stream_response(run, openai_stream)
        return complete_response(run, LinkingWriter(run) if wants_links(run.chat) else openai)

    return answer_authenticated(request, route, openai, answer)


def _read_form(request: ClientRequest, body: bytes) -> list[FormField]:
    """Return the parts of a form; the model of an Azure path stands for the form's."""
    fields = read_form(body, request.content_type_header)
    if request.deployment is None:
        return fields
    return [*(part for part in fields if part.name != "model"), FormField("model", None, request.deployment.encode())]


def _fetched(chat: Chat, client_disconnect: ClientDisconnect) -> Chat:
    """Put pictures in the place of their addresses. Raises InvalidRequest naming the one that cannot be had."""
    together = 0
    for message in chat.messages:
        for place, part in enumerate(message.parts):
            if isinstance(part, Image):
                part.url = _fetch(part.url, f"images[{place}]", client_disconnect)
                together += len(part.url)
                if together > _MOST_TOGETHER:
                    raise BodyTooLarge("The images are too large together", param="images")
    if chat.drawing is not None and chat.drawing.mask is not None:
        chat.drawing.mask = _fetch(chat.drawing.mask, "mask", client_disconnect)
    return chat


def _fetch(url: str, place: str, client_disconnect: ClientDisconnect) -> str:
    if url.startswith("data:"):
        return url
    try:
        with client_disconnect.raise_while_waiting():
            return fetch_picture(url, MOST_INPUT_BYTES)
    except UnfetchableError as error:
        param = f"{place}.image_url"
        raise InvalidRequest(f"{param} is invalid: {error}", param=param) from None
