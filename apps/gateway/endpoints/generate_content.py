"""`POST /v1beta/models/{model}:generateContent` and its kin: Google's format in and out, for every model.

The path names the model and, behind the colon, the method; its query says whether a stream comes as events or as one
JSON array. Google Cloud's longer paths lead here as well, with Vertex AI's form of Anthropic's Messages
(`…/anthropic/models/{model}:rawPredict`): the path names the model, the body has Vertex AI's version and previews, and
all else is as at `/v1/messages`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

import msgspec

from apps.gateway.access.policy import find_current_policy, find_policy
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.count_tokens import count_tokens as prompt_tokens
from apps.gateway.dialects.chat.google import CLIENT
from apps.gateway.dialects.chat.google.client.read_request import read_prompt, read_request
from apps.gateway.dialects.chat.google.client.write_reply import write_array
from apps.gateway.endpoints.answering import answer_authenticated, answer_chat, json_response
from apps.gateway.endpoints.messages import count_tokens, messages, read_betas
from apps.gateway.endpoints.specialists import batch_embed_contents, embed_content
from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import NotFound

# Google's own publisher of models; any other is a provider here.
_GOOGLE = "google"
_PREFIXES = ("models/", "tunedModels/")
# Bytes of a path's method that an error repeats.
_MAX_QUOTED = 64
_ARRAY_TYPE = "application/json; charset=UTF-8"


# Streams as one JSON array, for clients that do not ask for events.
_ARRAY = replace(CLIENT, write_events=write_array, stream_type=_ARRAY_TYPE)


def model_method(request: ClientRequest) -> ClientResponse:
    """Answer a method of a model: `generateContent`, `embedContent`, `countTokens` …"""
    name, method = request.parameters["name"], request.route.path.rpartition(">:")[2]
    if method not in MODEL_METHODS:
        name, colon, method = name.rpartition(":")
        method = method if colon else ""
    if method in _RAW_METHODS and request.parameters.get("publisher") == PUBLISHER:
        return raw_predict(request, name)
    answer = _METHODS.get(method)
    if answer is None:
        return answer_authenticated(request, "generate_content", CLIENT, partial(_refuse, method))
    return answer(request, _model_of(name, request.parameters.get("publisher")))


def _model_of(name: str, publisher: str | None) -> str:
    """Return the model that a path names. Clients write `models/` before names that have it already, or not at all."""
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name if publisher in (None, _GOOGLE) else f"{publisher}/{name}"


def _refuse(method: str, token: str) -> ClientResponse:
    find_current_policy(token)
    served = ", ".join(_METHODS)
    if not method:
        raise NotFound(f"There is nothing at this path; a model's methods are: {served}")
    raise NotFound(f"`{method[:_MAX_QUOTED]}` is no method of a model here; these are: {served}")


def _generate(request: ClientRequest, model: str) -> ClientResponse:
    return answer_chat(request, "generate_content", CLIENT, _reader(model, stream=False))


def _stream(request: ClientRequest, model: str) -> ClientResponse:
    dialect = CLIENT if request.query_parameter("alt") == "sse" else _ARRAY
    return answer_chat(request, "generate_content", dialect, _reader(model, stream=True))


def _reader(model: str, *, stream: bool) -> Callable[[bytes], Chat]:
    def read(body: bytes) -> Chat:
        return offload(len(body), partial(read_request, body, model, stream=stream))

    return read


def _count(request: ClientRequest, model: str) -> ClientResponse:
    """Tell how many tokens a prompt has: the provider's count, else about how many. Free, and nothing is recorded."""

    def count(token: str) -> ClientResponse:
        policy = find_policy(token)
        body, hold = read_body(request, policy.organization_id)
        chat = offload(len(body), partial(read_prompt, body, model))
        tokens = prompt_tokens(policy, chat, token, body, hold.reserve)
        details = [{"modality": "TEXT", "tokenCount": tokens}]
        return json_response(msgspec.json.encode({"totalTokens": tokens, "promptTokensDetails": details}))

    return answer_authenticated(request, "generate_content", CLIENT, count)


# Methods of Vertex AI's that are asked in a publisher's own format.
_RAW_METHODS = frozenset({"rawPredict", "streamRawPredict"})
# Methods of Google's that have paths of their own.
MODEL_METHODS = ("generateContent", "streamGenerateContent", "countTokens", "embedContent", "batchEmbedContents")
_METHODS: dict[str, Callable[[ClientRequest, str], ClientResponse]] = {
    "generateContent": _generate,
    "streamGenerateContent": _stream,
    "countTokens": _count,
    "embedContent": embed_content,
    "batchEmbedContents": batch_embed_contents,
}


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
