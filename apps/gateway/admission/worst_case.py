"""Worst-case cost: what to hold for a request before it is sent, and how many tokens the held amount covers.

An answer is held whole, by the limit that the client or the model sets. Where less is granted, the tokens that it
covers are the limit that the provider is given, for streams too: a provider may count what a stream never shows. It
makes no query.

Model passes beside the answer's own are held for too: Anthropic's compaction reads the conversation a second time and
writes a summary; its advisor tool asks another model, which reads all of it again; a request may name models to fall
back to. None of that is in an answer's own counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec
import structlog
from msgspec.structs import replace

from apps.billing.pricing import MILLION, STORAGE_PRICE, price_storage, price_text
from apps.billing.reservations import Hold
from apps.catalog import catalog_cache
from apps.catalog.offers import Offer
from apps.gateway.access.credentials import CREDITS
from apps.gateway.admission.offline_accounts import OfflineHold
from apps.gateway.canonical.chat import AUTO_TIER, Audio, Chat, Image, OpaqueTool, asked_region, asked_service_tier
from apps.gateway.dialects import find_dialect
from apps.gateway.routing.candidate import Candidate
from apps.gateway.routing.candidates import Candidates
from apps.gateway.tasks import TASKS
from apps.gateway.token_estimate import TOKENS_PER_MADE_IMAGE
from apps.gateway.upstream.failover import Hedge, losing_cost
from apps.gateway.upstream.json_repair import PLUGIN
from apps.gateway.upstream.parallel_calls import calls_of
from apps.kernel.concurrency.identity_cache import IdentityCache
from apps.kernel.money import NANO, ZERO, nanos_up
from apps.kernel.prices import PriceCard
from apps.kernel.usage import ModelPass, Usage

# Tokens that an answer is held for where the model's output limit is unknown: more than any model writes.
UNSTATED_LIMIT = 131_072
# The useful part of an answer of more tokens than these; larger where the model's thinking is not shown.
USEFUL, USEFUL_WITH_THINKING = 4_096, 16_384
# Formats whose providers write prompts to a cache unasked.
_CACHES_UNASKED = frozenset({"openai", "responses"})
# The classes of a prompt's tokens beside plain text that may have a price of their own.
_PROMPT_CLASSES: Final = ("cache_write", "cache_write_1h", "image_input", "audio_input")
# Tokens below which asking makes no sense, and what thinking takes at least where it is asked for.
LEAST, LEAST_THINKING = 256, 1_024


class Tariff(msgspec.Struct, frozen=True):
    """A candidate's price for a request: in USD before it writes, and for each token that it writes.

    `max_tokens`, `useful_tokens` and `min_tokens` are those of all of its answers together; `is_visible` tells that all
    it writes is seen at once.
    """

    base: Decimal
    per_token: Decimal
    max_tokens: int
    useful_tokens: int
    min_tokens: int
    is_visible: bool = False

    def cost_of(self, tokens: int) -> Decimal:
        """Return what it charges for an answer of so many tokens."""
        return self.base + self.per_token * tokens

    def tokens_for(self, amount: Decimal) -> int:
        """Return for how many tokens of an answer an amount is enough; less than none where the prompt costs more."""
        return self.max_tokens if not self.per_token else int((amount - self.base) // self.per_token)


class WorstCase(msgspec.Struct, frozen=True):
    """The worst case of a request: its prompt's tokens, and what the dearest candidate would charge.

    The hold is `cost`, which covers all that may be written; where that is a large share of the balance, about `part`,
    and never less than `least`. `from_credits` is whether any candidate is paid from credits, and `hedge_cost` what of
    it is for a second call.
    """

    prompt_tokens: int
    cost: Decimal
    from_credits: bool
    part: Decimal
    least: Decimal
    hedge_cost: Decimal = ZERO
    # Each candidate's tariff.
    tariffs: tuple[tuple[Candidate, Tariff], ...] = ()

    @property
    def max_tokens(self) -> int:
        """The tokens of the longest answer of any candidate."""
        return max([tariff.max_tokens for _, tariff in self.tariffs], default=0)


# The worst case of a free request.
NO_COST: Final = WorstCase(prompt_tokens=0, cost=ZERO, from_credits=False, part=ZERO, least=ZERO)


class SpendingAllowance(msgspec.Struct, frozen=True):
    """The hold of a request, and how much it may write for that."""

    chat: Chat
    prompt_tokens: int
    retention: str
    hedge_cost: Decimal
    hold: Hold | OfflineHold
    tariffs: tuple[tuple[Candidate, Tariff], ...] = ()

    def tariff_of(self, candidate: Candidate, prompt_tokens: int | None = None) -> Tariff:
        """Return what a candidate charges for the request, with a prompt of so many tokens where they were counted."""
        if prompt_tokens is None:
            for known, tariff in self.tariffs:
                if known is candidate:
                    return tariff
        # Every call of several reads it; where it was counted, all of them were.
        prompt = self.prompt_tokens * calls_of(self.chat, candidate.offer) if prompt_tokens is None else prompt_tokens
        return tariff_of(self.chat, candidate, prompt, self.retention)

    def limit_of(self, candidate: Candidate) -> int | None:
        """Return the limit that a candidate is to be given, in tokens of one answer; None where it needs none."""
        tariff = self.tariff_of(candidate)
        covered = tariff.tokens_for(Decimal(self.hold.amount_nanos) / NANO - self.hedge_cost)
        if isinstance(self.hold, Hold) and self.hold.tokens is not None:
            covered = min(covered, self.hold.tokens)
        if covered >= tariff.max_tokens:
            return None
        answers = self.chat.answers
        limit = max(covered // answers, 1)
        if candidate.offer.facts.get("images"):
            # Tokens of images count against it, and are held beside it.
            limit = min(limit + TOKENS_PER_MADE_IMAGE, tariff.max_tokens // answers)
        if candidate.offer.context_length is not None:
            # Not every provider takes a limit for which there is no room beside the prompt.
            limit = min(limit, max(candidate.offer.context_length - self.prompt_tokens * 5 // 4, LEAST))
        return limit


def estimate_worst_case(
    chat: Chat, candidates: Candidates, prompt: int, hedge: Hedge | None = None, retention: str = "none"
) -> WorstCase:
    """Return the worst case over all candidates for a prompt of about so many tokens, with a second call if hedged.

    Where credits pay for an answer that is retained, they pay for its storage as well.
    """
    cost = part = least = ZERO
    from_credits = False
    tariffs = []
    for candidate in candidates.eligible:
        tariff = tariff_of(chat, candidate, prompt * calls_of(chat, candidate.offer), retention)
        tariffs.append((candidate, tariff))
        most = tariff.max_tokens
        at_most = useful = lowest = tariff.cost_of(most)
        if tariff.useful_tokens != most:
            useful = tariff.cost_of(tariff.useful_tokens)
        if tariff.min_tokens != most:
            lowest = tariff.cost_of(tariff.min_tokens)
        cost = max(cost, at_most)
        part = max(part, useful)
        least = max(least, lowest)
        from_credits = from_credits or (candidate.credential.mode == CREDITS and at_most > 0)
    if hedge is None:
        return WorstCase(prompt, cost, from_credits, part, least, tariffs=tuple(tariffs))
    hedge_cost = min(
        hedge.max_cost, max(losing_cost(candidate, prompt, chat).total for candidate in candidates.eligible)
    )
    return WorstCase(
        prompt,
        cost + hedge_cost,
        from_credits,
        part + hedge_cost,
        least + hedge_cost,
        hedge_cost,
        tuple(tariffs),
    )


def estimate_least(chat: Chat, candidates: Candidates, prompt: int, retention: str) -> WorstCase:
    """Return the worst case of the candidate that charges least: who cannot pay for that can pay for none.

    For a look at credits before the whole request is known; they count only where every candidate is paid from them.
    """
    each = [
        estimate_worst_case(chat, replace(candidates, eligible=(candidate,)), prompt, None, retention)
        for candidate in candidates.eligible
    ]
    return replace(min(each, key=attrgetter("least")), from_credits=all(one.from_credits for one in each))


def allowance_of(
    chat: Chat, worst: WorstCase, hold: Hold | OfflineHold | None, retention: str
) -> SpendingAllowance | None:
    """Return how much a request may write for its grant; None where nothing has to be limited or watched."""
    if hold is None:
        return None
    tokens = hold.tokens if isinstance(hold, Hold) else None
    if tokens is None and not hold.balances:
        return None
    if (
        not chat.stream
        and (not hold.balances or hold.amount_nanos >= nanos_up(worst.cost))
        and (tokens is None or tokens >= worst.max_tokens)
    ):
        return None
    return SpendingAllowance(chat, worst.prompt_tokens, retention, worst.hedge_cost, hold, worst.tariffs)


def tariff_of(chat: Chat, candidate: Candidate, prompt: int, retention: str) -> Tariff:
    """Return what a candidate charges for a chat with a prompt of about so many tokens."""
    served = _ways_to_be_served(chat, candidate)
    if chat.is_simple_text and not served and _costs_its_text(candidate.offer):
        read = prompt
        base = price_text(prompt, 0, candidate.offer.prices, candidate.discount)
    else:
        task = TASKS[chat.task]
        usage = task.usage_before_answer(chat, prompt, candidate.offer)
        if (calls := calls_of(chat, candidate.offer)) > 1 and (usage.web_searches or usage.tool_calls):
            made = {name: count * calls for name, count in (usage.tool_calls or {}).items()}
            usage = replace(usage, web_searches=usage.web_searches * calls, tool_calls=made or None)
        read = usage.total_tokens
        ways = _prompt_counts(chat, candidate.offer, usage) if task.writes_tokens else (usage,)
        base = _dearest(candidate, ways, served) + beside_answer(chat, candidate, prompt)
        if not task.writes_tokens:
            stored = price_storage(read, retention) if base else ZERO
            return Tariff(base + stored, ZERO, 0, 0, 0)
    per_token = _per_token(chat, candidate, prompt, served)
    if retention == "retain" and (base or per_token):
        base += price_storage(read, retention)
        per_token += STORAGE_PRICE / MILLION
    answers = chat.answers
    most = _limit_of(chat, candidate) * answers
    if chat.max_tokens is not None and not chat.stream:
        # The client's own limit is not lowered: the request is refused where it is not covered.
        return Tariff(base, per_token, most, most, most)
    thinks = candidate.offer.reasoning and _thinks_unseen(chat, candidate)
    seen = chat.stream and not thinks and not _holds_back(chat, candidate)
    useful = (USEFUL_WITH_THINKING if thinks else USEFUL) * answers
    least = LEAST + max(_budget_of(chat), LEAST_THINKING) if _asks_to_think(chat) else LEAST
    return Tariff(base, per_token, most, min(useful, most), min(least * answers, most), seen)


def _ways_to_be_served(chat: Chat, candidate: Candidate) -> Sequence[tuple[str, str]]:
    """Return the tiers of service and regions that a chat may be served at; none where that changes no price.

    A tier that was asked for may be refused and the usual one served; with `auto` the provider chooses among all. So it
    does where a chat names none and the setting of the organization's own account decides.
    """
    card = candidate.offer.prices
    if not (card.service_tiers or card.regions):
        return ()
    open_to_all = chat.service_tier == AUTO_TIER
    if chat.service_tier is None:
        open_to_all = candidate.credential.mode != CREDITS and bool(candidate.offer.facts.get("tier_by_account"))
        if chat.extra is None and not open_to_all:
            return ()
    region, tier = asked_region(chat), asked_service_tier(chat)
    tiers = ("", *card.service_tiers) if open_to_all else ("", tier)
    return [(tier, region) for tier in tiers] if any(tiers) or region else ()


def _dearest(candidate: Candidate, usages: Sequence[Usage], served: Sequence[tuple[str, str]]) -> Decimal:
    """Return what a candidate charges at most for any of `usages`, at those tiers of service and in those regions."""
    if served:
        usages = [replace(usage, service_tier=tier, region=region) for usage in usages for tier, region in served]
    most = ZERO
    for usage in usages:
        most = max(most, candidate.cost_of(usage).total)
    return most


def _prompt_counts(chat: Chat, offer: Offer, usage: Usage) -> Sequence[Usage]:
    """Return the classes in which the whole prompt may be counted: text, what a cache keeps, images or audio."""
    priced = _priced_classes(offer.prices)
    if not priced:
        return (usage,)
    classes = []
    if "cache_write" in priced and (offer.dialect in _CACHES_UNASKED or chat.cache_lifetime):
        classes.append("cache_write")
    if "cache_write_1h" in priced and chat.cache_lifetime == "1h":
        classes.append("cache_write_1h")
    if "image_input" in priced and Image in chat.kinds:
        classes.append("image_input")
    if "audio_input" in priced and Audio in chat.kinds:
        classes.append("audio_input")
    return (usage, *(replace(usage, input=0, **{name: usage.input}) for name in classes))


def _find_priced_classes(card: PriceCard) -> frozenset[str]:
    """Return the classes of a prompt's tokens that have a price of their own, at any tier of service."""
    cards = (card, *card.service_tiers.values())
    return frozenset(name for name in _PROMPT_CLASSES for one in cards if getattr(one, name) is not None)


