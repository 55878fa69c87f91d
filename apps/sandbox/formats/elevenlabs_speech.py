"""ElevenLabs's speech: `POST /v1/text-to-speech/{voice}/stream`; answers are sound."""
# alone: a format, found by the folder that it is in

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct

from apps.sandbox.conversation import Conversation, Turn
from apps.sandbox.formats import SpecialistFormat
from apps.sandbox.scenario import SandboxRefusal

_FORMATS = frozenset({"mp3_44100_128", "opus_48000_128", "pcm_24000"})


class _Settings(Struct, forbid_unknown_fields=True, frozen=True):
    speed: float = 1.0


class _Request(Struct, forbid_unknown_fields=True):
    text: str
    model_id: str
    voice_settings: _Settings = _Settings()


def find_token(headers: Mapping[str, str]) -> str | None:
    """Return the credential that the request presents, if any."""
    return headers.get("xi-api-key")


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (422), as ElevenLabs does."""
    try:
        asked = msgspec.json.decode(body, type=_Request)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(422, f"Invalid request: {error}") from error
    if parse_qs(urlsplit(path).query).get("output_format", [""])[0] not in _FORMATS:
        raise SandboxRefusal(422, "Invalid output format", param="output_format")
    return Conversation(model=asked.model_id, turns=(Turn("user", asked.text),), streamed=True, speaks=True)


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return the body of an error."""
    return msgspec.json.encode({"detail": {"status": refusal.code or "error", "message": refusal.message}})


FORMAT = SpecialistFormat(
    "/v1/text-to-speech/[A-Za-z0-9]+/stream", find_token, read_request, None, write_error, reads_query=True
)
