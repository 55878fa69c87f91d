"""Routing preferences applied: which models are asked in which order, and which of their providers, sorted by what.

A client that states none gets the default routing. The ending of a model's name may state some, as OpenRouter's clients
write it: `:free` only without a price, `:nitro` the fastest first, `:floor` the cheapest first, `:online` with a web
search, `:thinking` with reasoning. A model's own name is never split. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from apps.billing.discounts import NOTHING_OFF, Shares
from apps.catalog.catalog_cache import Catalog, CatalogProvider
from apps.catalog.offers import UnknownModel
from apps.catalog.offers import resolve as resolve_name
from apps.gateway.access.policy import Policy
from apps.gateway.canonical.chat import (
    Chat,
    DroppedField,
    MaxPrice,
    ReasoningRequest,
    RoutingPreferences,
    SortBy,
    asked_service_tier,
)
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.candidates import AUTO, Candidates, is_custom, resolve_candidates
from apps.gateway.routing.ranking import Ranking, RequestProfile, StatsLookup, rank
from apps.gateway.routing.replica_choice import arrange
from apps.kernel.concurrency.cached_setting import CachedSetting
from apps.kernel.errors import ApiError, InvalidRequest
from apps.kernel.money import ZERO, plain

VARIANTS: Final = frozenset({"free", "nitro", "floor", "online", "thinking"})
_SORTS: Final[dict[str, SortBy]] = {"nitro": "throughput", "floor": "price"}


class Alternative(msgspec.Struct, frozen=True):
    """A model to ask: its name in the catalog, and what the ending of the client's name said."""

    model: str
    field: str
    sort: SortBy | None = None
    free_only: bool = False
    variants: frozenset[str] = frozenset()


def read_alternative(catalog: Catalog, name: str, field: str) -> Alternative:
    """Return what a client means by a model's name that it wrote in `field`."""
    bare, variants = name, set[str]()
    while ":" in bare and not _is_a_name(catalog, bare):
        rest, _, ending = bare.rpartition(":")
        if ending not in VARIANTS:
            return Alternative(name, field)
        bare = rest
        variants.add(ending)
    sort = next((_SORTS[variant] for variant in sorted(variants) if variant in _SORTS), None)
    return Alternative(bare, field, sort, "free" in variants, frozenset(variants))


def without_provider(catalog: Catalog, name: str) -> str:
    """Return a model's name without the provider in it, for a client that names providers elsewhere."""
    if name == AUTO or is_custom(name) or "/" not in name:
        return name
    try:
        resolved = resolve_name(catalog, name)
    except ApiError:
        # Told where it is resolved.
        return name
    if resolved.provider is None:
        return name
    if resolved.name in catalog.models or resolved.name in catalog.aliases:
        return resolved.name
    # An edition's own name means nothing without its provider, and the model's id means another price.
    return resolved.model.id if resolved.offers is resolved.model.offers else name


def ask_for_variants(chat: Chat, alternatives: list[Alternative]) -> None:
    """Make a chat ask for what the endings of its models' names ask for; what it says itself goes before."""
    variants = frozenset().union(*(one.variants for one in alternatives))
    if "online" in variants and not chat.web_search:
        chat.web_search, chat.source = True, None
    if "thinking" in variants:
        asked = chat.reasoning or ReasoningRequest()
        if asked.effort is None and asked.max_tokens is None:
            chat.reasoning, chat.source = replace(asked, effort="medium"), None


def _is_a_name(catalog: Catalog, name: str) -> bool:
    return name in catalog.models or name in catalog.aliases or name in catalog.prefixed or is_custom(name)


_NONE = RoutingPreferences()
_TOTAL_TIMEOUT = CachedSetting("UPSTREAM_TOTAL_TIMEOUT")


class ModelGroup(msgspec.Struct, frozen=True):
    """The candidates of one of the models that a client names, and what its providers are sorted by."""

    candidates: Candidates
    sort: SortBy | None = None


class PreferredCandidates(Candidates, frozen=True):
    """The candidates of all named models, the first's first; `dropped_fields` names the skipped models."""

    groups: tuple[ModelGroup, ...] = ()
    dropped_fields: tuple[DroppedField, ...] = ()


