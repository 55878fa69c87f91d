"""Candidates: the offers that could answer this request for this caller; an error names what none can do.

Decides over values. Must never open a socket, ask a store, or prefer one candidate to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal

import msgspec

from apps.billing.discounts import NOTHING_OFF, Discounts, Shares
from apps.billing.pricing import Cost, cost_of
from apps.catalog.catalog_cache import Catalog, CatalogModel, Offer
from apps.catalog.resolve import resolve as resolve_name
from apps.gateway.access.credentials import CREDITS, Credential, credentials_for
from apps.gateway.access.policy import Policy
from apps.gateway.access.schemes import can_fill_placeholders
from apps.gateway.canonical.chat import Chat
from apps.gateway.pictures import dialect_of, price_of
from apps.gateway.routing.custom_providers import is_custom, resolve_custom
from apps.gateway.routing.requirements import Requirement, check_model_mode, has_requested_mode, requirements_of
from apps.kernel.errors import InvalidRequest
from apps.kernel.money import ZERO
from apps.kernel.usage import Usage
from apps.keys.errors import refused_by
from apps.keys.iam import first_refusal

AUTO = "auto"
# Never chosen on the client's behalf.
_UNSTABLE = {"unstable", "experimental"}
# Names of models that a policy keeps the reach of.
_MAX_REACHABLE_MODELS = 32


@dataclass(frozen=True, slots=True)
class Candidate:
    """An offer with a credential for its provider, the model's name there, and the discount off its price.

    A discount is off what the service charges: a call with the organization's own credential has none.
    """

    offer: Offer
    credential: Credential
    model_name: str
    discount: Decimal = ZERO
    # The provider's id, the catalog's id of the model, and the name under which their standing is kept.
    provider_id: str = field(init=False, compare=False)
    model_id: str = field(init=False, compare=False)
    mapping: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Name it."""
        provider, model = self.offer.provider.id, self.offer.model_id
        for name, value in (("provider_id", provider), ("model_id", model), ("mapping", f"{provider}/{model}")):
            object.__setattr__(self, name, value)

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

    def cost_of(self, usage: Usage) -> Cost:
        """Return what it charges for `usage`, its discount taken off."""
        return cost_of(usage, self.offer.prices, self.discount)


class ReachableCandidates(msgspec.Struct, frozen=True):
    """The candidates for a model by one of its names that a caller may use at all: on a day, under a catalog."""

    catalog: Catalog
    today: date
    model: CatalogModel
    requested_provider: str | None
    candidates: Sequence[Candidate]


class Candidates(msgspec.Struct, frozen=True):
    """The eligible candidates, never empty. `requested_provider` is the one the client named."""

    requested_provider: str | None
    eligible: tuple[Candidate, ...]


def resolve(
    policy: Policy, catalog: Catalog, chat: Chat, prompt_tokens: int = 0, everyones: Shares = NOTHING_OFF
) -> Candidates:
    """Return the candidates for a chat of about so many tokens, cheaper by the policy's discounts or by everyone's.

    Raises InvalidRequest (400), Forbidden (403) or Gone (410).
    """
    discounts = Discounts(policy.discounts, everyones)
    if chat.model == AUTO:
        return _resolve_auto(policy, catalog, chat, prompt_tokens, discounts)
    if is_custom(chat.model):
        own = [
            Candidate(offer, credential, offer.model_name) for offer, credential in resolve_custom(policy, chat.model)
        ]
        return Candidates(own[0].provider_id, tuple(_filter_by_access_rules(policy, own)))
    reachability = _find_reachable(policy, catalog, chat, discounts)
    check_model_mode(reachability.model, chat)
    requested = reachability.requested_provider
    return Candidates(
        requested,
        _filter_by_context_window(
            chat, _filter_by_capabilities(chat, reachability.candidates, requested), prompt_tokens, requested
        ),
    )


