"""Endpoints of specialist models, which answer with values or media, each in the formats of its clients.

Values: `POST /v1/embeddings` in OpenAI's format, Cohere's `/v2/embed`, Google's `embedContent` and
`batchEmbedContents`; `POST /v1/rerank`, and `/v2/rerank` of Cohere's clients; `POST /v1/moderations`.
Media, in OpenAI's formats: `POST /v1/audio/speech`, `/v1/audio/transcriptions`, `/v1/audio/translations`,
`/v1/images/generations` and `/v1/images/edits`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from apps.gateway.access.policy import find_current_policy
from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.task_options import Speech
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.client.multipart import MULTIPART, read_form
from apps.gateway.dialects import ClientErrorWriter
from apps.gateway.dialects.chat.google import CLIENT as GOOGLE
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.dialects.media import FormField
from apps.gateway.dialects.media.images import client as images
from apps.gateway.dialects.media.speech import client as speech
from apps.gateway.dialects.media.transcription import client as transcription
from apps.gateway.dialects.values import moderations as moderations_client
from apps.gateway.dialects.values import rerank as rerank_client
from apps.gateway.dialects.values.embeddings import client as embeddings_client
from apps.gateway.endpoints.answering import ReplyWriter, answer_authenticated, complete_response, stream_response
from apps.gateway.endpoints.image_links import check_links, link_images, wants_links
from apps.gateway.metrics import RouteName
from apps.gateway.pipeline import open_chat
from apps.kernel.concurrency.native_thread_pool import offload

_SPEECH: Final = "audio_speech"


def audio_speech(request: ClientRequest) -> ClientResponse:
    """Answer a request to read a text aloud, with audio as it comes."""

    def read(body: bytes) -> Chat:
        return offload(len(body), partial(speech.read_request, body))

    def run_chat(token: str) -> ClientResponse:
        run = open_chat(request, _SPEECH, token, read)
        asked = run.chat.speech or Speech(voice="")
        if asked.events:
            return stream_response(run, speech.write_events)
        content_type = speech.CONTENT_TYPES[asked.response_format]
        return stream_response(run, lambda events, chat: speech.write_bytes(events), content_type)

    return answer_authenticated(request, _SPEECH, OPENAI, run_chat)


def audio_transcriptions(request: ClientRequest) -> ClientResponse:
    """Answer a request to transcribe audio."""
    return _transcribe(request, "audio_transcriptions", transcription.read_transcription)


def audio_translations(request: ClientRequest) -> ClientResponse:
    """Answer a request to translate audio into English text."""
    return _transcribe(request, "audio_translations", transcription.read_translation)


def _transcribe(
    request: ClientRequest, route: RouteName, read_form_fields: Callable[[list[FormField]], Chat]
) -> ClientResponse:
    request.accepted_content_types = (MULTIPART,)

    def read(body: bytes) -> Chat:
        return offload(len(body), lambda: read_form_fields(_form_of(request, body)))

    def run_chat(token: str) -> ClientResponse:
        run = open_chat(request, route, token, read)
        if run.chat.stream:
            return stream_response(run, transcription.write_events)
        asked = run.chat.transcription
        content_type = transcription.CONTENT_TYPES[asked.response_format if asked is not None else "json"]
        return complete_response(run, transcription.write_reply, content_type)

    return answer_authenticated(request, route, OPENAI, run_chat)


def images_generations(request: ClientRequest) -> ClientResponse:
    """Answer a request for new images."""
    return _answer_images(
        request, "images_generations", lambda body: offload(len(body), partial(images.read_generation, body))
    )


def images_edits(request: ClientRequest) -> ClientResponse:
    """Answer a request to change images."""
    request.accepted_content_types = ("application/json", MULTIPART)

    def read(body: bytes) -> Chat:
        if request.content_type == MULTIPART:
            return offload(len(body), lambda: images.read_edit_form(_form_of(request, body)))
        return offload(len(body), partial(images.read_edit, body))

    return _answer_images(request, "images_edits", read)


def _answer_images(request: ClientRequest, route: RouteName, read: Callable[[bytes], Chat]) -> ClientResponse:
    def answer(token: str) -> ClientResponse:
        def read_with_links(body: bytes) -> Chat:
            chat = read(body)
            if wants_links(chat):
                check_links(find_current_policy(token))
            return chat

        run = open_chat(request, route, token, read_with_links)
        if run.chat.stream:
            return stream_response(run, images.write_events)
        change_reply = partial(link_images, run) if wants_links(run.chat) else None
        return complete_response(run, images.write_reply, change_reply=change_reply)

    return answer_authenticated(request, route, OPENAI, answer)


def _form_of(request: ClientRequest, body: bytes) -> list[FormField]:
    """Return the parts of a form; the model of an Azure path stands for the form's."""
    fields = read_form(body, request.content_type_header)
    if request.deployment is None:
        return fields
    return [*(part for part in fields if part.name != "model"), FormField("model", None, request.deployment.encode())]


EMBEDDINGS: Final = "embeddings"


def embeddings(request: ClientRequest) -> ClientResponse:
    """Answer a request for embeddings."""
    return _answer(
        request,
        EMBEDDINGS,
        embeddings_client.ERRORS,
        embeddings_client.write_openai_reply,
        embeddings_client.read_openai_request,
    )


def embed(request: ClientRequest) -> ClientResponse:
    """Answer a request for embeddings, in Cohere's format."""
    return _answer(
        request, EMBEDDINGS, OPENAI, embeddings_client.write_cohere_reply, embeddings_client.read_cohere_request
    )


def embed_content(request: ClientRequest, model: str) -> ClientResponse:
    """Answer a request for the vector of one content, in Google's format."""
    return _answer(
        request,
        EMBEDDINGS,
        GOOGLE,
        embeddings_client.write_google_single,
        partial(embeddings_client.read_google_single, model=model),
    )


def batch_embed_contents(request: ClientRequest, model: str) -> ClientResponse:
    """Answer a request for the vectors of many contents, in Google's format."""
    return _answer(
        request,
        EMBEDDINGS,
        GOOGLE,
        embeddings_client.write_google_batch,
        partial(embeddings_client.read_google_batch, model=model),
    )


def rerank(request: ClientRequest) -> ClientResponse:
    """Answer a request to put documents in the order of their relevance to a query."""
    return _answer(request, "rerank", rerank_client.ERRORS, rerank_client.write_reply, rerank_client.read_request)


def moderations(request: ClientRequest) -> ClientResponse:
    """Answer a request to judge whether texts and images may be harmful."""
    return _answer(request, "moderations", OPENAI, moderations_client.write_reply, moderations_client.read_request)


def _answer(
    request: ClientRequest,
    route: RouteName,
    errors: ClientErrorWriter,
    write_reply: ReplyWriter,
    read: Callable[[bytes], Chat],
) -> ClientResponse:
    def read_apart(body: bytes) -> Chat:
        return offload(len(body), partial(read, body))

    return answer_authenticated(
        request,
        route,
        errors,
        lambda token: complete_response(open_chat(request, route, token, read_apart), write_reply),
    )
