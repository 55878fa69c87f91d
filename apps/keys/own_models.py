"""Own models: the models of an organization's own server, as the server lists them and as the organization set them;
and the replicas of the server.

All are columns of the provider key: `found_models`, a list of `{name, contextLength, capabilities, goneAt}` that a
refresh replaces; `model_probes`, what small requests showed of a model, by its name; `model_settings`, what the
organization set, by its name; `observed_use`, the tokens in an hour of the models that have a price of an hour, by
name; and `replicas`, a list of `{name, baseUrl, draining}`, empty where the server has one address. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import msgspec

# All models of an organization's own servers, which its policies carry; and models with settings of one server.
MAX_MODELS, MAX_SETTINGS = 2_000, 1_000
# Characters of a model's name at its server: with `custom:<providerName>/` before it, it is a model's name here.
MAX_MODEL_NAME = 200
# Characters of an id that an organization chose for a model.
MAX_ALIAS = 100
# Models of a server that it no longer lists: the last to go are kept.
MAX_GONE = 100
# Tokens; and USD per million tokens.
MAX_CONTEXT, MAX_PRICE, _PRICE_STEP = 100_000_000, Decimal(1_000_000), Decimal("0.000001")
# Tokens that a machine may answer within an hour, and the replicas of a server.
MAX_TOKENS_PER_HOUR, MAX_REPLICAS = 10**12, 16
# Capabilities that servers state, probes show and organizations set. Servers state the last four only.
CAPABILITIES = (
    *("chat", "streaming", "parallel_tools", "json_schema"),
    *("tools", "vision", "thinking", "embedding"),
)
# Mean tokens in an hour from which on use shows what shares an hour: a few trial requests would make a token cost
# thousands of times what it will.
MIN_OBSERVED = 10_000
# Ollama's name of a model without a tag.
DEFAULT_TAG = ":latest"


class ServerReplica(msgspec.Struct, frozen=True):
    """One of several addresses of a server that serve the same models. A draining one gets no new requests."""

    name: str
    url: str
    draining: bool = False


def name_replicas(addresses: Sequence[str]) -> list[dict[str, Any]]:
    """Return replicas as the column has them, named by their position; none where there is one address."""
    if len(addresses) < 2:
        return []
    return [{"name": f"replica-{at}", "baseUrl": url, "draining": False} for at, url in enumerate(addresses, start=1)]


def read_replicas(stored: Sequence[Mapping[str, Any]]) -> tuple[ServerReplica, ...]:
    """Return the replicas of the column."""
    return tuple(ServerReplica(one["name"], one["baseUrl"], one["draining"]) for one in stored)


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of small requests to a model. `results` has the capabilities that an answer decided, `notes` the
    reason where one is missing or False, for people."""

    at: str
    results: Mapping[str, bool]
    # The field in which the server writes thinking; None where it wrote none.
    thinking_field: str | None = None
    # Whether a stream ends with counts of tokens; None where it was not seen.
    reports_usage: bool | None = None
    notes: Mapping[str, str] = {}


class OwnModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model of an own server. Prices are USD per million tokens, both or none; None is unknown.

    `context_length` is the organization's setting, else what the server stated, which is `found_context`.
    """

    name: str
    context_length: int | None = None
    found_context: int | None = None
    input_price: Decimal | None = None
    output_price: Decimal | None = None
    # A machine's price in USD per hour, and the tokens that share it: those that the organization set, else those that
    # its use shows.
    hourly_price: Decimal | None = None
    tokens_per_hour: int | None = None
    observed_tokens_per_hour: int | None = None
    # Those of `CAPABILITIES` that the organization set, a probe showed or the server stated; None if none of these did.
    capabilities: tuple[str, ...] | None = None
    # Those that the organization set, True or False; and those that it set or a probe showed, to which requests are
    # held.
    overrides: Mapping[str, bool] = {}
    known: Mapping[str, bool] = {}
    probe: Probe | None = None
    # The id that the organization chose for it, beside `custom:<providerName>/<model>`; empty without one.
    alias: str = ""
    # False for a model that the server does not list: it has settings, was probed, or was listed until `gone_at`.
    is_found: bool = True
    gone_at: str | None = None
    # Whether the organization set something.
    is_set: bool = False

    @property
    def token_price(self) -> Decimal | None:
        """USD per million tokens of a machine that is paid by the hour; None before its tokens are known."""
        tokens = self.tokens_per_hour or self.observed_tokens_per_hour
        if self.hourly_price is None or not tokens:
            return None
        return min(self.hourly_price * 1_000_000 / tokens, MAX_PRICE).quantize(_PRICE_STEP)

    @property
    def set_capabilities(self) -> Mapping[str, bool] | None:
        """The capabilities that the organization set; None without any."""
        return self.overrides or None

    @property
    def is_listed(self) -> bool:
        """Whether it is listed for API keys: the server lists it, or the organization set something."""
        return self.is_found or self.is_set


class OwnModels(dict[str, OwnModel]):
    """The models of a server by name, those that it lists first."""

    def find(self, name: str) -> OwnModel | None:
        """Return a model by a name that requests may use; None if nothing is known of it."""
        return self.get(name) or self.get(f"{name}{DEFAULT_TAG}")


def read_models(
    found: Sequence[Mapping[str, Any]],
    settings: Mapping[str, Mapping[str, Any]],
    probes: Mapping[str, Mapping[str, Any]],
    observed: Mapping[str, int],
) -> OwnModels:
    """Return the models of the four columns."""
    stated = {str(one["name"]): one for one in found}
    names = dict.fromkeys([*stated, *settings, *probes])
    return OwnModels(
        {
            name: _model_of(name, stated.get(name), settings.get(name, {}), probes.get(name), observed.get(name))
            for name in names
        }
    )


def _model_of(
    name: str,
    found: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    probed: Mapping[str, Any] | None,
    observed: int | None,
) -> OwnModel:
    stated = found or {}
    probe = None if probed is None else msgspec.convert(probed, Probe)
    overrides = settings.get("overrides", {})
    known = {**(probe.results if probe else {}), **overrides}
    listed = stated.get("capabilities")
    capabilities = None
    if known or listed is not None:
        capabilities = tuple(one for one in CAPABILITIES if known.get(one, one in (listed or ())))
    return OwnModel(
        name=name,
        context_length=settings.get("contextLength") or stated.get("contextLength"),
        found_context=stated.get("contextLength"),
        input_price=_price(settings.get("inputPrice")),
        output_price=_price(settings.get("outputPrice")),
        hourly_price=_price(settings.get("hourlyPrice")),
        tokens_per_hour=settings.get("tokensPerHour"),
        observed_tokens_per_hour=observed,
        capabilities=capabilities,
        overrides=overrides,
        known=known,
        probe=probe,
        is_found=found is not None and "goneAt" not in found,
        gone_at=stated.get("goneAt"),
        is_set=bool(settings),
        alias=settings.get("alias", ""),
    )


def mark_gone(
    found: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]], now: str
) -> list[dict[str, Any]]:
    """Return the models that a server lists now, and those that it no longer lists, marked with when that was seen; as
    many as are kept."""
    names = {one["name"] for one in found}
    gone = [{**one, "goneAt": one.get("goneAt", now)} for one in before if one["name"] not in names]
    gone.sort(key=lambda one: one["goneAt"], reverse=True)
    return [*map(dict, found), *gone[:MAX_GONE]]


def average_use(days: Iterable[tuple[str, date, int]], models: Sequence[str], today: date) -> dict[str, int]:
    """Return the tokens in an hour of models that were used: the mean since the first of these whole days with use.

    A machine costs as much while it waits, so all hours of a day count. `days` are names, days before `today`, and the
    tokens of each; a name may be without the tag `latest`.
    """
    sums: dict[str, int] = {}
    first: dict[str, date] = {}
    for stated, day, tokens in days:
        name = stated if stated in models else f"{stated}{DEFAULT_TAG}"
        if tokens > 0 and name in models:
            sums[name] = sums.get(name, 0) + tokens
            first[name] = min(day, first.get(name, day))
    means = {name: tokens // (24 * (today - first[name]).days) for name, tokens in sums.items()}
    return {name: mean for name, mean in means.items() if mean >= MIN_OBSERVED}


def _price(stored: str | None) -> Decimal | None:
    return None if stored is None else Decimal(stored)
