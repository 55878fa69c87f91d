"""Requirements: what a chat needs of an offer, each with a name for people. Decides over values; must never choose."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from apps.catalog.catalog_cache import CatalogModel, Offer
from apps.gateway.canonical.chat import Audio, Chat, FunctionTool, Image, WebSearchTool
from apps.gateway.pictures import check_draws, draws, draws_in_chat, tests_of
from apps.gateway.routing.dialect_facts import supports_structured_output
from apps.kernel.errors import InvalidRequest


class Requirement(NamedTuple):
    """A capability that an offer must have: its name for people, the test, and the client's field that asks for it."""

    name: str
    is_met_by: Callable[[Offer], bool]
    param: str = "model"


def requirements_of(chat: Chat) -> list[Requirement]:
    """Return what an offer must be able to do, each with its name for people."""
    if chat.drawing is not None:
        return [Requirement(*test) for test in tests_of(chat, chat.drawing)]
    needs: list[Requirement] = []
    if Image in chat.kinds:
        needs.append(Requirement("image input", lambda offer: offer.vision))
    tools = set(map(type, chat.tools or ()))
    if FunctionTool in tools:
        needs.append(Requirement("tools", lambda offer: offer.tools))
        if chat.parallel_tool_calls:
            needs.append(Requirement("parallel tool calls", lambda offer: offer.parallel_tools))
    if chat.web_search or WebSearchTool in tools:
        needs.append(Requirement("web search", lambda offer: offer.web_search))
    if chat.response_format is not None and chat.response_format.kind == "json_object":
        needs.append(Requirement("JSON output", lambda offer: offer.json_output))
    if chat.response_format is not None and chat.response_format.kind == "json_schema":
        needs.append(Requirement("structured outputs", supports_structured_output))
    if chat.reasoning is not None and (chat.reasoning.max_tokens or chat.reasoning.effort not in {None, "none"}):
        needs.append(Requirement("reasoning", lambda offer: offer.reasoning))
    if chat.stream:
        needs.append(Requirement("streaming", lambda offer: offer.streaming))
    return needs


def check_model_mode(model: CatalogModel, chat: Chat) -> None:
    """Raise InvalidRequest unless the model chats and takes in what the conversation holds."""
    if chat.drawing is not None:
        check_draws(model)
        return
    if model.mode != "chat" and not draws_in_chat(model):
        kind = model.mode.replace("_", " ")
        where = "; ask for it at /v1/images/generations" if draws(model) else ""
        raise InvalidRequest(
            f"{model.id} is an {kind} model, not a chat model{where}", code="unsupported_feature", param="model"
        )
    if not _accepts_input(model, chat):
        raise InvalidRequest(f"{chat.model} does not support audio input", code="unsupported_feature", param="model")


def _accepts_input(model: CatalogModel, chat: Chat) -> bool:
    """Return whether a model takes in what the conversation holds besides text; pictures are each offer's affair."""
    return Audio not in chat.kinds or "audio" in model.input_modalities


def has_requested_mode(model: CatalogModel, chat: Chat) -> bool:
    """Return whether a model does what is asked for at all: pictures, or an answer to what the conversation holds."""
    if chat.drawing is not None:
        return draws(model)
    return model.mode == "chat" and _accepts_input(model, chat)
