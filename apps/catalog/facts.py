"""Facts of data files, validated: common ones, and those that the provider's dialect declares.

Dialects are in a higher layer, so they pass their declarations at process start (`use_declarations`). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType


class Declarations(NamedTuple):
    """The facts that dialects declare: functions to the struct of a dialect's facts, and of the facts under `images`;
    None for an unknown dialect. And the structs of other facts, by key."""

    of_dialect: Callable[[str], type[msgspec.Struct] | None]
    of_images: Callable[[str], type[msgspec.Struct] | None]
    of_kinds: Mapping[str, type[msgspec.Struct]]


class Variable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The source of a `{name}` in the address: the first of these environment variables that is set, or the default."""

    env: list[Annotated[str, Meta(pattern=r"^[A-Z][A-Z0-9_]*$", max_length=80)]]
    default: Annotated[str, Meta(min_length=1, max_length=200)] | UnsetType = UNSET


class StatedBatchTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A batch API: its format, and its share of the usual token prices, as a decimal string; cached input may have its
    own share, and models their own deployments, whose names end with a suffix (Azure). Amazon Bedrock's reads lines
    from a bucket and writes answers to it, in the name of a role."""

    format: Literal["openai", "anthropic", "google", "mistral", "bedrock"]
    price_share: Annotated[str, Meta(pattern=r"^(0\.\d{1,4}|1)$")]
    cached_share: Annotated[str, Meta(pattern=r"^(0\.\d{1,4}|1)$")] | UnsetType = UNSET
    deployment_suffix: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]+$", max_length=60)] | UnsetType = UNSET
    storage: (
        Annotated[str, Meta(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._-]+)*$", max_length=500)]
        | UnsetType
    ) = UNSET
    role: Annotated[str, Meta(pattern=r"^arn:aws(-[^:]+)?:iam::\d{12}:role/.+$", max_length=2048)] | UnsetType = UNSET
    api_url: Annotated[str, Meta(pattern=r"^https?://[^?#]+[^/?#]$", max_length=300)] | UnsetType = UNSET
    storage_url: Annotated[str, Meta(pattern=r"^https?://[^?#]+[^/?#]$", max_length=300)] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.format == "bedrock" and UNSET in {self.storage, self.role}:
            raise ValueError("state `storage` and `role` for the format bedrock")


class AddressFactor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A factor on the token prices of these models, where the provider's address has a part, or lacks one."""

    factor: Annotated[str, Meta(pattern=r"^\d{1,2}(\.\d{1,4})?$")]
    models: list[Annotated[str, Meta(max_length=120)]]
    contains: Annotated[str, Meta(max_length=200)] = ""
    unless: Annotated[str, Meta(max_length=200)] = ""

    def holds(self, model_id: str, address: str) -> bool:
        """Return whether the factor is charged for a model at an address."""
        return model_id in self.models and self.contains in address and not (self.unless and self.unless in address)


class SharedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of every dialect; the catalog, the gateway, or all dialects read them."""

    structured_outputs: Annotated[
        Literal["native", "tool", "json_object"] | None,
        Meta(
            description="how a JSON schema is kept: `native`, by a forced `tool`, or by `json_object` and "
            "instructions, which is noted",
            extra={"default": "by the features"},
        ),
    ] = None
    unsupported: Annotated[list[str], Meta(description="top-level request fields that are refused")] = []
    media_urls: Annotated[
        bool | None,
        Meta(
            description="takes images and documents by address; what does not gets the bytes, which the gateway "
            "fetches",
            extra={"default": "as the dialect has it"},
        ),
    ] = None
    count_dialect: Annotated[
        str | None,
        Meta(
            description="the dialect in which the provider is asked how many tokens a prompt has",
            extra={"default": "the model's own"},
        ),
    ] = None
    client_dialects: Annotated[
        list[str],
        Meta(
            description="dialects beside its own in which the provider can be asked: a client of one of them is passed "
            "on in its own format"
        ),
    ] = []
    search_dialect: Annotated[
        str | None,
        Meta(
            description="the dialect in which the provider is asked where it shall search the web",
            extra={"default": "the model's own"},
        ),
    ] = None
    searches_unasked: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="searches of the web that a request is held for although it does not ask for any: the model "
            "searches by itself",
        ),
    ] = 0
    states_cost: Annotated[
        bool,
        Meta(
            description="its answers state what they cost (`usage.cost_in_usd_ticks`), which is billed where no "
            "operator set a price"
        ),
    ] = False
    tier_by_account: Annotated[
        bool,
        Meta(
            description="a request that names no service tier gets the one that the account is set to: with the "
            "gateway's credentials it is sent as `default`"
        ),
    ] = False
    tools_dialect: Annotated[
        str | None,
        Meta(
            description="the dialect in which the provider is asked where tools are stated",
            extra={"default": "the model's own"},
        ),
    ] = None
    reasoning_tools_dialect: Annotated[
        str | None,
        Meta(
            description="the dialect in which the provider is asked where tools and reasoning are both stated",
            extra={"default": "the model's own"},
        ),
    ] = None
    also_called: Annotated[
        list[Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=40)]],
        Meta(description="what clients of other gateways call the provider"),
    ] = []
    zero_data_retention: Annotated[
        bool, Meta(description="has promised to retain nothing; `provider.zdr` allows only such providers")
    ] = False
    data_collection: Annotated[
        bool | None,
        Meta(
            description="`false` where it has promised to collect nothing; `provider.data_collection: deny` "
            "allows only such providers",
            extra={"default": "not known"},
        ),
    ] = None
    batch: Annotated[
        StatedBatchTerms | None,
        Meta(
            description="its own batch API, which answers lines of batches: "
            '`{ format = "openai", price_share = "0.5" }`; formats are `openai`, `anthropic`, `google`, `mistral` and '
            "`bedrock`, the share is that of its usual prices of tokens; `cached_share` where cached tokens have "
            "another one; `deployment_suffix` where lines name the model's deployment for batches, which is its name "
            "and this; for `bedrock` `storage` (`s3://bucket/folder`) and `role` (an ARN), and `api_url` and "
            "`storage_url` where these have other addresses than AWS's"
        ),
    ] = None
    address_factors: Annotated[
        list[AddressFactor],
        Meta(
            description="factors on the token prices of models by the provider's address, such as for regions: "
            '`[{ unless = "/locations/global", factor = "1.1", models = ["fox-1"] }]`; `contains` and `unless` are '
            "parts of the address; of several that hold, the first counts"
        ),
    ] = []
    moderated: Annotated[bool, Meta(description="moderates content itself and refuses some")] = False
    development_only: Annotated[bool, Meta(description="exists only outside of production")] = False
    variables: Annotated[
        dict[str, Variable],
        Meta(
            description='placeholders of the address: `{ env = ["VARIABLE", …], default = "…" }`; the first '
            "variable that is set counts"
        ),
    ] = {}
    images: Annotated[
        dict[str, Any] | None,
        Meta(description="how it is asked for images, as below; without it a model makes none"),
    ] = None
    embeddings: Annotated[
        dict[str, Any] | None,
        Meta(description="how it is asked for embeddings, as below; not needed where the usual way will do"),
    ] = None
    rerank: Annotated[
        dict[str, Any] | None,
        Meta(description="how it is asked to rank documents, as below; not needed where the usual way will do"),
    ] = None
    moderations: Annotated[
        dict[str, Any] | None,
        Meta(description="how it is asked to judge content, as below; not needed where the usual way will do"),
    ] = None
    speech: Annotated[
        dict[str, Any] | None,
        Meta(description="how it is asked to read aloud, as below; without it a model does not speak"),
    ] = None
    transcription: Annotated[
        dict[str, Any] | None,
        Meta(description="how it is asked for transcripts, as below; without it a model writes none"),
    ] = None


# The facts that name a dialect.
_DIALECT_FACTS = ("count_dialect", "search_dialect", "tools_dialect", "reasoning_tools_dialect")

_declarations: list[Callable[[], Declarations]] = []


def use_declarations(load: Callable[[], Declarations]) -> None:
    """Validate data files against these from now on. `load` is called once, for the first file that is read."""
    _declarations[:] = [cache(load)]
    _facts_type.cache_clear()
    _image_facts_type.cache_clear()
    _kind_facts_type.cache_clear()


def check_dialect(dialect: str, key: str) -> None:
    """Raise ValueError naming the key unless this dialect is declared."""
    if _declared().of_dialect(dialect) is None:
        raise ValueError(f"Invalid enum value {dialect!r} - at `$.{key}`")


def read_facts(stated: Any, dialect: str, entry_keys: Iterable[str]) -> msgspec.Struct:
    """Return facts as a struct, with UNSET for those that are not stated. Raises ValueError naming the key.

    `entry_keys`: keys that belong to a model's entry, and must not be in `facts`.
    """
    facts = msgspec.convert({"facts": stated}, _facts_type(dialect, frozenset(entry_keys))).facts
    if (images := facts.images) is not UNSET:
        kind = images.get("dialect")
        if not isinstance(kind, str) or _declared().of_images(kind) is None:
            raise ValueError(f"Invalid enum value {kind!r} - at `$.facts.images.dialect`")
        msgspec.convert({"facts": {"images": images}}, _image_facts_type(kind))
    for kind in _declared().of_kinds:
        if (stated_of_kind := getattr(facts, kind)) is not UNSET:
            msgspec.convert({"facts": {kind: stated_of_kind}}, _kind_facts_type(kind))
    for key in _DIALECT_FACTS:
        if (dialect_name := getattr(facts, key)) is not UNSET:
            check_dialect(dialect_name, f"facts.{key}")
    for name in () if facts.client_dialects is UNSET else facts.client_dialects:
        check_dialect(name, "facts.client_dialects")
    checked: msgspec.Struct = facts
    return checked


def _declared() -> Declarations:
    if not _declarations:
        raise RuntimeError("no dialect has declared its facts: apps.catalog.facts.use_declarations was not called")
    return _declarations[0]()


@cache
def _facts_type(dialect: str, entry_keys: frozenset[str]) -> Any:
    declared = _declared().of_dialect(dialect)
    own = {} if declared is None else get_type_hints(declared, include_extras=True)
    shared = get_type_hints(SharedFacts, include_extras=True)
    fields = {name: kind for name, kind in own.items() if name not in entry_keys} | shared
    return _holder("facts", _table("Facts", fields))


@cache
def _image_facts_type(dialect: str) -> Any:
    declared = _declared().of_images(dialect)
    hints = {} if declared is None else get_type_hints(declared, include_extras=True)
    return _holder("facts", _holder("images", _table("Images", hints)))


@cache
def _kind_facts_type(kind: str) -> Any:
    hints = get_type_hints(_declared().of_kinds[kind], include_extras=True)
    return _holder("facts", _holder(kind, _table(kind.capitalize(), hints)))


def _holder(name: str, kind: Any) -> Any:
    """Return a struct around a table, so that errors have the complete path of a key."""
    return msgspec.defstruct("Holder", [(name, kind)])


def _table(name: str, fields: dict[str, Any]) -> type[msgspec.Struct]:
    """Return a strict table of a file: unknown keys are errors, missing ones are UNSET."""
    return msgspec.defstruct(
        name,
        [(field, _stated(kind) | UnsetType, UNSET) for field, kind in fields.items()],
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
        omit_defaults=True,
    )


def _stated(kind: Any) -> Any:
    """Return a field's type in a file: lists for sets and tuples, and never null."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bounds = [meta for meta in kind.__metadata__ if isinstance(meta, Meta)]
        return Annotated[(_stated(inner[0]), *bounds)]
    if origin in (UnionType, Union):
        kept = [_stated(one) for one in inner if one is not NoneType]
        return kept[0] if len(kept) == 1 else Union[tuple(kept)]  # noqa: UP007 - made at run time
    if origin in (frozenset, tuple):
        return list[_stated(inner[0])]  # type: ignore[misc]  # made at run time
    return kind