def resolve_preferred(
    policy: Policy, catalog: Catalog, chat: Chat, prompt_tokens: int = 0, shared_discounts: Shares = NOTHING_OFF
) -> Candidates:
    """Return the candidates for a chat, as its preferences and the endings of its models' names want them.

    Raises as `resolve_candidates` does, for the first model, where none of those named can answer.
    """
    wishes = chat.preferences
    if wishes is None and ":" not in chat.model:
        return resolve_candidates(policy, catalog, chat, prompt_tokens, shared_discounts)
    named = [read_alternative(catalog, chat.model, "model")]
    wishes = wishes or _NONE
    named += [read_alternative(catalog, name, f"models[{at}]") for at, name in enumerate(wishes.models)]
    ask_for_variants(chat, named)
    dropped_fields = [*_unknown_providers(catalog, wishes), *_bounded(wishes)]
    groups: list[ModelGroup] = []
    failed: ApiError | None = None
    for one in named:
        try:
            groups.append(_group(policy, catalog, chat, one, wishes, prompt_tokens, shared_discounts))
        except ApiError as error:
            failed = failed or error
            # Near names are looked for where a request is refused, and for the first of those it names.
            words = error.statement if isinstance(error, UnknownModel) else error.message
            dropped_fields.append(DroppedField(one.field, words))
    if not groups:
        raise failed or InvalidRequest("No model is named", param="model")
    eligible = tuple(candidate for group in groups for candidate in group.candidates.eligible)
    return PreferredCandidates(groups[0].candidates.requested_provider, eligible, tuple(groups), tuple(dropped_fields))


def requires_parameters(chat: Chat) -> bool:
    """Return whether only providers are wanted that leave nothing out."""
    return chat.preferences is not None and chat.preferences.require_parameters


def strict_refusal(dropped_fields: Sequence[DroppedField]) -> InvalidRequest:
    """Return the refusal of a request of which nothing may be left out (`X-Strict`), and this would be."""
    left_out = "; ".join(f"{one.param}: {one.message}" for one in dropped_fields)
    return InvalidRequest(
        f"With X-Strict nothing may be left out, and this would be: {left_out}",
        code="unsupported_feature",
        param=dropped_fields[0].param,
    )


def is_bound(preferred: Candidates, chat: Chat, *, no_fallback: bool) -> bool:
    """Return whether the client wants no provider but the one that it named."""
    if preferred.requested_provider is None:
        return False
    return no_fallback or (chat.preferences is not None and not chat.preferences.allow_fallbacks)


def leave_out(preferred: Candidates, is_out: Callable[[Candidate], bool]) -> Candidates:
    """Return the candidates without some, or all where none would be left. A named provider that is left out is as good
    as not named: the others stand by."""
    eligible = tuple([one for one in preferred.eligible if not is_out(one)])
    if not eligible or len(eligible) == len(preferred.eligible):
        return preferred
    providers = {one.provider_id for one in eligible}
    named = preferred.requested_provider if preferred.requested_provider in providers else None
    if not isinstance(preferred, PreferredCandidates):
        return Candidates(named, eligible)
    left = ((group, leave_out(group.candidates, is_out)) for group in preferred.groups)
    groups = [replace(group, candidates=rest) for group, rest in left if not all(map(is_out, rest.eligible))]
    return replace(preferred, requested_provider=named, eligible=eligible, groups=tuple(groups))


def choose_order(
    preferred: Candidates,
    chat: Chat,
    profile: RequestProfile,
    stats_of: StatsLookup,
    *,
    strict: bool,
    no_fallback: bool,
) -> tuple[Ranking, list[DroppedField]]:
    """Return the order in which candidates are tried, and the client's preferences that are not met, whichever provider
    answers.

    `strict` and `no_fallback` are the client's `X-Strict` and `X-No-Fallback`. Raises InvalidRequest where a strict
    client's preferences are not met.
    """
    skipped = preferred.dropped_fields if isinstance(preferred, PreferredCandidates) else ()
    dropped_fields = [*(chat.dropped_fields or ()), *skipped]
    if dropped_fields and strict:
        raise strict_refusal(dropped_fields)
    ranking = _rank_preferred(preferred, profile, stats_of, chat.preferences or _NONE, no_fallback=no_fallback)
    for one in ranking.candidates:
        if one.credential.replica is not None:
            return arrange(ranking, chat, profile), dropped_fields
    return ranking, dropped_fields


