"""`POST /v1beta/models/{model}:generateContent` and its kin: Google's format in and out, for every model.

The path says which model is asked, what of it (the word behind the colon), and its query whether a stream comes as
events or as one JSON array. Google Cloud's longer paths lead here as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
from msgspec.structs import replace

from apps.gateway.access.policy import find_current_policy, find_policy
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.count_tokens import count_tokens as prompt_tokens
from apps.gateway.dialects.chat.google import CLIENT
from apps.gateway.dialects.chat.google.client.read_request import read_prompt, read_request
from apps.gateway.dialects.chat.google.client.write_reply import write_array
from apps.gateway.endpoints.answering import answer_authenticated, answer_chat, json_response
from apps.gateway.endpoints.embeddings import batch_embed_contents, embed_content
from apps.gateway.endpoints.raw_predict import PUBLISHER, raw_predict
from apps.kernel.errors import NotFound
from apps.kernel.offload import offload

# Google's own publisher of models; any other is a provider here.
_GOOGLE = "google"
_PREFIXES = ("models/", "tunedModels/")
# Bytes of a path's method that an error repeats.
_MAX_QUOTED = 64
_ARRAY_TYPE = "application/json; charset=UTF-8"


# Streams as one JSON array, for clients that do not ask for events.
_ARRAY = replace(CLIENT, write_events=write_array)


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
    read = _reader(model, stream=True)
    if request.query_parameter("alt") == "sse":
        return answer_chat(request, "generate_content", CLIENT, read)
    answer = answer_chat(request, "generate_content", _ARRAY, read)
    if answer.status == 200:
        others = [(name, value) for name, value in answer.headers if name.lower() != "content-type"]
        answer.headers = [("Content-Type", _ARRAY_TYPE), *others]
    return answer


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
