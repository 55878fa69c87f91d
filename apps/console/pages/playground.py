"""The playground: a chat page for any model; its requests use the API's own code with the visitor's session.

Requests of the page run through the API's endpoint with a hidden playground key of the visitor (docs/adr/0168), so
limits, guardrails, budgets and logs apply as usual. No key appears in the page, and no database connection is held
while a model answers.

A logged request is replayed as a chat in OpenAI's format, whichever format its client used.
"""

from __future__ import annotations

from decimal import Decimal
from functools import cached_property
from typing import Any, Final

import msgspec
from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import path, reverse
from django.utils import timezone
from django.utils.translation import gettext

from apps.console.browser_session import BrowserSession
from apps.console.model_cards import FEATURES, ModelCard, current_cards
from apps.console.rendering import show
from apps.console.snippets import MAX_BODY, request_body
from apps.console.visit import signed_in_page, workspace_page
from apps.console.workspace import Workspace, organizations_of
from apps.gateway.access.policy import token_of_key
from apps.gateway.client.http_request import ClientRequest, ClientResponse
from apps.gateway.dialects import client_dialect_of
from apps.gateway.routing.availability import find_obstacle
from apps.kernel.errors import InvalidRequest, NotFound
from apps.kernel.ids import find_id
from apps.kernel.money import plain
from apps.kernel.pages.languages import gettext_lazy
from apps.kernel.postgres import database
from apps.kernel.rest.routes import Route, route_table
from apps.keys.actions import open_playground_key
from apps.keys.models import ProviderKey
from apps.logs.access import RequestedIds, access_logs, scope_of_user
from apps.logs.query import LogRow
from apps.logs.search import find_row
from apps.organizations.models import Project

# The format of a route's requests.
_FORMATS: Final = {"chat_completions": "openai", "messages": "anthropic", "responses": "responses"}
_SYSTEM: Final = frozenset({"system", "developer"})
_ENCODER: Final = msgspec.json.Encoder()


def replay_of(row: LogRow) -> dict[str, Any] | None:
    """Return a row's request for the playground, None where the row lacks it or the playground cannot send it.

    `system` is the text of a first system prompt; it is not among the `messages` then.
    """
    body = request_body(row)
    if body is None:
        return None
    asked = _in_openais_format(_FORMATS[row["route"]], body)
    if asked is None or not asked.get("messages"):
        return None
    messages, system = asked["messages"], ""
    if messages[0].get("role") in _SYSTEM and isinstance(text := _text_of(messages[0].get("content")), str):
        system, messages = text, messages[1:]
    return {
        "log": str(row["id"]),
        "model": row["requested_model"],
        "system": system,
        "messages": messages,
        "tools": asked.get("tools"),
        "temperature": row["temperature"],
        "maxTokens": row["max_tokens"],
        "effort": row["reasoning_effort"],
        "stream": bool(row["streamed"]),
    }


def _in_openais_format(name: str, body: dict[str, Any]) -> dict[str, Any] | None:
    if name == "openai":
        return body
    try:
        chat = client_dialect_of(name).read_request(_ENCODER.encode(body))
        encoded = _ENCODER.encode(client_dialect_of("openai").logged_request(chat))
    except InvalidRequest:
        # A newer version may refuse what an older one logged, and OpenAI's format lacks some parts.
        return None
    if len(encoded) > MAX_BODY:
        return None
    asked: dict[str, Any] = msgspec.json.decode(encoded)
    return asked


def _text_of(content: Any) -> Any:
    """Return the text of a message that has nothing else."""
    if isinstance(content, list) and all(isinstance(part, dict) and "text" in part for part in content):
        return "\n\n".join(str(part["text"]) for part in content)
    return content


# Operations that the page may call, and their API routes.
_ASKED_AT: Final = {
    "chat": "/v1/chat/completions",
    "images": "/v1/images/generations",
    "explain": "/v1/route/explain",
}
_TALKING: Final = frozenset({"chat", "image_generation"})
_SOURCE: Final = "playground"
_FREE: Final = gettext_lazy("free")


class PlaygroundRequest(ClientRequest):
    """A request of the page, made by the visitor for one of the organization's projects."""

    def __init__(self, environ: dict[str, Any], route: Route, workspace: Workspace, project_id: str) -> None:
        super().__init__(environ, route)
        self._workspace, self._project_id = workspace, project_id

    @cached_property
    def presented_key(self) -> str:
        """An internal token for the visitor's own playground key; headers are ignored.

        Raises NotFound for a project of another organization, and as `open_playground_key` does.
        """
        if self._project_id not in {str(project.id) for project in self._workspace.projects}:
            raise NotFound("Project not found")
        key = open_playground_key(user=self._workspace.user, project_id=self._project_id)
        # A model may take minutes to answer.
        database.release_connection()
        return token_of_key(key.id)

    @property
    def source(self) -> str | None:
        """The source recorded in the log."""
        return _SOURCE


