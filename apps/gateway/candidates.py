"""Which offers could answer this request for this caller; when none can, the error says which need emptied the list.

Decides over values. Must never open a socket, ask a store, or prefer one candidate to another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from apps.catalog.resolve import resolve as resolve_name
from apps.catalog.snapshot import Catalog, Model, Offer
from apps.gateway.canonical.chat import Audio, Chat, FunctionTool, Image, WebSearchTool
from apps.gateway.credentials import Credential, find_credential
from apps.gateway.custom_providers import is_custom, resolve_custom
from apps.gateway.dialects import find_dialect
from apps.gateway.policy import Policy
from apps.kernel.errors import InvalidRequest
from apps.keys.errors import refused_by
from apps.keys.iam import first_refusal

AUTO = "auto"
# Never chosen on the client's behalf.
_UNSTABLE = {"unstable", "experimental"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """An offer that fits, the way into its provider, and what to call the model there."""

    offer: Offer
    credential: Credential
    model_name: str

    @property
    def model_id(self) -> str:
        """The catalog's id of the model."""
        return self.offer.model_id

    @property
    def provider_id(self) -> str:
        """The provider's id."""
        return self.offer.provider.id

    @property
    def free(self) -> bool:
        """Whether it costs nothing."""
        return self.offer.prices.free

    @property
    def input_price(self) -> Decimal | None:
        """USD per million prompt tokens."""
        return self.offer.prices.input

    @property
    def output_price(self) -> Decimal | None:
        """USD per million completion tokens."""
        return self.offer.prices.output


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is left to choose from, never empty. `requested_provider` is the one the client named."""

    requested_provider: str | None
    fitting: tuple[Candidate, ...]


Need = tuple[str, Callable[[Offer], bool]]


def resolve(policy: Policy, catalog: Catalog, chat: Chat) -> Candidates:
    """Return the candidates for a chat. Raises InvalidRequest (400), Forbidden (403) or Gone (410)."""
    if chat.model == AUTO:
        return _resolve_auto(policy, catalog, chat)
    if is_custom(chat.model):
        own = [
            Candidate(offer, credential, offer.model_name) for offer, credential in resolve_custom(policy, chat.model)
        ]
        return Candidates(own[0].provider_id, tuple(_allowed(policy, own)))
    resolved = resolve_name(catalog, chat.model)
    _check_kind(resolved.model, chat)
    requested = resolved.provider.id if resolved.provider else None
    return Candidates(requested, _fitting(policy, chat, resolved.model.offers, resolved.name, requested))


def _resolve_auto(policy: Policy, catalog: Catalog, chat: Chat) -> Candidates:
    """Return the candidates of the cheapest model that suffices."""
    offers = [
        offer
        for model in catalog.models.values()
        if model.mode == "chat" and _modalities_of(chat) <= set(model.input_modalities)
        for offer in model.offers
        if offer.stability not in _UNSTABLE
        and not (chat.free_models_only and not offer.prices.free)
        and not (chat.no_reasoning and offer.reasoning)
        and not offer.prices.unpriced
    ]
    fitting = _fitting(policy, chat, offers, AUTO, None)
    cheapest = min(fitting, key=_list_price)
    return Candidates(None, tuple(one for one in fitting if one.model_id == cheapest.model_id))


def _fitting(
    policy: Policy, chat: Chat, offers: Sequence[Offer], name: str, requested: str | None
) -> tuple[Candidate, ...]:
    """Return the offers that are live, have a credential, are allowed, and can do what is asked; in that order."""
    today = datetime.now(UTC).date()
    live = [offer for offer in offers if offer.is_live(today) and _is_spoken(offer)]
    if not live:
        raise InvalidRequest(f"No provider of {chat.model} can be reached", code="model_not_found", param="model")
    reachable = [
        Candidate(offer, credential, offer.name_for(name))
        for offer in live
        if (credential := find_credential(policy, offer.provider)) is not None
        and (credential.base_url or offer.provider.has_address)
    ]
    if not reachable:
        raise InvalidRequest(_no_credential(policy, live), code="model_not_found", param="model")
    return _able(chat, _allowed(policy, reachable), requested)


def _allowed(policy: Policy, reachable: Sequence[Candidate]) -> Sequence[Candidate]:
    """Return the candidates that the key's access rules leave. Raises Forbidden when they leave none."""
    if not policy.rules:
        return reachable
    refusals = [(one, first_refusal(policy.rules, one)) for one in reachable]
    allowed = [one for one, rule in refusals if rule is None]
    if not allowed:
        raise refused_by(next(rule for _, rule in refusals if rule is not None))
    return allowed


