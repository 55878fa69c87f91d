"""Deepgram speech, provider side: `/v1/speak`, answered with the bytes of a file; the voice is a part of the model.

Source: developers.deepgram.com/reference/text-to-speech/speak-request.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlencode

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.task_options import AudioFormat
from apps.gateway.dialects import Failure, ProviderDialect
from apps.gateway.dialects.chat.openai.wire import encode, find_failure
from apps.gateway.dialects.media.speech import never_whole, options_of, read_audio, speech_of, text_of
from apps.gateway.dialects.reading.answer_errors import MAX_ERROR_LENGTH, read_refusal

FRAMING: Final = "raw"
_FORMATS: Final[dict[AudioFormat, dict[str, str]]] = {
    "mp3": {"encoding": "mp3"},
    "opus": {"encoding": "opus", "container": "ogg"},
    "aac": {"encoding": "aac"},
    "flac": {"encoding": "flac"},
    "wav": {"encoding": "linear16", "container": "wav", "sample_rate": "24000"},
    "pcm": {"encoding": "linear16", "container": "none", "sample_rate": "24000"},
}


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    speech = speech_of(chat)
    voice, model = speech.voice, target.model_name
    # A client of Deepgram's own names voices like models: `aura-2-thalia-en`.
    named = voice if voice.startswith(f"{model}-") else f"{model}-{voice}"
    return f"/v1/speak?{urlencode({'model': named, **_FORMATS[speech.response_format]})}"


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the header that takes any kind of audio."""
    return {"Accept": "*/*"}


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    options_of(chat, target)
    return encode({"text": text_of(chat)})


def read_failure(status: int, body: bytes) -> Failure:
    """Return what the provider says in an answer that is not 2xx."""
    return read_refusal(status, body, _find_failure)


def _find_failure(answer: Any) -> Failure | None:
    words = answer.get("err_msg") if isinstance(answer, dict) else None
    if not isinstance(words, str) or not words:
        return find_failure(answer)
    code = answer.get("err_code")
    return Failure(message=words[:MAX_ERROR_LENGTH], code=code if isinstance(code, str) else None)


read_events = read_audio
read_reply = never_whole


PROVIDER: Final = ProviderDialect(
    name="deepgram",
    framing=FRAMING,
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
    headers=headers,
)
