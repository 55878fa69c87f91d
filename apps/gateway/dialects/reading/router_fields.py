"""Request fields of OpenRouter and LiteLLM: read from a body of any format to routing preferences.

A field without effect here is noted as dropped, or refused by name where dropping it would break a promise. None of
these fields is ever sent to a provider.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, Final, NoReturn

from apps.gateway.canonical.chat import (
    MAX_DROPPED_FIELDS,
    MAX_RETRIES,
    DroppedField,
    MaxPrice,
    ReasoningRequest,
    RoutingPreferences,
)
from apps.gateway.dialects.reading import fields
from apps.gateway.dialects.reading.fields import (
    Malformed,
    Record,
    boolean,
    bounded_name,
    filled_string,
    integer,
    list_of,
    one_of,
    optional,
    record,
    required,
    string,
)
from apps.kernel.errors import InvalidRequest

NO_MEANING: Final = "a field of another gateway's that has no meaning here"
NO_PROMISE: Final = (
    "cannot be promised here, so nothing was sent; leave the field out if it may be answered all the same"
)


class RouterReading:
    """The result of one request's fields: fields of the chat (`known`), preferences, and dropped fields."""

    def __init__(self, known: Record) -> None:
        self.known = known
        self.wishes: Record = {}
        self.dropped: list[DroppedField] = []

    def drop(self, param: str, why: str = NO_MEANING) -> None:
        """Note that a field is left out; once is enough, and so is the first of very many."""
        field = DroppedField(param, why)
        if len(self.dropped) < MAX_DROPPED_FIELDS and field not in self.dropped:
            self.dropped.append(field)

    def want(self, **wishes: Any) -> None:
        """Keep preferences."""
        self.wishes.update(wishes)


Taker = Callable[[RouterReading, Any], None]


def refuse(param: str, message: str) -> NoReturn:
    """Refuse what would be another request if it were left out. Raises InvalidRequest (`unsupported_feature`)."""
    raise InvalidRequest(message, code="unsupported_feature", param=param)


def refused(name: str, message: str) -> Taker:
    """Return the taker of a field that is refused where it asks for something."""

    def take(reading: RouterReading, value: Any) -> None:
        if value not in (False, "", [], {}):
            refuse(name, message)

    return take


def dropped(name: str, why: str = NO_MEANING) -> Taker:
    """Return the taker of a field that is left out with a note."""

    def take(reading: RouterReading, value: Any) -> None:
        reading.drop(name, why)

    return take


def wish(name: str, read: Callable[[Any], Any]) -> Taker:
    """Return the taker of a field that is a preference as it stands."""
    return lambda reading, value: reading.want(**{name: read(value)})


def tuple_of(read: Callable[[Any], str], most: int) -> Callable[[Any], tuple[str, ...]]:
    """Return the reader of an array of at most so many, each kept once."""
    listed = list_of(read, most)
    return lambda value: tuple(dict.fromkeys(listed(value)))


MAX_PROVIDERS = 50
_HIGHEST_PRICE = 1_000_000
_UNKNOWN: Final = "not known of any provider here"
_SORTS: Final = ("price", "throughput", "latency")


def _provider_name(value: Any) -> str:
    return bounded_name(value).lower()


def take_provider(reading: RouterReading, value: Any) -> None:
    for name, inner in record(value).items():
        if inner is None:
            continue
        take = _PROVIDER_TAKERS.get(name)
        if take is None:
            reading.drop(f"provider.{name[: fields.MAX_QUOTED_NAME]}", _UNKNOWN)
        else:
            fields.within(name, partial(take, reading), inner)


def _take_sort(reading: RouterReading, value: Any) -> None:
    by = value
    if isinstance(value, dict):
        by = value.get("by")
        if value.get("partition") not in (None, "model"):
            reading.drop("provider.sort.partition", "the models are asked in the order in which they are named")
    if by is not None:
        reading.want(sort=one_of(*_SORTS)(by))


def _take_data_collection(reading: RouterReading, value: Any) -> None:
    if one_of("allow", "deny")(value) == "deny":
        reading.want(no_data_collection=True)


def _take_distillable(reading: RouterReading, value: Any) -> None:
    if boolean(value):
        refuse("provider.enforce_distillable_text", f"Whether a model's text may be distilled {NO_PROMISE}")


def _take_quantizations(reading: RouterReading, value: Any) -> None:
    if list_of(string, MAX_PROVIDERS)(value):
        reading.drop("provider.quantizations", "how a provider quantizes its models is not known here")


def _take_max_price(reading: RouterReading, value: Any) -> None:
    wire = record(value)
    for name in wire.keys() - set(MaxPrice.__struct_fields__):
        reading.drop(f"provider.max_price.{name[: fields.MAX_QUOTED_NAME]}", _UNKNOWN)
    prices = {name: optional(wire, name, _price) for name in MaxPrice.__struct_fields__}
    if any(price is not None for price in prices.values()):
        reading.want(max_price=MaxPrice(**prices))


