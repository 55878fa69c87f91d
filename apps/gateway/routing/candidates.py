"""Candidates: the offers that could answer this request for this caller; an error names what none can do.

Custom providers are an organization's own OpenAI-compatible endpoints, named `custom:<providerName>/<model>`. No data
file describes them: they can do everything, and their context and prices are what the server and the organization
stated. A server at the address of a catalog's provider has the same demands as that provider. Pure; `ranking` orders
the candidates.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from math import inf
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from apps.billing.discounts import NOTHING_OFF, Discounts, Shares
from apps.catalog.offers import Catalog, CatalogModel, CatalogProvider, Offer
from apps.catalog.offers import resolve as resolve_name
from apps.gateway.access.credentials import API_KEYS, CREDITS, Credential, credentials_for
from apps.gateway.access.policy import Policy
from apps.gateway.access.schemes import can_fill_placeholders
from apps.gateway.canonical.chat import Chat
from apps.gateway.routing.account_references import filter_by_account
from apps.gateway.routing.availability import not_at_provider, unsupported, without_credential
from apps.gateway.routing.candidate import Candidate
from apps.gateway.tasks import TASKS, Requirement, Task
from apps.gateway.token_estimate import estimate_prompt_tokens
from apps.kernel.errors import InvalidRequest
from apps.kernel.money import ZERO
from apps.kernel.prices import PriceCard
from apps.keys.access import refused_by
from apps.keys.iam import first_refusal
from apps.keys.own_models import OwnModel

AUTO = "auto"
# Never chosen on the client's behalf.
_UNSTABLE = {"unstable", "experimental"}
# Names of models that a policy keeps the reach of.
_MAX_REACHABLE_MODELS = 32


class ReachableCandidates(msgspec.Struct, frozen=True):
    """The candidates for a model by one of its names that a caller may use at all: on a day, under a catalog."""

    task: Task
    catalog: Catalog
    today: date
    model: CatalogModel
    offers: Sequence[Offer]
    requested_provider: str | None
    candidates: Sequence[Candidate]
    # Those for simple text (`Chat.is_simple_text`), by whether it is streamed: filled as it is asked for.
    for_text: dict[bool, TextCandidates] = {}


class Candidates(msgspec.Struct, frozen=True):
    """The eligible candidates, never empty. `requested_provider` is the one the client named."""

    requested_provider: str | None
    eligible: tuple[Candidate, ...]


class TextCandidates(msgspec.Struct, frozen=True):
    """The candidates for simple text of any length; all of them fit where prompt and answer together have at most
    `context_length` tokens, and the answer `max_output`."""

    candidates: Candidates
    context_length: float
    max_output: float


# Leaves some of the candidates, or raises InvalidRequest where it would leave none.
Narrowing = Callable[[Sequence[Candidate]], Sequence[Candidate]]


def resolve_candidates(
    policy: Policy,
    catalog: Catalog,
    chat: Chat,
    prompt_tokens: int = 0,
    shared_discounts: Shares = NOTHING_OFF,
    *,
    narrowed: Narrowing | None = None,
) -> Candidates:
    """Return the candidates for a chat of about so many tokens, cheaper by the policy's discounts or by everyone's.

    `narrowed` leaves those that the client wants (`preferences.py`). Raises InvalidRequest (400), Forbidden (403) or
    Gone (410).
    """
    discounts = Discounts(policy.discounts, shared_discounts)
    if policy.own_aliases and chat.model in policy.own_aliases:
        chat = replace(chat, model=policy.own_aliases[chat.model])
    if chat.model == AUTO:
        return _resolve_auto(policy, catalog, chat, prompt_tokens, discounts, narrowed)
    if is_custom(chat.model):
        own = [
            Candidate(offer, credential, offer.model_name)
            for offer, credential in resolve_custom(policy, catalog, chat.model)
        ]
        allowed = _filter_by_access_rules(policy, own)
        allowed = allowed if narrowed is None else narrowed(allowed)
        _check_known_capabilities(chat, allowed)
        named = own[0].provider_id
        return Candidates(named, filter_by_context_window(chat, allowed, prompt_tokens, named))
    reachability = _find_reachable(policy, catalog, chat, discounts)
    if narrowed is None and chat.is_simple_text:
        text = reachability.for_text.get(chat.stream)
        if text is None:
            text = reachability.for_text[chat.stream] = _for_text(_find_capable(policy, catalog, chat, reachability))
        wanted = chat.max_tokens or 0
        if prompt_tokens + wanted <= text.context_length and wanted <= text.max_output:
            return text.candidates
        capable = text.candidates
    else:
        capable = _find_capable(policy, catalog, chat, reachability, narrowed)
    requested = capable.requested_provider
    return Candidates(requested, filter_by_context_window(chat, capable.eligible, prompt_tokens, requested))


def _find_capable(
    policy: Policy,
    catalog: Catalog,
    chat: Chat,
    reachability: ReachableCandidates,
    narrowed: Narrowing | None = None,
) -> Candidates:
    """Return the reachable candidates that can do what a chat asks for, whatever its length. Raises as
    `resolve_candidates` does."""
    requested = reachability.requested_provider
    reachable = filter_by_account(chat, reachability.candidates, requested)
    reachable = reachable if narrowed is None else narrowed(reachable)
    capable = _filter_by_capabilities(policy, catalog, chat, reachable, requested)
    if not capable and requested is not None:
        raise not_at_provider(policy, chat.model, reachability.offers, requested, reachability.today)
    return Candidates(requested, capable)


def _for_text(capable: Candidates) -> TextCandidates:
    """Return candidates with the room that all of them have."""
    offers = [one.offer for one in capable.eligible]
    return TextCandidates(
        capable,
        min((offer.context_length for offer in offers if offer.context_length is not None), default=inf),
        min((offer.max_output for offer in offers if offer.max_output is not None), default=inf),
    )


def _find_reachable(policy: Policy, catalog: Catalog, chat: Chat, discounts: Discounts) -> ReachableCandidates:
    """Return the candidates for the chat's model that the caller may use. Raises as `resolve_candidates` does.

    It is the same from one request of a kind to the next, and is kept with the policy, but where discounts may expire.
    """
    today, task = datetime.now(UTC).date(), TASKS[chat.task]
    known: ReachableCandidates | None = policy.reachable_models.get(chat.model)
    if known is not None and known.catalog is catalog and known.today == today and known.task is task:
        if not chat.is_simple_text:
            # The model chats, and what chats takes in text.
            task.check_model(known.model, chat)
        return known
    resolved = resolve_name(catalog, chat.model, today)
    requested = resolved.provider.id if resolved.provider else None
    task.check_model(resolved.model, chat)
    reachable = _reachable(policy, chat, resolved.offers, resolved.name, discounts)
    reachability = ReachableCandidates(
        task,
        catalog,
        today,
        resolved.model,
        resolved.offers,
        requested,
        _filter_by_access_rules(policy, reachable, requested),
    )
    if not (discounts.own or discounts.shared):
        if len(policy.reachable_models) >= _MAX_REACHABLE_MODELS:
            policy.reachable_models.clear()
        policy.reachable_models[chat.model] = reachability
    return reachability


def _resolve_auto(
    policy: Policy,
    catalog: Catalog,
    chat: Chat,
    prompt_tokens: int,
    discounts: Discounts,
    narrowed: Narrowing | None = None,
) -> Candidates:
    """Return the candidates of the cheapest model that suffices; a model for trying out only if there is no other."""
    task = TASKS[chat.task]
    offers = [
        offer
        for model in catalog.models.values()
        if task.is_served_by(model, chat)
        for offer in model.offers
        if offer.stability not in _UNSTABLE and not offer.prices.unpriced
    ]
    for wish in _auto_requirements(chat):
        offers = [offer for offer in offers if wish.is_met_by(offer)]
        if not any(offer.active and credentials_for(policy, offer.provider) for offer in offers):
            message = f"auto: there is no model {wish.name} that this project can use"
            raise InvalidRequest(message, code="unsupported_feature", param=wish.param)
    reachable = _filter_by_access_rules(policy, _reachable(policy, chat, offers, AUTO, discounts))
    reachable = filter_by_account(chat, reachable)
    reachable = reachable if narrowed is None else narrowed(reachable)
    fitting = filter_by_context_window(
        chat, _filter_by_capabilities(policy, catalog, chat, reachable, None), prompt_tokens, None
    )
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


def _reachable(
    policy: Policy, chat: Chat, offers: Sequence[Offer], name: str, discounts: Discounts
) -> Sequence[Candidate]:
    """Return the offers that are live and have a credential. Raises InvalidRequest when there is none."""
    today = datetime.now(UTC).date()
    find_dialect = TASKS[chat.task].find_dialect
    live = [offer for offer in offers if offer.is_live(today) and find_dialect(chat, offer) is not None]
    if not live:
        raise InvalidRequest(f"No provider of {chat.model} can be reached", code="model_not_found", param="model")
    reachable = [
        Candidate(offer, credential, offer.name_for(name), _discount_on(discounts, offer, credential))
        for offer in live
        for credential in credentials_for(policy, offer.provider)
        if credential.base_url or can_fill_placeholders(offer.provider.auth, offer.provider.base_url)
    ]
    if not reachable:
        raise without_credential(policy, live)
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


def _filter_by_capabilities(
    policy: Policy, catalog: Catalog, chat: Chat, reachable: Sequence[Candidate], requested: str | None
) -> tuple[Candidate, ...]:
    """Return the candidates that meet every requirement; none where the one that was named is out of reach.

    Raises InvalidRequest when none meets them all, or the one that was named does not.
    """
    left = tuple(reachable)
    for need in TASKS[chat.task].requirements_of(chat):
        meeting = tuple(one for one in left if need.is_met_by(one.offer))
        if need.optional and not any(requested in {None, one.provider_id} for one in meeting):
            continue
        left = meeting
        if not left:
            raise _unsupported(policy, catalog, chat, need)
    if requested is None:
        return left
    for one in left:
        if one.provider_id == requested:
            return left
    # The one named is out of reach or lacks something: say so rather than answer from elsewhere unasked.
    for one in reachable:
        if one.provider_id == requested:
            lacking = next(need for need in TASKS[chat.task].requirements_of(chat) if not need.is_met_by(one.offer))
            raise _unsupported(policy, catalog, chat, lacking)
    return ()


def _unsupported(policy: Policy, catalog: Catalog, chat: Chat, need: Requirement) -> InvalidRequest:
    """Return the error that names the requirement that no candidate meets, and who meets it."""

    def is_allowed(offer: Offer) -> bool:
        credential = credentials_for(policy, offer.provider)[0]
        return first_refusal(policy.rules, Candidate(offer, credential, offer.model_name)) is None

    return unsupported(chat, need, policy, catalog, datetime.now(UTC).date(), is_allowed)


def _list_price(chat: Chat, one: Candidate) -> tuple[Decimal, str]:
    """Return what orders candidates by price, then the id, so that ties are stable.

    Discounts are taken off.
    """
    return TASKS[chat.task].list_price(chat, one.offer) * (1 - one.discount), one.model_id


def filter_by_context_window(
    chat: Chat, fitting: Sequence[Candidate], prompt_tokens: int, requested: str | None
) -> tuple[Candidate, ...]:
    """Return the candidates that have room for prompt and answer, and write as long an answer as asked if any does.

    The prompt's tokens are estimated, so the one that the client named, and the roomiest of those that all seem too
    small, may try; a prompt twice as large as the largest context is refused.
    """
    if not TASKS[chat.task].fits_context:
        return tuple(fitting)
    if chat.task == "completions" and len(chat.messages) > 1:
        # Each prompt is read by itself.
        prompt_tokens = max(estimate_prompt_tokens(replace(chat, messages=[message])) for message in chat.messages)
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
        # Agents read these words, and compact their conversation by as much (Claude Code, LiteLLM).
        raise InvalidRequest(
            f"This model's maximum context length is {largest} tokens. "
            f"The prompt is too long: about {prompt_tokens} tokens > {largest} that {chat.model} takes",
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


CUSTOM_PREFIX = "custom:"
_MAX_NAME_LENGTH = 255
# Every OpenAI-alike understands these; what else it takes cannot be known and is sent as the client wrote it.
_CUSTOM_FACTS: dict[str, object] = {
    "takes": ["reasoning_details", "images", "web_search_options", "extra_content"],
    "reasoning_field": "any",
    "images": {
        "dialect": "openai",
        "most": 10,
        "inputs": 16,
        "takes": [
            *("any_size", "background", "input_fidelity", "mask", "moderation", "output_compression", "style", "user"),
        ],
        "qualities": ["standard", "hd", "low", "medium", "high", "xhigh", "max"],
        "formats": ["png", "jpeg", "webp"],
    },
    "speech": {
        "dialect": "openai",
        "most_characters": 100_000,
        "formats": ["mp3", "opus", "aac", "flac", "wav", "pcm"],
        "takes": ["instructions", "speed", "custom_voice"],
    },
    # Not every one of them streams transcripts, which none is asked to.
    "transcription": {
        "dialect": "openai",
        "takes": ["prompt", "response_format", "segments", "speakers", "temperature", "translation", "words"],
    },
}


# Demands of a provider, without which it refuses a conversation whatever the credential.
_CUSTOM_DEMANDS = ("reasoning_field", "reasoning_required")


def is_custom(model: str) -> bool:
    """Return whether a client's model name means a provider of its organization's own."""
    return model.startswith(CUSTOM_PREFIX)


def resolve_custom(policy: Policy, catalog: Catalog, requested: str) -> list[tuple[Offer, Credential]]:
    """Return the offer and each credential for it. Raises InvalidRequest (400 `model_not_found`)."""
    provider_id, slash, model_name = requested.partition("/")
    if not slash or not model_name or len(requested) > _MAX_NAME_LENGTH:
        raise _no_custom_model("A model of your own provider is named custom:<providerName>/<model>")
    credentials = policy.own_credentials.get(provider_id, ())
    if not credentials:
        raise _no_custom_model(f"There is no active provider key named `{provider_id.removeprefix(CUSTOM_PREFIX)}`")
    if policy.mode == CREDITS:
        raise _no_custom_model("This project is in credits mode; your own providers need the mode api-keys or hybrid")
    found: list[tuple[Offer, Credential]] = []
    for own in credentials:
        facts, known = _facts_at(own.base_url, catalog), own.models.find(model_name)
        offer = _custom_offer(provider_id, model_name, requested, facts, known)
        if own.replicas:
            usable = [one for one in own.replicas if not one.draining] or own.replicas
            found += [(offer, Credential(API_KEYS, own=own, replica=one)) for one in usable]
        else:
            found.append((offer, Credential(API_KEYS, own=own)))
    return found


def _check_known_capabilities(chat: Chat, own: Sequence[Candidate]) -> None:
    """Raise InvalidRequest where the chat asks for a capability that the organization or a probe showed to be missing.

    Unknown capabilities are left to the server.
    """
    credential = own[0].credential.own
    known = None if credential is None else credential.models.find(own[0].model_name)
    if known is None or all(known.known.values()):
        return
    offer = own[0].offer
    able = dataclasses.replace(offer, streaming=True, vision=True, tools=True, parallel_tools=True, reasoning=True)
    # Other requirements stay the server's affair.
    lacking = [
        need for need in TASKS[chat.task].requirements_of(chat) if not need.is_met_by(offer) and need.is_met_by(able)
    ]
    if chat.task == "embeddings" and known.known.get("embedding") is False:
        lacking.append(Requirement("embeddings", bool, "model"))
    if need := next((need for need in lacking if not need.optional), None):
        raise InvalidRequest(
            f"{chat.model} does not support {need.name}: its probe or the settings of the provider key say so",
            code="unsupported_feature",
            param=need.param,
        )


def own_models(policy: Policy, catalog: Catalog) -> tuple[CatalogModel, ...]:
    """Return the models of the organization's own servers as the listing has those of the catalog, by server and name;
    none in credits mode, which does not reach them."""
    if policy.mode == CREDITS:
        return ()
    return tuple(
        _listed(
            _custom_offer(provider_id, name, f"{provider_id}/{name}", _facts_at(own.base_url, catalog), model), model
        )
        for provider_id, credentials in sorted(policy.own_credentials.items())
        for own in credentials
        for name, model in sorted(own.models.items())
        if model.is_listed
    )


def _listed(offer: Offer, model: OwnModel) -> CatalogModel:
    """Return a model as it is listed: with the capabilities that the organization set, a probe showed or its server
    states, where there are any.

    Requests are not held to those that a server states: servers are behind their models.
    """
    stated = model.capabilities
    if stated is not None:
        tools = "tools" in stated
        parallel = model.known.get("parallel_tools", tools)
        offer = dataclasses.replace(
            offer, vision="vision" in stated, tools=tools, parallel_tools=parallel, reasoning="thinking" in stated
        )
    is_embedding = stated is not None and "embedding" in stated and not model.known.get("chat")
    return CatalogModel(
        id=model.alias or offer.model_id,
        name=offer.model_name,
        description=f"{offer.model_name} of your own provider {offer.provider.name}",
        family=offer.provider.name,
        owned_by=offer.provider.id,
        mode="embedding" if is_embedding else "chat",
        aliases=(offer.model_id,) if model.alias else (),
        created=None,
        context_length=offer.context_length,
        max_output=None,
        input_modalities=("text", "image") if offer.vision else ("text",),
        output_modalities=("embedding",) if is_embedding else ("text",),
        facts={},
        offers=(offer,),
    )


@lru_cache(maxsize=1_000)
def _host_of(address: str) -> str | None:
    return urlsplit(address).hostname


def _facts_at(base_url: str, catalog: Catalog) -> dict[str, object]:
    """Return the assumed facts of a server, with the demands of the catalog's provider at the same host."""
    host = _host_of(base_url)
    for provider in catalog.providers.values():
        if "reasoning_required" in provider.facts and _host_of(provider.base_url) == host:
            return _CUSTOM_FACTS | {name: provider.facts[name] for name in _CUSTOM_DEMANDS}
    return _CUSTOM_FACTS


