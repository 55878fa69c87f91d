"""OpenAI transcription, provider side: `/audio/transcriptions` and `/audio/translations`, forms with a file.

Sources: OpenAI's API reference and `openai` 3.52 (`types/audio`), console.groq.com/docs/speech-to-text, and `mistralai`
3.7 (`AudioTranscriptionRequest`), November 2026. The options of a model are facts (docs/adding-a-provider.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.canonical.events import Event, Failed, Logprobs, TranscriptTimed
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.chat.openai.wire import encode, failed, find_failure, read_failure
from apps.gateway.dialects.media.multipart_form import (
    MULTIPART,
    Field,
    FormFile,
    boundary_of,
    write_form,
)
from apps.gateway.dialects.media.transcription import (
    TranscriptionCapabilities,
    as_whole,
    capabilities_of,
    events_of,
    options_of,
    prompt_of,
    seconds_of,
    timed_word,
    transcription_of,
    usage_of_seconds,
)
from apps.gateway.dialects.reading.answer_errors import read_answer, unreadable_answer
from apps.gateway.dialects.reading.usage_numbers import read_count
from apps.kernel.usage import Usage

FRAMING: Final = "raw"


def path(chat: Chat, target: Target) -> str:
    """Return the path after the provider's base URL."""
    kind = "translations" if transcription_of(chat).translates else "transcriptions"
    capabilities = capabilities_of(target.facts)
    version = "" if capabilities is None else capabilities.api_version
    return f"/audio/{kind}?api-version={version}" if version else f"/audio/{kind}"


def headers(chat: Chat, target: Target) -> dict[str, str]:
    """Return the content type of the form, which names its boundary."""
    return {
        "Content-Type": f"{MULTIPART}; boundary={boundary_of(fields_of(chat, target))}",
        "Accept": "application/json",
    }


def write_request(chat: Chat, target: Target) -> bytes:
    """Return the body of the request."""
    options_of(chat, target)
    fields = fields_of(chat, target)
    return write_form(fields, boundary_of(fields))


def fields_of(chat: Chat, target: Target) -> list[Field]:
    """Return the fields of the form, the file last."""
    asked, capabilities = (
        transcription_of(chat),
        capabilities_of(target.facts) or TranscriptionCapabilities(dialect="openai"),
    )
    recording, form = asked.recording, _form_of(chat, capabilities)
    fields: list[Field] = [("model", target.model_name)]
    if "response_format" in capabilities.takes:
        fields.append(("response_format", form))
    if asked.language is not None and not asked.translates:
        fields.append(("language", asked.language))
    if (prompt := prompt_of(chat)) is not None and "prompt" in capabilities.takes:
        fields.append(("prompt", prompt))
    if chat.temperature is not None and "temperature" in capabilities.takes:
        fields.append(("temperature", format(chat.temperature, "g")))
    if asked.words and form == "verbose_json" and not asked.translates:
        fields += [("timestamp_granularities[]", one) for one in ("word", "segment")]
    if asked.logprobs:
        fields.append(("include[]", "logprobs"))
    # A model that separates speakers requires a chunking strategy for recordings over half a minute.
    strategy = asked.chunking_strategy or ("auto" if "speakers" in capabilities.takes else None)
    if strategy is not None and "chunking_strategy" in capabilities.takes:
        fields.append(("chunking_strategy", strategy if isinstance(strategy, str) else encode(strategy).decode()))
    named = f"audio.{recording.extension}"
    return [*fields, ("file", FormFile(named, recording.media_type, recording.data, recording.digest))]


def read_reply(body: bytes) -> Iterator[Event]:
    """Yield the events of a whole answer. One that cannot be read, or holds an error, ends with `Failed`."""
    try:
        answer = read_answer(body)
    except ValueError:
        yield unreadable_answer("The provider sent invalid JSON")
        return
    text = answer.get("text") if isinstance(answer, dict) else None
    if not isinstance(text, str):
        yield failure_of(answer) or unreadable_answer("The provider sent an answer without a transcript")
        return
    if isinstance(logprobs := answer.get("logprobs"), list) and logprobs:
        yield Logprobs(logprobs={"content": logprobs})
    yield from events_of(text.strip(), timing_of(answer), usage_of(answer))


def failure_of(answer: Any) -> Failed | None:
    """Return the failure that an answer holds, None where it holds none."""
    failure = find_failure(answer)
    return None if failure is None else failed(answer, failure)


def timing_of(answer: dict[str, Any]) -> TranscriptTimed:
    """Return what an answer tells beside its words; of a segment that has no times, nothing."""
    language, segments, words = (answer.get(name) for name in ("language", "segments", "words"))
    timed = [
        timed_word(word.get("word"), word.get("start"), word.get("end"))
        for word in (words if isinstance(words, list) else [])
        if isinstance(word, dict)
    ]
    return TranscriptTimed(
        segments=[one for one in (segments if isinstance(segments, list) else []) if is_segment(one)],
        words=[word for word in timed if word is not None],
        language=language if isinstance(language, str) and language else None,
        duration=seconds_of(answer.get("duration")),
    )


def is_segment(value: Any) -> bool:
    """Return whether a value is a text with its times."""
    if not isinstance(value, dict) or not isinstance(value.get("text"), str):
        return False
    return None not in (seconds_of(value.get("start")), seconds_of(value.get("end")))


def usage_of(answer: dict[str, Any]) -> Usage | None:
    """Return the usage: tokens or the length of audio, in OpenAI's or Mistral's fields; else the recording's length."""
    reported = answer.get("usage")
    if not isinstance(reported, dict):
        return usage_of_seconds(answer.get("duration"))
    if reported.get("type") == "tokens":
        read, written = read_count(reported.get("input_tokens")), read_count(reported.get("output_tokens"))
        parts = reported.get("input_token_details")
        # Input is audio, except the text of a prompt.
        text = min(read_count(parts.get("text_tokens")), read) if isinstance(parts, dict) else 0
        return Usage(input=text, audio_input=read - text, output=written) if read or written else None
    seconds = reported.get("seconds", reported.get("prompt_audio_seconds"))
    return usage_of_seconds(seconds) or usage_of_seconds(answer.get("duration"))


def _form_of(chat: Chat, capabilities: TranscriptionCapabilities) -> str:
    asked = transcription_of(chat)
    if asked.needs_speakers:
        return "diarized_json"
    return "verbose_json" if capabilities.verbose or asked.needs_segments or asked.words else "json"


read_events = as_whole(read_reply)


PROVIDER: Final = ProviderDialect(
    name="openai",
    framing=FRAMING,
    path=path,
    write_request=write_request,
    read_reply=read_reply,
    read_events=read_events,
    read_failure=read_failure,
    headers=headers,
)
