"""`POST /v1/images/generations` and `/v1/images/edits`: OpenAI's images format in and out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from apps.gateway.access.policy import find_current_policy
from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.client.multipart import MULTIPART, read_form
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.dialects.media.images import client as openai
from apps.gateway.dialects.media.multipart_form import FormField
from apps.gateway.endpoints.answering import answer_authenticated, complete_response, stream_response
from apps.gateway.endpoints.image_links import check_links, link_images, wants_links
from apps.gateway.pipeline import open_chat
from apps.kernel.concurrency.native_thread_pool import offload


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