def _price(value: Any) -> Decimal:
    try:
        price = Decimal(str(value)) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except InvalidOperation:
        price = None
    if price is None or not price.is_finite():
        raise Malformed("must be a number")
    if not 0 <= price <= _HIGHEST_PRICE:
        raise Malformed(f"must be between 0 and {_HIGHEST_PRICE}")
    return price


_PROVIDER_TAKERS: Final[dict[str, Taker]] = {
    **{name: wish(name, tuple_of(_provider_name, MAX_PROVIDERS)) for name in ("order", "only", "ignore")},
    "sort": _take_sort,
    "allow_fallbacks": wish("allow_fallbacks", boolean),
    "require_parameters": wish("require_parameters", boolean),
    "data_collection": _take_data_collection,
    "zdr": wish("zero_data_retention", boolean),
    "enforce_distillable_text": _take_distillable,
    "quantizations": _take_quantizations,
    "max_price": _take_max_price,
}


MAX_PLUGINS = 100
_HEALING, _WEB, _FILES, _MODERATION = "response-healing", "web", "file-parser", "moderation"
_LEFT_OUT: Final = {
    "auto-router": "ask for the model `auto` instead",
    "auto-beta-router": "ask for the model `auto` instead",
    "context-compression": "prompts are sent whole",
    "web-fetch": "pages are not fetched here",
    "fusion": NO_MEANING,
    "pareto-router": NO_MEANING,
    "switchyard-router": NO_MEANING,
}


def take_plugins(reading: RouterReading, value: Any) -> None:
    for at, plugin in enumerate(list_of(record, MAX_PLUGINS)(value)):
        fields.within(f"[{at}]", partial(_take_plugin, reading, f"plugins[{at}]"), plugin)


def _take_plugin(reading: RouterReading, place: str, wire: Record) -> None:
    name = required(wire, "id", one_of(_HEALING, _WEB, _FILES, _MODERATION, *_LEFT_OUT))
    if optional(wire, "enabled", boolean) is False:
        return
    stated = {key for key, value in wire.items() if value is not None} - {"id", "enabled"}
    if name == _MODERATION:
        refuse(place, "A moderation of the request " + NO_PROMISE + ", or use guardrails")
    if name in _LEFT_OUT:
        reading.drop(place, _LEFT_OUT[name])
    elif name == _HEALING:
        reading.known["plugins"] = [_HEALING]
    elif name == _WEB:
        reading.known["web_search"] = True
        if wire.get("engine") == "native":
            stated.discard("engine")
        for key in sorted(stated):
            reading.drop(f"{place}.{key[: fields.MAX_QUOTED_NAME]}", "the model's provider searches in its own way")
    elif stated and (wire.get("pdf") or {}) != {"engine": "native"}:
        reading.drop(place, "files are sent to the model as they are: it has to read them itself")


# Anthropic's word for the models that it would fall back to by itself.
_USUAL_FALLBACKS: Final = "default"
# Bounds of lists and names in one request, which real requests are far below.
MAX_MODELS, MAX_TAGS, MAX_TAG = 10, 20, 200
# Seconds; a longer time than the timeout of every provider has no effect.
MAX_TIMEOUT = 86_400


def take_router_fields(extra: Record, known: Record) -> None:
    """Move the fields out of `extra`, and put what they mean among a chat's fields, `known`.

    Raises Malformed for an invalid value, InvalidRequest (`unsupported_feature`) for a promise that no provider
    makes.
    """
    if ROUTER_FIELDS.isdisjoint(extra):
        return
    reading = RouterReading(known)
    for name in [name for name in extra if name in ROUTER_FIELDS]:
        fields.within(name, partial(_TAKERS[name], reading), extra.pop(name))
    _name_models(reading)
    if reading.wishes:
        known["preferences"] = RoutingPreferences(**reading.wishes)
    if reading.dropped:
        known["dropped_fields"] = reading.dropped


def _name_models(reading: RouterReading) -> None:
    """Make the first of `models` the model where none is named, and name none twice."""
    models: list[str] = reading.wishes.pop("models", [])
    if models and "model" not in reading.known:
        reading.known["model"] = models[0]
    others = tuple(dict.fromkeys(name for name in models if name != reading.known.get("model")))
    if others:
        reading.want(models=others)


def _tag(value: Any) -> str:
    if len(filled_string(value)) > MAX_TAG:
        raise Malformed(f"must be at most {MAX_TAG} characters long")
    return str(value)


def _take_models(reading: RouterReading, value: Any) -> None:
    reading.wishes.setdefault("models", []).extend(list_of(bounded_name, MAX_MODELS)(value))