@signed_in_page()
def enter(request: HttpRequest, visitor: BrowserSession) -> HttpResponse:
    """Redirect to the playground of the visitor's first organization, with the same query."""
    organizations = organizations_of(visitor.user)
    if not organizations:
        return redirect("console:home")
    query = f"?{request.META['QUERY_STRING']}" if request.META.get("QUERY_STRING") else ""
    return redirect(reverse("console:playground", kwargs={"organization_id": organizations[0].id}) + query)


@workspace_page()
def playground(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show the page; `model` in the query selects the model, `other` a second one for comparison.

    `log` is the id of a logged request whose chat the page begins with; it is sent only when the visitor says so.
    """
    usable = _usable_providers(workspace)
    models = [_choice(card, usable) for card in current_cards() if card.model.mode in _TALKING]
    models.sort(key=lambda one: (not one["usable"], one["id"]))
    replayed = _find_replayed(workspace, request.GET.get("log", ""))
    free = next((one["id"] for one in models if one["usable"] and one["price"] == _FREE), "auto")
    return show(
        request,
        "playground",
        workspace,
        entry="playground",
        models=models,
        feature_words=[str(label) for label in FEATURES.values()],
        projects=[project for project in workspace.projects if project.status == Project.Status.ACTIVE],
        first=request.GET.get("model", "")[:255] or (replayed or {}).get("model") or free,
        replayed=replayed,
        other=request.GET.get("other", "")[:255],
        base_url=settings.PUBLIC_URL,
    )


@workspace_page("POST")
def ask(request: HttpRequest, workspace: Workspace, asked: str) -> HttpResponseBase:
    """Answer a request of the page like the API, whole or streamed."""
    if asked not in _ASKED_AT:
        raise NotFound("There is nothing at this path")
    route = route_table().exact["POST", _ASKED_AT[asked]]
    sent = PlaygroundRequest(request.META, route, workspace, request.GET.get("project", ""))
    answer: ClientResponse = route.endpoint(sent)
    response: HttpResponseBase
    if isinstance(answer.body, list):
        response = HttpResponse(b"".join(answer.body), status=answer.status)
    else:
        response = StreamingHttpResponse(answer.body, status=answer.status)
    for name, value in answer.headers:
        # The server sets the Connection header itself.
        if name.lower() != "connection":
            response[name] = value
    return response


def _find_replayed(workspace: Workspace, log_id: str) -> dict[str, Any] | None:
    """Return a logged request of the organization for the page. Raises NotFound for one that it cannot open."""
    if not log_id:
        return None
    identifier = find_id(log_id)
    ids = RequestedIds(organization_id=str(workspace.organization.id))
    scope = access_logs(scope_of_user(workspace.user, timezone.now()), ids)
    row = None if identifier is None else find_row(scope, identifier)
    replayed = None if row is None else replay_of(row)
    if replayed is None:
        raise NotFound("The log has no chat with this id that can be repeated; its content may not be stored")
    return replayed


def _usable_providers(workspace: Workspace) -> set[str]:
    """Return providers that have a credential of the gateway or the organization; only a hint for the page."""
    own = ProviderKey.objects.filter(organization=workspace.organization, status=ProviderKey.Status.ACTIVE)
    providers = {offer.provider.id: offer.provider for card in current_cards() for offer in card.offers}
    served = {one.id for one in providers.values() if not find_obstacle(one)}
    return served | set(own.values_list("provider", flat=True))


def _choice(card: ModelCard, usable: set[str]) -> dict[str, Any]:
    is_usable = any(name in usable for name in card.providers)
    words = _price_words(card) if is_usable else f"{_price_words(card)}; {_obstacle(card)}"
    shown = set(card.features) - {"streaming"}
    return {
        "id": card.model.id,
        "name": card.model.name,
        "mode": card.model.mode,
        "usable": is_usable,
        "price": words,
        "context": card.context_length,
        # Their places in `feature_words`: written out in each choice, they are a quarter of the page.
        "features": " ".join(str(place) for place, name in enumerate(FEATURES) if name in shown),
        "efforts": ",".join(card.efforts),
        "draws": "image" in card.model.output_modalities,
        "sees": "image" in card.model.input_modalities,
    }


def _obstacle(card: ModelCard) -> str:
    """Return why none of a model's providers is reached."""
    found = {find_obstacle(offer.provider) for offer in card.offers}
    return gettext("no credential for its providers") if len(found) > 1 else gettext(found.pop()).lower()


def _price_words(card: ModelCard) -> str:
    if card.is_free:
        return _FREE
    if card.input_price is None:
        return "; ".join(card.pieces) or gettext("no price stated")
    words = gettext("${input_price} in, ${output_price} out per million tokens")
    return words.format(input_price=_short(card.input_price), output_price=_short(card.output_price or Decimal(0)))


def _short(price: Decimal) -> str:
    return plain(price.quantize(Decimal("0.0001")))


PATHS = [
    path("playground", enter, name="enter_playground"),
    path("o/<str:organization_id>/playground", playground, name="playground"),
    path("o/<str:organization_id>/playground/<str:asked>", ask, name="playground_ask"),
]