def _able(chat: Chat, reachable: Sequence[Candidate], requested: str | None) -> tuple[Candidate, ...]:
    """Return the candidates that can do everything asked."""
    left = tuple(reachable)
    for name, can in needs_of(chat):
        left = tuple(one for one in left if can(one.offer))
        if not left:
            raise InvalidRequest(f"{chat.model} does not support {name}", code="unsupported_feature", param="model")
    if requested is None or any(one.provider_id == requested for one in left):
        return left
    # The one named is out of reach or lacks something: say so rather than answer from elsewhere unasked.
    for one in reachable:
        if one.provider_id == requested:
            lacking = next(name for name, can in needs_of(chat) if not can(one.offer))
            raise InvalidRequest(f"{chat.model} does not support {lacking}", code="unsupported_feature", param="model")
    raise InvalidRequest(
        f"{chat.model}: the provider {requested} cannot be used by this project", code="model_not_found", param="model"
    )


def needs_of(chat: Chat) -> list[Need]:
    """Return what an offer must be able to do, each with its name for people."""
    needs: list[Need] = []
    parts = [part for message in chat.messages for part in message.parts]
    if any(isinstance(part, Image) for part in parts):
        needs.append(("image input", lambda offer: offer.vision))
    if any(isinstance(tool, FunctionTool) for tool in chat.tools or ()):
        needs.append(("tools", lambda offer: offer.tools))
    if chat.web_search or any(isinstance(tool, WebSearchTool) for tool in chat.tools or ()):
        needs.append(("web search", lambda offer: offer.web_search))
    if chat.response_format is not None and chat.response_format.kind == "json_object":
        needs.append(("JSON output", lambda offer: offer.json_output))
    if chat.response_format is not None and chat.response_format.kind == "json_schema":
        needs.append(("structured outputs", lambda offer: offer.structured_outputs))
    if chat.reasoning is not None and (chat.reasoning.max_tokens or chat.reasoning.effort not in {None, "none"}):
        needs.append(("reasoning", lambda offer: offer.reasoning))
    if chat.stream:
        needs.append(("streaming", lambda offer: offer.streaming))
    return needs


def _check_kind(model: Model, chat: Chat) -> None:
    """Raise InvalidRequest unless the model chats and takes in what the conversation holds."""
    if model.mode != "chat":
        kind = model.mode.replace("_", " ")
        raise InvalidRequest(
            f"{model.id} is an {kind} model, not a chat model", code="unsupported_feature", param="model"
        )
    for modality in sorted(_modalities_of(chat) - set(model.input_modalities)):
        raise InvalidRequest(
            f"{chat.model} does not support {modality} input", code="unsupported_feature", param="model"
        )


def _modalities_of(chat: Chat) -> set[str]:
    """Return what a model must take in besides text, as the catalog names it; pictures are each offer's affair."""
    audio = any(isinstance(part, Audio) for message in chat.messages for part in message.parts)
    return {"audio"} if audio else set()


def _is_spoken(offer: Offer) -> bool:
    """Return whether the gateway speaks the wire format that the offer is served in."""
    return find_dialect(offer.dialect) is not None


def _list_price(one: Candidate) -> tuple[Decimal, str]:
    """Return what orders candidates by price: prompt and answer weighed alike, then the id, so that ties are stable."""
    return (one.input_price or Decimal(0)) + (one.output_price or Decimal(0)), one.model_id


def _no_credential(policy: Policy, live: Sequence[Offer]) -> str:
    providers = ", ".join(sorted({offer.provider.id for offer in live}))
    if policy.mode == "api-keys":
        return f"This project uses your own provider keys, and there is none for: {providers}"
    return f"No credential is configured for any provider of {live[0].model_id} ({providers})"