def _take_fallbacks(reading: RouterReading, value: Any) -> None:
    """Read LiteLLM's list: names, objects with a `model`, as Anthropic has them too, or `{model: [names]}`."""
    if value == _USUAL_FALLBACKS:
        reading.drop("fallbacks", "name the models: no model has usual ones here")
        return
    names: list[str] = []
    for at, entry in enumerate(list_of(lambda it: it, MAX_MODELS)(value)):
        place = f"[{at}]"
        if isinstance(entry, str):
            names.append(fields.within(place, bounded_name, entry))
        elif isinstance(entry, dict) and "model" in entry:
            names.append(fields.within(place, _fallback_model, entry))
            for name in entry.keys() - {"model"}:
                reading.drop(f"fallbacks{place}.{name[: fields.MAX_QUOTED_NAME]}", "every model is asked the same")
        elif isinstance(entry, dict):
            for model, others in entry.items():
                listed = fields.within(f"{place}.{model[: fields.MAX_QUOTED_NAME]}", _model_names, others)
                if model in {reading.known.get("model"), "*"}:
                    names.extend(listed)
        else:
            raise Malformed("must be a string or an object", place)
    if len(names) > MAX_MODELS:
        raise Malformed(f"must name at most {MAX_MODELS} models")
    reading.wishes.setdefault("models", []).extend(names)


def _fallback_model(entry: Record) -> str:
    return str(required(entry, "model", bounded_name))


def _take_route(reading: RouterReading, value: Any) -> None:
    if string(value) != "fallback":
        reading.drop("route")


def _take_transforms(reading: RouterReading, value: Any) -> None:
    if list_of(string, MAX_PLUGINS)(value):
        reading.drop("transforms", "prompts are sent whole: nothing is taken out of their middle")


def _take_usage(reading: RouterReading, value: Any) -> None:
    if optional(record(value), "include", boolean):
        reading.known["usage_details"] = True


def _take_include_reasoning(reading: RouterReading, value: Any) -> None:
    if not boolean(value) and "reasoning" not in reading.known:
        reading.known["reasoning"] = ReasoningRequest(exclude=True)


def _take_retries(reading: RouterReading, value: Any) -> None:
    retries = integer(0, 1_000)(value)
    if retries > MAX_RETRIES:
        reading.drop("num_retries", f"a model is tried again {MAX_RETRIES} times at most")
    reading.want(retries=min(retries, MAX_RETRIES))


def _take_timeout(reading: RouterReading, value: Any) -> None:
    try:
        seconds = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
    except (ValueError, OverflowError):
        seconds = None
    if seconds is None or not 0 < seconds <= MAX_TIMEOUT:
        raise Malformed(f"must be a number of seconds above 0, at most {MAX_TIMEOUT}")
    reading.want(timeout=seconds)


def _take_no_fallbacks(reading: RouterReading, value: Any) -> None:
    if boolean(value):
        reading.want(allow_fallbacks=False)


def _take_drop_params(reading: RouterReading, value: Any) -> None:
    if not boolean(value):
        reading.drop("drop_params", "send the header X-Strict to have requests refused instead")


_model_names = list_of(bounded_name, MAX_MODELS)
_MOCKED: Final = "Answers are not made up here: ask a model of the sandbox instead"
_OTHER_ADDRESS: Final = "providers and their keys are kept with the organization"
_TAKERS: Final[dict[str, Taker]] = {
    "models": _take_models,
    "route": _take_route,
    "provider": take_provider,
    "transforms": _take_transforms,
    "plugins": take_plugins,
    "usage": _take_usage,
    "include_reasoning": _take_include_reasoning,
    "session_id": wish("session", _tag),
    "fallbacks": _take_fallbacks,
    "num_retries": _take_retries,
    "max_retries": _take_retries,
    "timeout": _take_timeout,
    "request_timeout": _take_timeout,
    "tags": wish("tags", tuple_of(_tag, MAX_TAGS)),
    "disable_fallbacks": _take_no_fallbacks,
    "drop_params": _take_drop_params,
    "guardrails": refused("guardrails", f"A guardrail of LiteLLM's {NO_PROMISE}"),
    **{name: refused(name, _MOCKED) for name in ("mock_response", "mock_timeout", "mock_tool_calls")},
    **{name: dropped(name) for name in ("preset", "debug", "trace", "prompt_id", "prompt_variables", "prompt_version")},
    **{
        name: dropped(name)
        for name in ("context_window_fallbacks", "content_policy_fallbacks", "allowed_openai_params")
    },
    **{name: dropped(name) for name in ("cache", "caching", "no-log", "rpm", "tpm")},
    **{name: dropped(name) for name in ("input_cost_per_token", "output_cost_per_token", "input_cost_per_second")},
    **{
        name: dropped(name) for name in ("litellm_params", "litellm_metadata", "litellm_session_id", "litellm_trace_id")
    },
    **{
        name: dropped(name, _OTHER_ADDRESS)
        for name in ("api_base", "base_url", "api_key", "api_version", "user_config")
    },
    **{name: dropped(name, _OTHER_ADDRESS) for name in ("custom_llm_provider", "aws_region_name")},
    **{name: dropped(name, "its members belong into the body itself") for name in ("extra_body", "extra_query")},
    "extra_headers": dropped("extra_headers", "headers belong to the HTTP request"),
    "stream_timeout": dropped("stream_timeout", "send `timeout`"),
}
ROUTER_FIELDS: Final = frozenset(_TAKERS)
"""The names of all these fields: none of them is a provider's business."""
