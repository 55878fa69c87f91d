"""The tools `list-models` and `list-image-models`: the models that a caller may use.

They list only models that the key's access rules allow and for which there is a credential, by the routing's own rules.
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
from apps.gateway.routing.candidate import Candidate
from apps.keys.iam import first_refusal
from apps.mcp.protocol.toolbox import Caller, CallResult, text_block

NAME, NAME_OF_IMAGES = "list-models", "list-image-models"
_IMAGE: Final = "image"


class ListArguments(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Filters of the list."""

    family: Annotated[str, Meta(max_length=100, description="Only this family, such as gpt or claude.")] | None = None
    query: Annotated[str, Meta(max_length=100, description="Text in the model's id or name.")] | None = None
    exclude_deprecated: bool = False
    limit: Annotated[int, Meta(ge=1, le=500)] = 50


class ListedModel(msgspec.Struct, kw_only=True):
    """A model; prices are the cheapest provider's, in USD per token, as decimals."""

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
    """The models, and the total number of matches."""

    models: list[ListedModel]
    total: int


def list_models(caller: Caller, arguments: ListArguments) -> CallResult:
    """Return the chat models."""
    return _result(caller.policy, arguments, lambda mode, _: mode == "chat")


def list_image_models(caller: Caller, arguments: ListArguments) -> CallResult:
    """Return the image models."""
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
        lines.append(f"{len(found) - arguments.limit} more: raise limit, or filter by family or query")
    text = "\n".join(lines) or "No matching model is available to this API key."
    return CallResult(content=[text_block(text)], structured=msgspec.to_builtins(answer))


def _is_open_to(policy: Policy, offer: Offer) -> bool:
    """Return whether a caller's request could be sent there."""
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