def _rank_preferred(
    preferred: Candidates,
    profile: RequestProfile,
    stats_of: StatsLookup,
    wishes: RoutingPreferences,
    *,
    no_fallback: bool,
) -> Ranking:
    """Return the order in which candidates are tried: model after model, each model's as the client prefers them."""
    if not isinstance(preferred, PreferredCandidates):
        return rank(preferred, profile, stats_of, no_fallback=no_fallback)
    groups = preferred.groups[:1] if no_fallback else preferred.groups
    first, *others = [_rank_group(group, profile, stats_of, wishes, no_fallback=no_fallback) for group in groups]
    if not others:
        return first
    models = [ranking.candidates[0].model_id for ranking in others]
    return Ranking(
        tuple(candidate for ranking in (first, *others) for candidate in ranking.candidates),
        {**first.explanation, "fallbackModels": models},
        first.probe,
    )


def _group(
    policy: Policy,
    catalog: Catalog,
    chat: Chat,
    one: Alternative,
    wishes: RoutingPreferences,
    prompt_tokens: int,
    shared_discounts: Shares,
) -> ModelGroup:
    """Return one model's candidates. Raises ApiError."""
    steers = wishes.steers or one.sort is not None
    name = without_provider(catalog, one.model) if steers else one.model
    asked = chat if name == chat.model else replace(chat, model=name)
    narrowed = partial(narrow, wishes, one, service_tier=asked_service_tier(chat))
    found = resolve_candidates(policy, catalog, asked, prompt_tokens, shared_discounts, narrowed=narrowed)
    return ModelGroup(found, wishes.sort or one.sort)


def narrow(
    wishes: RoutingPreferences, one: Alternative, reachable: Sequence[Candidate], service_tier: str = ""
) -> Sequence[Candidate]:
    """Return the candidates of a model that preferences leave. Raises InvalidRequest naming what leaves none."""
    left = reachable
    for param, why, keep in _conditions(wishes, one, service_tier):
        left = [candidate for candidate in left if keep(candidate)]
        if not left:
            raise InvalidRequest(f"{one.model}: {why}", code="unsupported_feature", param=param)
    return left


def _conditions(
    wishes: RoutingPreferences, one: Alternative, service_tier: str
) -> Iterable[tuple[str, str, Callable[[Candidate], bool]]]:
    if wishes.only:
        why = f"none of these providers can answer for this project: {', '.join(wishes.only)}"
        yield "provider.only", why, lambda it: _is_named(it, wishes.only)
    if wishes.ignore:
        yield "provider.ignore", "every provider is to be ignored", lambda it: not _is_named(it, wishes.ignore)
    if wishes.order and not wishes.allow_fallbacks:
        why = f"none of these providers can answer for this project: {', '.join(wishes.order)}"
        yield "provider.order", why, lambda it: _is_named(it, wishes.order)
    if wishes.zero_data_retention:
        why = "no provider is known to retain nothing; leave the field out if it may be answered all the same"
        yield "provider.zdr", why, lambda it: it.offer.facts.get("zero_data_retention") is True
    if wishes.no_data_collection:
        why = "no provider is known to collect no data; leave the field out if it may be answered all the same"
        yield "provider.data_collection", why, lambda it: it.offer.facts.get("data_collection") is False
    if (most := wishes.max_price) is not None:
        yield "provider.max_price", "every provider charges more", lambda it: _is_within(it, most, service_tier)
    if one.free_only:
        yield one.field, "no provider offers it free of charge", lambda it: it.free