_priced_classes = IdentityCache(_find_priced_classes)
_SIMPLE_TEXT: Final = Chat(model="", messages=[])


def _find_whether_text_is_all(offer: Offer) -> bool:
    """Return whether a prompt of simple text (`Chat.is_simple_text`) is paid as its tokens of text and nothing else."""
    usage = TASKS[_SIMPLE_TEXT.task].usage_before_answer(_SIMPLE_TEXT, 1, offer)
    return tuple(_prompt_counts(_SIMPLE_TEXT, offer, usage)) == (Usage(input=1),)


_costs_its_text = IdentityCache(_find_whether_text_is_all)


def _per_token(chat: Chat, candidate: Candidate, prompt: int, served: Sequence[tuple[str, str]]) -> Decimal:
    """Return what a written token costs; as audio, where that is asked for."""
    card = candidate.offer.prices
    if served:
        return max(_per_token_at(chat, candidate, prompt, way) for way in served)
    if not card.tiers and chat.audio is None:
        return _price_of_one(card.output, candidate.discount) if card.output else ZERO
    return _per_token_at(chat, candidate, prompt, ("", ""))


def _per_token_at(chat: Chat, candidate: Candidate, prompt: int, served: tuple[str, str]) -> Decimal:
    prompt_only = Usage(input=prompt, service_tier=served[0], region=served[1])
    read = candidate.cost_of(prompt_only).total
    text, audio = replace(prompt_only, output=1_000_000), replace(prompt_only, audio_output=1_000_000)
    written = max(candidate.cost_of(usage).total for usage in (text, audio)[: 1 if chat.audio is None else 2])
    return (written - read) / MILLION


