"""Vertex AI's form of Anthropic's Messages, as `AnthropicVertex` asks: `…/anthropic/models/{model}:rawPredict`.

The path names the model, the body says Vertex AI's version and previews; all else is as at `/v1/messages`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.endpoints.messages import count_tokens, messages, read_betas

# The publisher whose models are asked in this form.
PUBLISHER: Final = "anthropic"
# The name in the path instead of a model's when tokens are counted; the body names the model then.
_COUNTER: Final = "count-tokens"
_VERSION, _BETAS, _MODEL = "anthropic_version", "anthropic_beta", "model"
# Between the name of a model and the date of its version, which other clients write with a dash.
_DATE_SIGN: Final = "@"
_UNDATED: Final = frozenset({"default", "latest"})
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_names = msgspec.json.Decoder(list[str]).decode
_encode = msgspec.json.Encoder().encode


def raw_predict(request: ClientRequest, model: str) -> ClientResponse:
    """Answer a chat request, whole or streamed as its body says, or tell how many tokens a prompt has."""
    if model == _COUNTER:
        return count_tokens(request, partial(as_message, None))
    return messages(request, partial(as_message, model))


def as_message(model: str | None, body: bytes) -> tuple[bytes, list[str]]:
    """Return a body as `/v1/messages` takes it, and the previews that it switches on; `model` is the one of the path.

    A body that is no object stays as it is: its reader refuses it.
    """
    try:
        wire = _read_fields(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body, []
    wire.pop(_VERSION, None)
    betas = _read_betas(wire.pop(_BETAS, None))
    name = model
    if name is None and _MODEL in wire:
        try:
            name = msgspec.json.decode(wire[_MODEL], type=str)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            name = None
    if name is not None:
        wire[_MODEL] = msgspec.Raw(_encode(model_name(name)))
    return _encode(wire), betas


def model_name(name: str) -> str:
    """Return a model's name as all other clients write it: Vertex AI puts the version's date behind an `@`."""
    base, sign, date = name.partition(_DATE_SIGN)
    return base if not sign or date in _UNDATED else f"{base}-{date}"


def _read_betas(words: msgspec.Raw | None) -> list[str]:
    try:
        return [] if words is None else read_betas(_read_names(words))
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []
