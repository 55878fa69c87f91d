"""Task `chat`: a conversation is answered with text and tool calls, sometimes with images or audio.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal

from apps.catalog.offers import CatalogModel, Offer
from apps.gateway.canonical.chat import (
    FAST_TIER,
    Audio,
    Chat,
    FunctionTool,
    Image,
    OpaqueTool,
    WebSearchTool,
    asked_region,
    asked_service_tier,
)
from apps.gateway.canonical.hosted_tools import X_SEARCH, count_searches, hosted_tools
from apps.gateway.dialects import ProviderDialect, find_dialect
from apps.gateway.dialects.adapting.emulated_tools import is_optional_search
from apps.gateway.dialects.adapting.unsupported_fields import client_name_of
from apps.gateway.tasks import Requirement, Task, hint_of, supports_structured_output
from apps.gateway.tasks.images import draws, draws_in_chat
from apps.gateway.token_estimate import estimate_usage
from apps.kernel.errors import InvalidRequest
from apps.kernel.money import ZERO
from apps.kernel.usage import Usage


def _requirements_of(chat: Chat) -> list[Requirement]:
    needs: list[Requirement] = []
    if Image in chat.kinds:
        needs.append(Requirement("image input", lambda offer: offer.vision))
    tools = set(map(type, chat.tools or ()))
    if FunctionTool in tools:
        needs.append(Requirement("tools", lambda offer: offer.tools))
        if chat.parallel_tool_calls:
            needs.append(Requirement("parallel tool calls", lambda offer: offer.parallel_tools))
    if chat.web_search or WebSearchTool in tools:
        optional = is_optional_search(chat)
        needs.append(Requirement("web search", lambda offer: offer.web_search, optional=optional))
    if chat.response_format is not None and chat.response_format.kind == "json_object":
        needs.append(Requirement("JSON output", lambda offer: offer.json_output, "response_format"))
    if chat.response_format is not None and chat.response_format.kind == "json_schema":
        needs.append(Requirement("structured outputs", supports_structured_output, "response_format"))
    if _asks_reasoning(chat):
        needs.append(Requirement("reasoning", lambda offer: offer.reasoning))
    if chat.logprobs:
        needs.append(Requirement("logprobs", _tells_logprobs, "logprobs"))
    if chat.stream:
        needs.append(Requirement("streaming", lambda offer: offer.streaming))
    if chat.service_tier is not None or chat.extra is not None or OpaqueTool in tools:
        needs += _priced_options(chat)
    return needs


def _priced_options(chat: Chat) -> Iterator[Requirement]:
    """Yield what a chat asks for that has prices of its own: an offer without such a price is not a candidate."""
    if tier := asked_service_tier(chat):
        field = "speed" if tier == FAST_TIER else "service_tier"
        yield Requirement(
            f"the service tier {tier[:40]}",
            lambda offer: tier in offer.prices.service_tiers or offer.prices.unpriced,
            client_name_of(chat, field),
        )
    if region := asked_region(chat):
        yield Requirement(
            f"answers from the region {region[:40]}",
            lambda offer: region in offer.prices.regions or offer.prices.unpriced,
            "inference_geo",
        )
    for at, name, _ in hosted_tools(chat):
        yield Requirement(
            f"the tool {name}", _prices_tool(name), "tools" if chat.dialect == "google" else f"tools[{at}]"
        )


def _prices_tool(name: str) -> Callable[[Offer], bool]:
    return lambda offer: name in offer.prices.tools or offer.prices.unpriced


def _tells_logprobs(offer: Offer) -> bool:
    """Return whether the provider returns the probabilities of tokens on request."""
    dialect = find_dialect(offer.dialect)
    if dialect is None or not dialect.has_logprobs:
        return False
    return "logprobs" not in offer.facts.get("unsupported", ())


def _check_model(model: CatalogModel, chat: Chat) -> None:
    """Raise InvalidRequest unless the model chats and takes in what the conversation holds."""
    if model.mode != "chat" and not draws_in_chat(model):
        kind = model.mode.replace("_", " ")
        article = "an" if kind[0] in "aeiou" else "a"
        where = hint_of("" if kind == "image generation" and not draws(model) else model.mode)
        raise InvalidRequest(
            f"{model.id} is {article} {kind} model, not a chat model{where}", code="unsupported_feature", param="model"
        )
    if not _accepts_input(model, chat):
        raise InvalidRequest(f"{chat.model} does not support audio input", code="unsupported_feature", param="model")


def _is_served_by(model: CatalogModel, chat: Chat) -> bool:
    return model.mode == "chat" and _accepts_input(model, chat)


def _accepts_input(model: CatalogModel, chat: Chat) -> bool:
    """Return whether a model takes in what the conversation holds besides text; images are each offer's affair."""
    return Audio not in chat.kinds or "audio" in model.input_modalities