def _find_reachable(policy: Policy, catalog: Catalog, chat: Chat, discounts: Discounts) -> ReachableCandidates:
    """Return the candidates for the chat's model that the caller may use. Raises as `resolve` does.

    It is the same from one request to the next, and is kept with the policy; but where discounts may expire, and for
    pictures, whose offers depend on what is asked.
    """
    today = datetime.now(UTC).date()
    known: ReachableCandidates | None = policy.reachable_models.get(chat.model)
    if known is not None and known.catalog is catalog and known.today == today and chat.drawing is None:
        check_model_mode(known.model, chat)
        return known
    resolved = resolve_name(catalog, chat.model, today)
    requested = resolved.provider.id if resolved.provider else None
    check_model_mode(resolved.model, chat)
    reachable = _reachable(policy, chat, resolved.model.offers, resolved.name, discounts)
    reachability = ReachableCandidates(
        catalog, today, resolved.model, requested, _filter_by_access_rules(policy, reachable, requested)
    )
    if chat.drawing is None and not (discounts.own or discounts.everyones):
        if len(policy.reachable_models) >= _MAX_REACHABLE_MODELS:
            policy.reachable_models.clear()
        policy.reachable_models[chat.model] = reachability
    return reachability


def _resolve_auto(policy: Policy, catalog: Catalog, chat: Chat, prompt_tokens: int, discounts: Discounts) -> Candidates:
    """Return the candidates of the cheapest model that suffices; a model for trying out only if there is no other."""
    offers = [
        offer
        for model in catalog.models.values()
        if has_requested_mode(model, chat)
        for offer in model.offers
        if offer.stability not in _UNSTABLE and not offer.prices.unpriced
    ]
    for wish in _auto_requirements(chat):
        offers = [offer for offer in offers if wish.is_met_by(offer)]
        if not any(offer.active and credentials_for(policy, offer.provider) for offer in offers):
            message = f"auto: there is no model {wish.name} that this project can use"
            raise InvalidRequest(message, code="unsupported_feature", param=wish.param)
    reachable = _filter_by_access_rules(policy, _reachable(policy, chat, offers, AUTO, discounts))
    fitting = _filter_by_context_window(chat, _filter_by_capabilities(chat, reachable, None), prompt_tokens, None)
    real = [one for one in fitting if not one.offer.facts.get("development_only")] or fitting
    cheapest = min(real, key=lambda one: _list_price(chat, one))
    return Candidates(None, tuple(one for one in real if one.model_id == cheapest.model_id))


def _auto_requirements(chat: Chat) -> list[Requirement]:
    """Return what the client wants of a model that is chosen on its behalf."""
    wishes = (
        (chat.free_models_only, Requirement("without a price", lambda offer: offer.prices.free, "free_models_only")),
        (chat.no_reasoning, Requirement("without reasoning", lambda offer: not offer.reasoning, "no_reasoning")),
    )
    return [need for wished, need in wishes if wished]


def _filter_by_context_window(
    chat: Chat, fitting: Sequence[Candidate], prompt_tokens: int, requested: str | None
) -> tuple[Candidate, ...]:
    """Return the candidates that have room for prompt and answer, and write as long an answer as asked if any does.

    The prompt's tokens are estimated, so the one that the client named, and the roomiest of those that all seem too
    small, may try; a prompt twice as large as the largest context is refused.
    """
    if chat.drawing is not None:
        return tuple(fitting)
    wanted = chat.max_tokens or 0
    needed = prompt_tokens + wanted
    for one in fitting:
        if not (_fits(one.offer.context_length, needed) and _fits(one.offer.max_output, wanted)):
            break
    else:
        return tuple(fitting)
    contexts = [one.offer.context_length for one in fitting]
    largest = None if None in contexts else max(one for one in contexts if one is not None)
    if largest is not None and prompt_tokens > 2 * largest:
        raise InvalidRequest(
            f"The prompt is about {prompt_tokens} tokens; {chat.model} takes at most {largest}",
            code="context_length_exceeded",
            param="messages",
        )
    roomy = [one for one in fitting if _fits(one.offer.context_length, needed)]
    roomy = roomy or [one for one in fitting if one.offer.context_length == largest]
    left = [one for one in roomy if _fits(one.offer.max_output, wanted)] or roomy
    named = [one for one in fitting if one.provider_id == requested and one not in left]
    return (*left, *named)