@lru_cache(maxsize=4096)
def _price_of_one(price: Decimal, discount: Decimal) -> Decimal:
    return price * (1 - discount) / MILLION


def _limit_of(chat: Chat, candidate: Candidate) -> int:
    """Return how many tokens an answer has at most."""
    most = candidate.offer.max_output or candidate.offer.context_length or UNSTATED_LIMIT
    return most if chat.max_tokens is None else min(chat.max_tokens, most)


def _holds_back(chat: Chat, candidate: Candidate) -> bool:
    """Return whether text waits for its end: JSON that is put right, or that came as something else (`healing`)."""
    form = chat.response_format
    if form is None or form.kind == "text":
        return False
    return not candidate.offer.structured_outputs or PLUGIN in (chat.plugins or ())


def _thinks_unseen(chat: Chat, candidate: Candidate) -> bool:
    """Return whether an answer may hold thinking of which nothing is seen, or not all, until its usage comes."""
    offer, asked = candidate.offer, _asks_to_think(chat)
    if offer.facts.get("reasoning_field") not in (None, "any") or asked is False:
        return False
    dialect = find_dialect(offer.dialect)
    return bool(asked) or dialect is None or not dialect.thinks_when_asked


def _asks_to_think(chat: Chat) -> bool | None:
    """Return whether the client asks a model to think, or not to; None where it says nothing."""
    asked = chat.reasoning
    if asked is not None and (asked.max_tokens is not None or asked.effort is not None):
        return asked.max_tokens is not None or asked.effort != "none"
    if chat.effort is not None:
        return True
    own = (chat.extra or {}).get("thinking")
    return True if isinstance(own, dict) and own.get("type") in ("enabled", "adaptive") else None