def _find_dialect(chat: Chat, offer: Offer) -> ProviderDialect | None:
    """Return the client's format where the provider takes that too, else the one for what the chat asks for."""
    facts = offer.facts
    if chat.dialect is not None and chat.dialect in facts.get("client_dialects", ()):
        return find_dialect(chat.dialect)
    name = None
    if "search_dialect" in facts and (chat.web_search or _has_search(chat)):
        name = facts["search_dialect"]
    elif chat.tools:
        name = facts.get("tools_dialect")
        if name is None and (_asks_reasoning(chat) or chat.effort is not None):
            name = facts.get("reasoning_tools_dialect")
    return find_dialect(name or offer.dialect)


def _asks_reasoning(chat: Chat) -> bool:
    """Return whether a chat states an effort other than `none`, or a number of tokens to think."""
    asked = chat.reasoning
    return asked is not None and (bool(asked.max_tokens) or asked.effort not in {None, "none"})


def _has_search(chat: Chat) -> bool:
    return chat.tools is not None and any(
        type(tool) is WebSearchTool or (isinstance(tool, OpaqueTool) and tool.data.get("type") == X_SEARCH)
        for tool in chat.tools
    )


def _list_price(chat: Chat, offer: Offer) -> Decimal:
    """Return what a token of the prompt and one of the answer cost together, in USD per million: both weigh alike."""
    return (offer.prices.input or ZERO) + (offer.prices.output or ZERO)


def _usage_before_answer(chat: Chat, prompt_tokens: int, offer: Offer) -> Usage:
    """Return the prompt, the searches, those too that a model makes unasked, and the calls of the provider's tools;
    where a model draws in chats, an answer may bring an image."""
    if offer.facts.get("images"):
        return estimate_usage(prompt_tokens, 0, chat.answers, offer.prices)
    card = offer.prices
    searches = 0
    if card.web_search or card.grounded_request or card.search_sizes:
        searches = max(count_searches(chat), offer.facts.get("searches_unasked", 0))
    if sizes := card.search_sizes:
        dearest = max(sizes, key=lambda size: sizes[size])
        return Usage(input=prompt_tokens, web_searches=searches, search_size=dearest)
    tool_calls = {name: most for _, name, most in hosted_tools(chat)} if card.tools and chat.tools else None
    return Usage(input=prompt_tokens, web_searches=searches, tool_calls=tool_calls or None)


def _may_bring_media(chat: Chat, offer: Offer) -> bool:
    return bool(chat.modalities or chat.audio is not None or offer.facts.get("images"))


TASK = Task(
    name="chat",
    requirements_of=_requirements_of,
    check_model=_check_model,
    is_served_by=_is_served_by,
    find_dialect=_find_dialect,
    list_price=_list_price,
    count_images=lambda chat: 0,
    fits_context=True,
    usage_before_answer=_usage_before_answer,
    writes_tokens=True,
    files_to_screen=lambda chat: (),
    path_for_client=None,
    adapt_request=lambda chat, target: chat,
    split=None,
    may_bring_media=_may_bring_media,
    fetches_images=False,
    # An empty answer is an answer.
    find_missing_result=lambda images, finish: None,
    usage_without_counts=lambda chat, *counts: estimate_usage(*counts),
)