def _fits(limit: int | None, tokens: int) -> bool:
    return limit is None or tokens <= limit


def _reachable(
    policy: Policy, chat: Chat, offers: Sequence[Offer], name: str, discounts: Discounts
) -> Sequence[Candidate]:
    """Return the offers that are live and have a credential. Raises InvalidRequest when there is none."""
    today = datetime.now(UTC).date()
    live = [offer for offer in offers if offer.is_live(today) and dialect_of(chat, offer) is not None]
    if not live:
        raise InvalidRequest(f"No provider of {chat.model} can be reached", code="model_not_found", param="model")
    reachable = [
        Candidate(offer, credential, offer.name_for(name), _discount_on(discounts, offer, credential))
        for offer in live
        for credential in credentials_for(policy, offer.provider)
        if credential.base_url or can_fill_placeholders(offer.provider.auth, offer.provider.base_url)
    ]
    if not reachable:
        raise InvalidRequest(_no_credential(policy, live), code="model_not_found", param="model")
    return reachable


def _discount_on(discounts: Discounts, offer: Offer, credential: Credential) -> Decimal:
    return discounts.on(offer.provider.id, offer.model_id) if credential.mode == CREDITS else ZERO


def _filter_by_access_rules(
    policy: Policy, reachable: Sequence[Candidate], requested: str | None = None
) -> Sequence[Candidate]:
    """Return the candidates that the key's access rules leave. Raises Forbidden when they leave none, or take away the
    provider that was named."""
    if not policy.rules:
        return reachable
    refusals = [(one, first_refusal(policy.rules, one)) for one in reachable]
    allowed = [one for one, rule in refusals if rule is None]
    refusing = [rule for one, rule in refusals if rule is not None and requested in {None, one.provider_id}]
    if refusing and not any(requested in {None, one.provider_id} for one in allowed):
        raise refused_by(refusing[0])
    return allowed


def _filter_by_capabilities(chat: Chat, reachable: Sequence[Candidate], requested: str | None) -> tuple[Candidate, ...]:
    """Return the candidates that meet every requirement. Raises InvalidRequest when none does."""
    left = tuple(reachable)
    for need in requirements_of(chat):
        left = tuple(one for one in left if need.is_met_by(one.offer))
        if not left:
            raise _unsupported(chat, need)
    if requested is None or requested in [one.provider_id for one in left]:
        return left
    # The one named is out of reach or lacks something: say so rather than answer from elsewhere unasked.
    for one in reachable:
        if one.provider_id == requested:
            lacking = next(need for need in requirements_of(chat) if not need.is_met_by(one.offer))
            raise _unsupported(chat, lacking)
    raise InvalidRequest(
        f"{chat.model}: the provider {requested} cannot be used by this project", code="model_not_found", param="model"
    )


def _unsupported(chat: Chat, need: Requirement) -> InvalidRequest:
    """Return the error that names the requirement that no candidate meets."""
    message = f"{chat.model} does not support {need.name}"
    return InvalidRequest(message, code="unsupported_feature", param=need.param)


def _list_price(chat: Chat, one: Candidate) -> tuple[Decimal, str]:
    """Return what orders candidates by price, then the id, so that ties are stable.

    Prompt and answer weigh alike; of pictures the price of those that are asked for counts. Discounts are taken off.
    """
    if chat.drawing is not None:
        price = price_of(chat, one.offer)
    else:
        price = (one.input_price or ZERO) + (one.output_price or ZERO)
    return price * (1 - one.discount), one.model_id


def _no_credential(policy: Policy, live: Sequence[Offer]) -> str:
    providers = ", ".join(sorted({offer.provider.id for offer in live}))
    if policy.mode == "api-keys":
        return f"This project uses your own provider keys, and there is none for: {providers}"
    return f"No credential is configured for any provider of {live[0].model_id} ({providers})"
