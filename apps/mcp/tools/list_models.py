"""The tools `list-models` and `list-image-models`: the models that a caller may ask.

Only what the key's access rules allow, and what there is a credential for, is told: nothing else would answer. The
rules are the routing's own. Must never ask a provider.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from apps.catalog import catalog_cache
from apps.catalog.model_listing import build_entry
from apps.catalog.offers import Offer
from apps.gateway.access.credentials import credentials_for
from apps.gateway.access.policy import Policy
from apps.gateway.routing.candidates import Candidate
from apps.keys.iam import first_refusal
from apps.mcp.protocol.toolbox import Caller, CallResult, text_block

NAME, NAME_OF_IMAGES = "list-models", "list-image-models"
_IMAGE: Final = "image"


class ListArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which models are wanted."""

    family: Annotated[str, Meta(max_length=100, description="Of this family alone, such as gpt or claude.")] | None = (
        None
    )
    query: Annotated[str, Meta(max_length=100, description="Whose id or name has this.")] | None = None
    exclude_deprecated: bool = False
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class ListedModel(msgspec.Struct, kw_only=True):
    """A model; prices are the cheapest provider's, in USD for one token, a decimal."""

    id: str
    name: str
    family: str
    description: str
    input_modalities: list[str]
    output_modalities: list[str]
    context_length: int
    input_price: str
    output_price: str
    image_price: str
    free: bool
    providers: list[str]


class ListedModels(msgspec.Struct, kw_only=True):
    """The models, and how many there are of this kind in all."""

    models: list[ListedModel]
    total: int


def list_models(caller: Caller, arguments: ListArguments) -> CallResult:
    """Return the models that answer chats."""
    return _result(caller.policy, arguments, lambda mode, _: mode == "chat")


def list_image_models(caller: Caller, arguments: ListArguments) -> CallResult:
    """Return the models that draw."""
    return _result(caller.policy, arguments, lambda mode, outputs: mode == "image_generation" or _IMAGE in outputs)


def _result(policy: Policy, arguments: ListArguments, is_wanted: Any) -> CallResult:
    today, found = datetime.now(UTC).date(), []
    wanted = (arguments.query or "").lower()
    for model in catalog_cache.current().models.values():
        if not is_wanted(model.mode, model.output_modalities):
            continue
        if arguments.family is not None and model.family != arguments.family:
            continue
        if wanted not in model.id.lower() and wanted not in model.name.lower():
            continue
        offers = [
            offer
            for offer in model.offers
            if offer.is_live(today)
            and not (arguments.exclude_deprecated and offer.is_deprecated(today))
            and _is_open_to(policy, offer)
        ]
        if offers:
            found.append(_listed(build_entry(model, offers)))
    answer = ListedModels(models=found[: arguments.limit], total=len(found))
    lines = [f"{model.id}: {model.description}" for model in answer.models]
    if len(found) > arguments.limit:
        lines.append(f"{len(found) - arguments.limit} more: raise limit, or narrow by family or query")
    text = "\n".join(lines) or "There is no such model that this API key may use."
    return CallResult(content=[text_block(text)], structured=msgspec.to_builtins(answer))


def _is_open_to(policy: Policy, offer: Offer) -> bool:
    """Tell whether a caller's request could go there."""
    credentials = credentials_for(policy, offer.provider)
    return bool(credentials) and (
        first_refusal(policy.rules, Candidate(offer, credentials[0], offer.model_name)) is None
    )


def _listed(entry: dict[str, Any]) -> ListedModel:
    return ListedModel(
        id=entry["id"],
        name=entry["name"],
        family=entry["family"],
        description=entry["description"],
        input_modalities=list(entry["architecture"]["input_modalities"]),
        output_modalities=list(entry["architecture"]["output_modalities"]),
        context_length=entry["context_length"],
        input_price=entry["pricing"]["prompt"],
        output_price=entry["pricing"]["completion"],
        image_price=entry["pricing"]["image"],
        free=entry["free"],
        providers=[provider["providerId"] for provider in entry["providers"]],
    )
