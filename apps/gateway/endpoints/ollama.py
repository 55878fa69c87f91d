"""Ollama's API at `/api`: chats, completions and embeddings in and out, for every model, and listings of the models.

Lists are public, but a wrong key is refused. No model is ever loaded into memory or unloaded: a request that asks for
nothing else is answered as if that were done.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import lru_cache, partial
from typing import Any, Final

import msgspec

from apps.catalog import catalog_cache
from apps.catalog.client_listings import build_ollama_model, list_ollama_models
from apps.catalog.offers import Catalog, resolve
from apps.catalog.views import OwnListing
from apps.gateway.access.policy import Policy, find_policy
from apps.gateway.admission.byte_budget import read_body
from apps.gateway.canonical.chat import Chat
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects import ClientDialect
from apps.gateway.dialects.chat.ollama import CLIENT
from apps.gateway.dialects.chat.ollama.read_request import MAX_MODEL, NothingAsked
from apps.gateway.dialects.chat.ollama.wire import encode, model_name, write_time
from apps.gateway.dialects.chat.ollama.write_reply import Shape, as_message, as_response
from apps.gateway.dialects.chat.ollama_generate import CLIENT as GENERATE
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import Malformed, Record, filled_string, optional
from apps.gateway.dialects.values.embeddings import client as vectors
from apps.gateway.endpoints.answering import (
    ReplyWriter,
    answer_authenticated,
    answer_with_errors,
    complete_response,
    json_response,
    run_in_dialect,
)
from apps.gateway.endpoints.models import check_key_if_presented, own_listing
from apps.gateway.endpoints.specialists import EMBEDDINGS
from apps.gateway.metrics import RouteName
from apps.gateway.pipeline import open_chat
from apps.kernel.concurrency.native_thread_pool import LARGE, offload

# The version of Ollama whose API this is: clients ask for it before they use what a version brought.
VERSION: Final = "0.12.11"
_JSON: Final = "application/json"
# Curl's default for a body, as in all examples of Ollama's reference.
_CURL: Final = "application/x-www-form-urlencoded"


def chat(request: ClientRequest) -> ClientResponse:
    """Answer a chat request, whole or streamed."""
    return _answer(request, "ollama_chat", CLIENT, as_message)


def generate(request: ClientRequest) -> ClientResponse:
    """Answer a prompt, whole or streamed."""
    return _answer(request, "ollama_generate", GENERATE, as_response)


def embed(request: ClientRequest) -> ClientResponse:
    """Answer a request for the vectors of one text or several."""
    return _embed(request, vectors.read_ollama_request, vectors.write_ollama_reply)


def embeddings(request: ClientRequest) -> ClientResponse:
    """Answer a request for the vector of one text, in the older format."""
    return _embed(request, vectors.read_ollama_single, vectors.write_ollama_single)


def tags(request: ClientRequest) -> ClientResponse:
    """Answer with the models that chat or make embeddings, an organization's own first."""

    def write(policy: Policy | None) -> bytes:
        return _listing(catalog_cache.current(), _today(), None if policy is None else own_listing(policy))

    return _public(request, write)


def running(request: ClientRequest) -> ClientResponse:
    """Answer that no model is loaded into memory: none has to be."""
    return _public(request, lambda _: encode({"models": []}))


def version(request: ClientRequest) -> ClientResponse:
    """Answer with the version of Ollama whose API this is."""
    return _public(request, lambda _: encode({"version": VERSION}))


def show(request: ClientRequest) -> ClientResponse:
    """Answer with the description of a model, by any name that requests may have for it."""
    _accept_curl(request)

    def answer(token: str) -> ClientResponse:
        policy = find_policy(token)
        body, _ = read_body(request, policy.organization_id)
        name = fields.read_body(body, frozenset(), _shown_model)
        own = own_listing(policy)
        mine = None if own is None else own.find(name)
        if mine is not None:
            return json_response(encode(build_ollama_model(mine, mine.offers)))
        resolved = resolve(catalog_cache.current(), name, _today())
        offers = [offer for offer in resolved.offers if offer.is_live(_today())]
        return json_response(encode(build_ollama_model(resolved.model, offers)))

    return answer_authenticated(request, "ollama_show", CLIENT, answer)


def _answer(request: ClientRequest, route: RouteName, dialect: ClientDialect, shape: Shape) -> ClientResponse:
    _accept_curl(request)

    def run() -> ClientResponse:
        try:
            return run_in_dialect(request, route, dialect)
        except NothingAsked as question:
            resolved = resolve(catalog_cache.current(), question.model, _today())
            end = {"done": True, "done_reason": question.done_reason}
            return json_response(encode({"model": resolved.model.id, "created_at": write_time(0), **shape({}), **end}))

    return answer_with_errors(request, route, dialect, run)


def _embed(request: ClientRequest, read: Callable[[bytes], Chat], write_reply: ReplyWriter) -> ClientResponse:
    _accept_curl(request)

    def read_apart(body: bytes) -> Chat:
        return offload(len(body), partial(read, body))

    def answer(token: str) -> ClientResponse:
        return complete_response(open_chat(request, EMBEDDINGS, token, read_apart), write_reply)

    return answer_authenticated(request, EMBEDDINGS, CLIENT, answer)


def _public(request: ClientRequest, write: Callable[[Policy | None], bytes]) -> ClientResponse:
    def answer() -> ClientResponse:
        return json_response(write(check_key_if_presented(request)))

    return answer_with_errors(request, "ollama_models", CLIENT, answer)


def _accept_curl(request: ClientRequest) -> None:
    request.accepted_content_types = (_JSON, _CURL)


@lru_cache(maxsize=8)
def _listing(catalog: Catalog, today: date, own: OwnListing | None) -> bytes:
    """Return the list; catalogs are compared by identity, one for each generation."""
    models = [*(() if own is None else own.read()), *sorted(catalog.models.values(), key=lambda model: model.id)]
    return offload(LARGE, lambda: msgspec.json.encode({"models": list_ollama_models(models, today)}))


def _shown_model(wire: Record) -> str:
    """Read the model's name, under the field of today or the one before it."""
    return optional(wire, "model", _name) or _required_name(wire)


def _required_name(wire: Record) -> str:
    name = optional(wire, "name", _name)
    if name is None:
        raise Malformed("Required", "model")
    return name


def _name(value: Any) -> str:
    if len(filled_string(value)) > MAX_MODEL:
        raise Malformed(f"must be at most {MAX_MODEL} characters long")
    return model_name(str(value))


def _today() -> date:
    return datetime.now(UTC).date()