def _custom_offer(
    provider_id: str, model_name: str, requested: str, facts: dict[str, object], known: OwnModel | None
) -> Offer:
    provider = CatalogProvider(
        id=provider_id,
        name=provider_id.removeprefix(CUSTOM_PREFIX),
        dialect="openai",
        auth="bearer",
        base_url="",
        api_key_env="",
        facts=facts,
        priority=1.0,
    )
    does = {} if known is None else known.known
    return Offer(
        provider=provider,
        model_id=requested,
        model_name=model_name,
        prices=PriceCard() if known is None else _prices_of(known),
        context_length=None if known is None else known.context_length,
        max_output=None,
        streaming=does.get("streaming", True),
        cancellation=True,
        vision=does.get("vision", True),
        tools=does.get("tools", True),
        parallel_tools=does.get("parallel_tools", True),
        tool_choice=True,
        # Whether it thinks unasked says nothing of being asked: only a setting does.
        reasoning=True if known is None else known.overrides.get("thinking", True),
        structured_outputs=does.get("json_schema", True),
        json_output=True,
        web_search=True,
        prompt_cache=True,
        temperature=True,
        stability="stable",
        facts=facts,
        deprecated_at=None,
        deactivated_at=None,
        priority=1.0,
        active=True,
    )


def _prices_of(known: OwnModel) -> PriceCard:
    """Return the prices of an own model: per token, or of a machine's hour, which its tokens share."""
    if (shared := known.token_price) is not None:
        return PriceCard(input=shared, output=shared)
    return PriceCard(input=known.input_price, output=known.output_price)


def _no_custom_model(message: str) -> InvalidRequest:
    return InvalidRequest(message, code="model_not_found", param="model")
