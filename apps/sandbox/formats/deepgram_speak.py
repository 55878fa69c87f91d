"""Deepgram's speech: `POST /v1/speak`, with the voice in the model's name; answers are sound."""
# alone: a format, found by the folder that it is in

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Struct

from apps.sandbox.conversation import Conversation, Turn
from apps.sandbox.formats import SpecialistFormat
from apps.sandbox.scenario import SandboxRefusal

_VOICE = re.compile(r"-[a-z]+-[a-z]{2}$")
_SCHEME = "Token "


class _Request(Struct, forbid_unknown_fields=True):
    text: str


def find_token(headers: Mapping[str, str]) -> str | None:
    """Return the credential that the request presents, if any."""
    presented = headers.get("authorization", "")
    return presented.removeprefix(_SCHEME) if presented.startswith(_SCHEME) else None


def read_request(path: str, body: bytes) -> Conversation:
    """Return what the request says. Raises Refusal (400), as Deepgram does."""
    query = parse_qs(urlsplit(path).query)
    try:
        asked = msgspec.json.decode(body, type=_Request)
    except msgspec.MsgspecError as error:
        raise SandboxRefusal(400, f"Invalid request: {error}") from error
    model = query.get("model", [""])[0]
    if not _VOICE.search(model) or query.get("encoding", ["mp3"])[0] not in {"mp3", "opus", "aac", "flac", "linear16"}:
        raise SandboxRefusal(400, "No such model/language/tier combination found.", code="INVALID_QUERY_PARAMETER")
    return Conversation(model=_VOICE.sub("", model), turns=(Turn("user", asked.text),), streamed=True, speaks=True)


def write_error(refusal: SandboxRefusal) -> bytes:
    """Return the body of an error."""
    return msgspec.json.encode({"err_code": refusal.code or "ERROR", "err_msg": refusal.message, "request_id": "r"})


FORMAT = SpecialistFormat("/v1/speak", find_token, read_request, None, write_error, reads_query=True)
