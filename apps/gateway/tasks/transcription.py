"""Task `transcription`: transcribes a recording, in its own language or in English.

A request of this kind is a chat whose one message holds the words that guide the model, if there are any. Decides over
values.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Final

from apps.billing.pricing import cost_of
from apps.catalog.offers import Offer
from apps.gateway.canonical.chat import Chat
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.media.transcription import TranscriptionCapabilities, capabilities_of, transcription_of
from apps.gateway.dialects.media.transcription.provider import find_transcription_dialect
from apps.gateway.tasks import AttachedFile, ModelMode, Requirement, specialist_task
from apps.kernel.prices import PriceCard
from apps.kernel.usage import Usage

_MODE: Final = ModelMode("audio_transcription", "transcription")
# Tokens that a second of audio comes to where it is paid by the token, and that are said in it, both at most; and
# usually.
_MAX_TOKENS_HEARD, _MAX_TOKENS_WRITTEN, _TOKENS_HEARD = 20, 8, 10


def _requirements_of(chat: Chat) -> list[Requirement]:
    """Return what an offer's transcripts must tell."""
    asked = transcription_of(chat)
    needs: list[Requirement] = []
    if asked.translates:
        needs.append(Requirement("translations", _takes("translation")))
    if asked.needs_segments:
        form = f"transcripts as {asked.response_format}"
        needs.append(Requirement(form, _takes("segments"), "response_format"))
    if asked.words:
        needs.append(Requirement("times of words", _takes("words"), "timestamp_granularities"))
    if asked.needs_speakers:
        needs.append(Requirement("transcripts with speakers", _takes("speakers"), "response_format"))
    if asked.logprobs:
        needs.append(Requirement("logprobs", _takes("logprobs"), "include"))
    return needs


def _takes(option: str) -> Callable[[Offer], bool]:
    def is_met_by(offer: Offer) -> bool:
        capabilities: TranscriptionCapabilities | None = capabilities_of(offer.facts)
        return capabilities is not None and option in capabilities.takes

    return is_met_by


def _find_dialect(chat: Chat, offer: Offer) -> ProviderDialect | None:
    return find_transcription_dialect(offer.facts, streamed=chat.stream)


def _list_price(chat: Chat, offer: Offer) -> Decimal:
    """Return what the transcript costs at most, in USD."""
    return cost_of(_usage_before_answer(chat, 0, offer), offer.prices).total


def _usage_before_answer(chat: Chat, prompt_tokens: int, offer: Offer) -> Usage:
    """Return the length, where it is paid for, else the tokens of a recording in which much is said."""
    milliseconds = transcription_of(chat).recording.max_milliseconds
    if offer.prices.audio_minute is not None:
        return Usage(audio_milliseconds=milliseconds)
    seconds = -(-milliseconds // 1000)
    said = min(seconds * _MAX_TOKENS_WRITTEN, offer.max_output or seconds * _MAX_TOKENS_WRITTEN)
    return Usage(input=prompt_tokens, audio_input=seconds * _MAX_TOKENS_HEARD, output=said)


def _usage_without_counts(chat: Chat, prompt: int, written: int, images: int, prices: PriceCard) -> Usage:
    milliseconds = transcription_of(chat).recording.milliseconds
    if prices.audio_minute is not None:
        return Usage(audio_milliseconds=milliseconds, estimated=True)
    return Usage(input=prompt, audio_input=-(-milliseconds * _TOKENS_HEARD // 1000), output=written, estimated=True)


def _files_to_screen(chat: Chat) -> Sequence[AttachedFile]:
    recording = transcription_of(chat).recording
    return (AttachedFile("file", f"data:{recording.media_type};base64,{b64encode(recording.data).decode()}"),)


def _path_for_client(path: str) -> str:
    return "prompt" if path.startswith("messages[") else path


TASK = specialist_task(
    _MODE,
    name="transcription",
    requirements_of=_requirements_of,
    find_dialect=_find_dialect,
    list_price=_list_price,
    usage_before_answer=_usage_before_answer,
    files_to_screen=_files_to_screen,
    path_for_client=_path_for_client,
    split=None,
    may_bring_media=False,
    usage_without_counts=_usage_without_counts,
)