def _budget_of(chat: Chat) -> int:
    return (chat.reasoning.max_tokens if chat.reasoning is not None else None) or 0


log = structlog.get_logger(__name__)

# Tokens that a summary has at most, and the advice of one call where the client does not limit it.
MAX_SUMMARY, USUAL_ADVICE = 16_384, 4_096
# Calls of an advisor where the client does not say how many there may be.
USUAL_CALLS: Final = 3


def prices_of_passes(usage: Usage, offer: Offer) -> dict[str, PriceCard]:
    """Return the prices of the other models that an answer took passes over, by the provider's names for them."""
    found: dict[str, PriceCard] = {}
    for name in {one.model for one in usage.passes} - {"", offer.model_id, *offer.own_names}:
        if (other := find_other(offer, name)) is None:
            log.warning("model_passes.unpriced", provider=offer.provider.id, model=name[:100])
        else:
            found[name] = other.prices
    return found


def find_other(offer: Offer, name: str) -> Offer | None:
    """Return what the same provider offers under a name; None where nothing is known of it."""
    return catalog_cache.current().find_offer(offer.provider.id, name)


def beside_answer(chat: Chat, candidate: Candidate, prompt: int) -> Decimal:
    """Return what passes beside the answer's own may cost at most, for a prompt of about so many tokens, in USD."""
    if chat.dialect != "anthropic" or (chat.extra is None and not chat.tools):
        return ZERO
    cost = _cost_of(candidate, "", Usage(input=prompt, output=MAX_SUMMARY)) if _compacts(chat) else ZERO
    for data in advisors_of(chat):
        advice = Usage(input=prompt, output=_number(data, "max_tokens", USUAL_ADVICE))
        cost += _cost_of(candidate, str(data.get("model")), advice) * _number(data, "max_uses", USUAL_CALLS)
    return cost


def _cost_of(candidate: Candidate, model: str, read: Usage) -> Decimal:
    usage = Usage(passes=(ModelPass(model=model, usage=read),))
    return candidate.cost_of(usage, prices_of_passes(usage, candidate.offer)).total


def advisors_of(chat: Chat) -> Iterator[dict[str, Any]]:
    """Yield Anthropic's advisor tools of a chat, as the client wrote them: each asks the model that it names."""
    for tool in chat.tools or ():
        data = tool.data if isinstance(tool, OpaqueTool) else None
        if isinstance(data, dict) and str(data.get("type", "")).startswith("advisor_"):
            yield data


def _compacts(chat: Chat) -> bool:
    management = (chat.extra or {}).get("context_management")
    edits = management.get("edits") if isinstance(management, dict) else None
    kinds = [edit.get("type") for edit in edits or () if isinstance(edit, dict)] if isinstance(edits, list) else []
    return any(isinstance(kind, str) and kind.startswith("compact_") for kind in kinds)


def _number(data: dict[str, Any], name: str, otherwise: int) -> int:
    value = data.get(name)
    return min(value, 100_000) if type(value) is int and value > 0 else otherwise
