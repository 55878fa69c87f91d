"""Answer record: the fields of a record that a model's answer fills, each within its bound.

Text that is cut ends with a mark that counts the missing characters. Images and audio are encrypted here, so that they
are nowhere in clear on their way to the row.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64Error
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from apps.gateway.canonical.chat import Chat
from apps.gateway.canonical.events import Choice, Reply
from apps.kernel.secrets.encryption import encrypt_content
from apps.logs.answers import MAX_MEDIA, MAX_MEDIA_BYTES, audio_type_of
from apps.logs.entry import Entry

# Calls of tools, names of called tools, and citations in a record.
MAX_CALLS: Final = 256
MAX_CALLED_NAMES: Final = 64
MAX_CITATIONS: Final = 256
# Characters: of one call's arguments, of all calls' arguments, of a refusal, of a name or an id.
MAX_ARGUMENTS: Final = 65_536
MAX_ALL_ARGUMENTS: Final = 1_048_576
MAX_REFUSAL: Final = 65_536
MAX_NAME: Final = 255
# Bytes of one citation as JSON.
MAX_CITATION: Final = 16_384
_ENCODER = msgspec.json.Encoder()


def count_call(counts: dict[str, int], name: str) -> None:
    """Count a call of the tool `name`; names past the bound are counted together."""
    name = name[:MAX_NAME]
    if name not in counts and len(counts) >= MAX_CALLED_NAMES:
        name = "…"
    counts[name] = counts.get(name, 0) + 1


def keep_answer(entry: Entry, chat: Chat, reply: Reply, speech: bytes | None = None) -> None:
    """Write the answer to a chat into its record; `speech` is audio of a text that was read aloud.

    With several choices, `content` and `refusal` have all of their texts, one after another, and `choices` has the
    length of each: no text is stored twice.
    """
    choices = reply.choices
    entry.content = _joined(choice.text for choice in choices)
    entry.reasoning_content = "".join(block.text for choice in choices for block in choice.reasoning) or None
    refusal = _joined(choice.refusal for choice in choices)
    entry.refusal = None if refusal is None else _cut(refusal, MAX_REFUSAL)
    entry.tool_calls = _calls_of(choices) or None
    entry.citations = _citations_of(choices) or None
    if len(choices) > 1 and any(choice.text or choice.refusal or choice.tool_calls for choice in choices):
        entry.choices = [_outline_of(number, choice) for number, choice in enumerate(choices)]
    entry.media, entry.media_data = _store(_media_of(choices, speech, _audio_format_of(chat)), str(entry.id))


def _joined(texts: Iterator[str | None]) -> str | None:
    return "\n".join(text for text in texts if text is not None) or None


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}… [{len(text) - length} more characters]"


def _outline_of(number: int, choice: Choice) -> dict[str, Any]:
    lengths = {"contentLength": choice.text, "refusalLength": choice.refusal}
    return {
        "index": number,
        "finishReason": choice.native_finish or choice.finish,
        **{name: len(text) for name, text in lengths.items() if text is not None},
    }


def _of_choice(number: int) -> dict[str, int]:
    """Return the mark of a part of another choice than the first."""
    return {"choice": number} if number else {}


def _calls_of(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    calls, left, number_of_calls = list[dict[str, Any]](), MAX_ALL_ARGUMENTS, 0
    for number, choice in enumerate(choices):
        for call in choice.tool_calls:
            number_of_calls += 1
            if len(calls) == MAX_CALLS:
                continue
            arguments = _cut(call.arguments, min(MAX_ARGUMENTS, left))
            left = max(0, left - len(arguments))
            one = {"id": call.id[:MAX_NAME], "name": call.name[:MAX_NAME], "arguments": arguments}
            calls.append({**one, **_of_choice(number)})
    return _marked(calls, number_of_calls)


def _citations_of(choices: Sequence[Choice]) -> list[dict[str, Any]]:
    citations = [
        {**annotation, **_of_choice(number)}
        for number, choice in enumerate(choices)
        for annotation in choice.annotations
    ]
    return _marked([_bounded(one) for one in citations[:MAX_CITATIONS]], len(citations))


def _bounded(citation: dict[str, Any]) -> dict[str, Any]:
    size = len(_ENCODER.encode(citation))
    return citation if size <= MAX_CITATION else {"type": str(citation.get("type"))[:MAX_NAME], "omittedBytes": size}


def _marked(kept: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """Return a list with the number of the values that it lacks as its last value."""
    return [*kept, {"omitted": number - len(kept)}] if number > len(kept) else kept


def _audio_format_of(chat: Chat) -> object:
    """Return the name of the format that audio was asked for in."""
    return chat.speech.response_format if chat.speech is not None else (chat.audio or {}).get("format")


# A description, and the bytes where the answer has them.
_Medium = tuple[dict[str, Any], bytes | None]


def _store(media: Iterator[_Medium], name: str) -> tuple[list[dict[str, Any]] | None, str | None]:
    """Return the descriptions of images and audio, and the encrypted bytes of those that are stored."""
    described, stored, left = list[dict[str, Any]](), list[bytes](), MAX_MEDIA_BYTES
    for description, data in islice(media, MAX_MEDIA):
        is_stored = data is not None and len(data) <= left
        if data is not None:
            description["size"] = len(data)
            if is_stored:
                stored.append(data)
                left -= len(data)
        described.append({**description, "stored": is_stored})
    return described or None, encrypt_content(b"".join(stored), name).decode() if stored else None


def _media_of(choices: Sequence[Choice], speech: bytes | None, audio_format: object) -> Iterator[_Medium]:
    audio_type = audio_type_of(audio_format)
    for number, choice in enumerate(choices):
        of_choice = _of_choice(number)
        for url in choice.images:
            if url.startswith("data:"):
                head, _, text = url.partition(",")
                content_type = head.removeprefix("data:").partition(";")[0][:MAX_NAME]
                yield {"kind": "image", "contentType": content_type, **of_choice}, _decoded(text)
            else:
                yield {"kind": "image", "url": _cut(url, MAX_CITATION), **of_choice}, None
        if choice.audio is not None and choice.audio.data:
            transcript = {"transcript": _cut(choice.audio.transcript, MAX_REFUSAL)} if choice.audio.transcript else {}
            yield {"kind": "audio", "contentType": audio_type, **transcript, **of_choice}, _decoded(choice.audio.data)
    if speech:
        yield {"kind": "audio", "contentType": audio_type}, speech


def _decoded(text: str) -> bytes:
    """Return the bytes of base64; none of text that is no base64."""
    try:
        return b64decode(text)
    except (NotBase64Error, ValueError):
        return b""
