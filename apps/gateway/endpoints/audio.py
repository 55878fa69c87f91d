"""`POST /v1/audio/speech`, `/v1/audio/transcriptions` and `/v1/audio/translations`: OpenAI's audio formats."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.task_options import Speech
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.client.multipart import MULTIPART, read_form
from apps.gateway.dialects.chat.openai import CLIENT as OPENAI
from apps.gateway.dialects.media.multipart_form import FormField
from apps.gateway.dialects.media.speech import client as speech
from apps.gateway.dialects.media.transcription import client as transcription
from apps.gateway.endpoints.answering import answer_authenticated, complete_response, stream_response
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
    request: ClientRequest, route: str, read_form_fields: Callable[[list[FormField]], Chat]
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


def _form_of(request: ClientRequest, body: bytes) -> list[FormField]:
    """Return the parts of a form; the model of an Azure path stands for the form's."""
    fields = read_form(body, request.content_type_header)
    if request.deployment is None:
        return fields
    return [*(part for part in fields if part.name != "model"), FormField("model", None, request.deployment.encode())]
