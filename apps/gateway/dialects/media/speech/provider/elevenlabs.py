"""ElevenLabs speech, provider side: `/v1/text-to-speech/{voice}/stream`, answered with the bytes of a file.

Source: elevenlabs.io/docs/api-reference/text-to-speech/stream.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.task_options import AudioFormat
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.wire import encode, read_failure
from apps.gateway.dialects.media.speech import never_whole, options_of, read_audio, speech_of, text_of

FRAMING: Final = "raw"
# As OpenAI's formats: MP3 of 128 kbit/s, Opus of 128 kbit/s, samples of 16 bits at 24 kHz.
_FORMATS: Final[dict[AudioFormat, str]] = {
    "mp3": "mp3_44100_128",
    "opus": "opus_48000_128",
    "pcm": "pcm_24000",
}


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    speech = speech_of(chat)
    form = _FORMATS.get(speech.response_format, _FORMATS["mp3"])
    return f"/v1/text-to-speech/{quote(speech.voice, safe='')}/stream?output_format={form}"


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the header that takes any kind of audio."""
    return {"Accept": "*/*"}


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    capabilities, speech = options_of(chat, target), speech_of(chat)
    wire: dict[str, Any] = {"text": text_of(chat), "model_id": target.model_name}
    if speech.speed is not None and "speed" in capabilities.takes:
        wire["voice_settings"] = {"speed": speech.speed}
    return encode(wire)


read_events = read_audio
read_reply = never_whole


PROVIDER: Final = ProviderDialect(
    name="elevenlabs",
    framing=FRAMING,
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
    headers=headers,
)
