"""Google speech, provider side: `…:streamGenerateContent` with `AUDIO` as the one modality, answered with samples.

Sources: ai.google.dev/gemini-api/docs/speech-generation; docs.cloud.google.com, "Generate speech with Gemini TTS" (of
Gemini 3.8: `speechConfig.voiceConfig.voice`, a part's `speechMetadata.style`); `google.genai.types` 3.4. Audio is 16
bits, 24 kHz, mono, in base64 (`audio/L16;codec=pcm;rate=24000`). Read 2026-11-23.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import (
    AudioBytes,
    AudioDelta,
    Event,
    Failed,
    Finished,
    Started,
    UsageReported,
    Waiting,
)
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.google.provider.read_answer import read_events as read_answers
from apps.gateway.dialects.chat.google.wire import encode, read_failure
from apps.gateway.dialects.media.speech import instructions_of, never_whole, options_of, speech_of, text_of
from apps.gateway.dialects.reading.answer_errors import unreadable_answer
from apps.kernel.usage import Usage


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    return f"/models/{quote(target.model_name, safe='')}:streamGenerateContent?alt=sse"


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    capabilities, speech = options_of(chat, target), speech_of(chat)
    part: dict[str, Any] = {"text": text_of(chat)}
    if (instructions := instructions_of(chat)) is not None and "instructions" in capabilities.takes:
        part["speechMetadata"] = {"style": instructions}
    config = {"responseModalities": ["AUDIO"], "speechConfig": {"voiceConfig": {"voice": speech.voice}}}
    return encode({"contents": [{"role": "user", "parts": [part]}], "generationConfig": config})


def read_events(frames: Iterable[bytes]) -> Iterator[Event]:
    """Yield the events of the answer, the audio as bytes; one without any audio ends with `Failed`."""
    begun = False
    for event in read_answers(frames):
        if isinstance(event, AudioDelta):
            try:
                audio = b64decode(event.data, validate=True)
            except ValueError:
                yield unreadable_answer("The provider sent audio that is not base64")
                return
            if audio:
                if not begun:
                    begun = True
                    yield Started()
                yield AudioBytes(data=audio)
        elif isinstance(event, UsageReported):
            yield UsageReported(usage=_as_speech(event.usage))
        elif isinstance(event, Finished) and not begun:
            why = f", which says {event.native}" if event.native else ""
            yield unreadable_answer(f"The provider sent no audio{why}")
            return
        elif isinstance(event, Waiting | Failed | Finished):
            yield event


def _as_speech(usage: Usage) -> Usage:
    """Return the counts: all that such a model writes is audio, whether it says so or not."""
    return Usage(input=usage.input + usage.cache_read, audio_output=usage.audio_output + usage.output)


read_reply = never_whole


PROVIDER: Final = ProviderDialect(
    name="google",
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
)