def _is_within(candidate: Candidate, most: MaxPrice, service_tier: str) -> bool:
    card, factor = candidate.offer.prices, 1 - candidate.discount
    if service_tier:
        card = card.at(service_tier)
    charged = (
        (card.input, most.prompt),
        (card.output, most.completion),
        (card.request, most.request),
        (card.image, most.image),
    )
    return all(limit is None or (price or ZERO) * factor <= limit for price, limit in charged)


def _is_named(candidate: Candidate, names: Sequence[str]) -> bool:
    return _position(candidate.offer.provider, names) < len(names)


def _position(provider: CatalogProvider, names: Sequence[str]) -> int:
    """Return a provider's index in a list of names, the list's length where it is not in it."""
    own = _names_of(provider)
    return next((at for at, name in enumerate(names) if _slug(name) in own), len(names))


def _names_of(provider: CatalogProvider) -> set[str]:
    """Return what clients call a provider: its id, its name, and what others call it."""
    return {provider.id, _slug(provider.name), *provider.facts.get("also_called", ())}


def _slug(name: str) -> str:
    """Return a provider's name without what says which of its regions or editions is meant (`deepinfra/turbo`)."""
    return name.partition("/")[0].lower().replace(" ", "-")


def _unknown_providers(catalog: Catalog, wishes: RoutingPreferences) -> Iterable[DroppedField]:
    if not (wishes.order or wishes.only or wishes.ignore):
        return
    known = {name for provider in catalog.providers.values() for name in _names_of(provider)}
    for field in ("order", "only", "ignore"):
        for name in getattr(wishes, field):
            if _slug(name) not in known and not name.startswith("custom:"):
                yield DroppedField(f"provider.{field}", f"no provider is called {name[:100]}")


def _bounded(wishes: RoutingPreferences) -> Iterable[DroppedField]:
    if wishes.timeout is not None and wishes.timeout > _TOTAL_TIMEOUT.value:
        yield DroppedField("timeout", f"a provider is given {plain(Decimal(str(_TOTAL_TIMEOUT.value)))} s at most")


def _rank_group(
    group: ModelGroup,
    profile: RequestProfile,
    stats_of: StatsLookup,
    wishes: RoutingPreferences,
    *,
    no_fallback: bool,
) -> Ranking:
    # One that may not fall back is cut after it is sorted.
    only_one = no_fallback or (not wishes.allow_fallbacks and not wishes.order)
    if not (wishes.order or group.sort):
        return rank(group.candidates, profile, stats_of, no_fallback=only_one)
    base = rank(group.candidates, profile, stats_of, no_fallback=False)
    figures = {line["providerId"]: line for line in base.explanation["providerScores"]}
    ways = sorted(base.candidates, key=lambda one: _preference(one, figures[one.provider_id], wishes, group.sort))
    if only_one:
        ways = [one for one in ways if one.mapping == ways[0].mapping]
    order = list(dict.fromkeys(one.provider_id for one in ways))
    explanation = {
        **base.explanation,
        "availableProviders": order,
        "selectedProvider": order[0],
        "selectionReason": _reason(ways[0], wishes, group.sort),
        "providerScores": sorted(base.explanation["providerScores"], key=lambda it: _at(order, it["providerId"])),
    }
    return Ranking(tuple(ways), explanation, base.probe and ways[0] == base.candidates[0])


def _preference(
    one: Candidate, figures: dict[str, Any], wishes: RoutingPreferences, sort: SortBy | None
) -> tuple[bool, int, float]:
    """Return what orders candidates: those cut off last, then by the client's order, then by the figure it sorts by."""
    value = 0.0 if sort is None else figures[sort]
    if value is None:
        # No figures yet.
        value = float("-inf") if sort == "throughput" else float("inf")
    return "circuit" in figures, _position(one.offer.provider, wishes.order), -value if sort == "throughput" else value


def _reason(first: Candidate, wishes: RoutingPreferences, sort: SortBy | None) -> str:
    if wishes.order and _is_named(first, wishes.order):
        return "provider-order"
    return "weighted-score" if sort is None else f"sorted-by-{sort}"


def _at(order: Sequence[str], provider_id: str) -> int:
    return order.index(provider_id) if provider_id in order else len(order)
