"""Task `speech`: reads a text aloud, and nothing else.

A request of this kind is a chat whose first message is the text, and whose second, where there is one, says how to read
it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from apps.billing.pricing import cost_of
from apps.catalog.offers import Offer
from apps.gateway.canonical.chat import Chat
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.media.speech import SpeechCapabilities, capabilities_of, speech_of, text_of
from apps.gateway.dialects.media.speech.provider import find_speech_dialect
from apps.gateway.tasks import ModelMode, Requirement, specialist_task
from apps.kernel.prices import PriceCard
from apps.kernel.usage import Usage

_MODE: Final = ModelMode("audio_speech", "speech")
# Tokens of audio that a byte of text comes to, slowly read: twenty a second, and eight letters.
_SOUND_OF_BYTE: Final = Decimal("2.5")
# Formats whose audio is not compressed: twice the bytes of others, and more, for as much of it.
_UNCOMPRESSED: Final = frozenset({"wav", "pcm"})
_PATHS: Final = {"messages[0]": "input", "messages[1]": "instructions"}
_PLACE: Final = re.compile(r"(messages\[[01]\])\.content\[0\]\.text")


def _requirements_of(chat: Chat) -> list[Requirement]:
    """Return what an offer must take: the length of the text, the format of the audio, the voice and its speed."""
    speech, count = speech_of(chat), len(text_of(chat))
    form = speech.response_format
    needs = [
        Requirement(f"texts of {count} characters", _can(lambda model: count <= model.most_characters), "input"),
        Requirement(f"audio as {form}", _can(lambda model: form in model.formats), "response_format"),
    ]
    if speech.speed not in (None, 1):
        needs.append(Requirement("another speed", _can(lambda model: "speed" in model.takes), "speed"))
    if speech.is_custom_voice:
        needs.append(Requirement("voices by id", _can(lambda model: "custom_voice" in model.takes), "voice"))
    return needs


def _can(test: Callable[[SpeechCapabilities], bool]) -> Callable[[Offer], bool]:
    def is_met_by(offer: Offer) -> bool:
        capabilities = capabilities_of(offer.facts)
        return capabilities is not None and test(capabilities)

    return is_met_by


def _find_dialect(chat: Chat, offer: Offer) -> ProviderDialect | None:
    return find_speech_dialect(offer.facts, speech_of(chat).response_format)


def _list_price(chat: Chat, offer: Offer) -> Decimal:
    """Return what the speech costs at most, in USD."""
    return cost_of(_usage_before_answer(chat, 0, offer), offer.prices).total


def _usage_before_answer(chat: Chat, prompt_tokens: int, offer: Offer) -> Usage:
    """Return the characters, where these are paid for, else the tokens of a text that is read slowly."""
    if offer.prices.characters is not None:
        return Usage(characters=len(text_of(chat)))
    return Usage(input=prompt_tokens, audio_output=_max_audio_tokens(chat))


def _max_audio_tokens(chat: Chat) -> int:
    speed = Decimal(str(min(speech_of(chat).speed or 1, 1)))
    return int(len(text_of(chat).encode("utf-8", "replace")) * _SOUND_OF_BYTE / speed) + 1


def _usage_without_counts(chat: Chat, prompt: int, written: int, images: int, prices: PriceCard) -> Usage:
    """Return the characters, which need no provider's count, else tokens estimated from the audio so far.

    `written` are tokens of audio as they weigh when compressed.
    """
    if prices.characters is not None:
        return Usage(characters=len(text_of(chat)))
    said = written // 2 if speech_of(chat).response_format in _UNCOMPRESSED else written
    return Usage(input=prompt, audio_output=min(said, _max_audio_tokens(chat)), estimated=True)


def _path_for_client(path: str) -> str:
    return _PLACE.sub(lambda found: _PATHS[found[1]], path)


TASK = specialist_task(
    _MODE,
    name="speech",
    requirements_of=_requirements_of,
    find_dialect=_find_dialect,
    list_price=_list_price,
    usage_before_answer=_usage_before_answer,
    files_to_screen=lambda chat: (),
    path_for_client=_path_for_client,
    split=None,
    may_bring_media=True,
    usage_without_counts=_usage_without_counts,
)
