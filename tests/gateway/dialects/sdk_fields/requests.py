"""Pairs of requests for each field of an SDK's request type: the least that can hold it, without and with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
)

from typing_extensions import get_type_hints, is_typeddict

# How deep types are looked into: schemas and tools within tools have no end.
_MAX_DEPTH = 7
_MAX_REPEATS = 2
_LISTS = (list, Iterable, Sequence)
_TEXTS = {
    "url": "https://example.com/a.png",
    "image_url": "https://example.com/a.png",
    "file_url": "https://example.com/a.pdf",
    "data": "AAAA",
    "file_data": "data:application/pdf;base64,AAAA",
    "media_type": "image/png",
    "arguments": "{}",
}
# By type: the least that may stand around a field of that name, where the type itself requires nothing.
LEAST: dict[Any, Callable[[str], dict[str, Any]]] = {}


class Pair(NamedTuple):
    """A field by its path, and a request without and with it."""

    path: str
    without: Any
    with_it: Any


def pairs_of(kind: Any, around: tuple[Any, ...] = ()) -> Iterator[Pair]:
    """Yield the pairs of a type, of its fields and of their types; `around` are the types that enclose it."""
    kind = _bare(kind)
    if len(around) > _MAX_DEPTH or around.count(kind) >= _MAX_REPEATS:
        return
    around = (*around, kind)
    if is_typeddict(kind):
        yield from _pairs_of_fields(kind, around)
    elif get_origin(kind) in (Union, UnionType):
        seen = set()
        for member in get_args(kind):
            for pair in pairs_of(member, around[:-1]):
                if pair.path not in seen:
                    seen.add(pair.path)
                    yield pair
    elif get_origin(kind) in _LISTS:
        for path, without, with_it in pairs_of(get_args(kind)[0], around):
            yield Pair(path, [without], [with_it])


def _pairs_of_fields(kind: Any, around: tuple[Any, ...]) -> Iterator[Pair]:
    hints = get_type_hints(kind, include_extras=True)
    least = sample(kind)
    mark = f"<{least['type']}>" if isinstance(least.get("type"), str) else ""
    for name, hint in hints.items():
        beside = LEAST[kind](name) if kind in LEAST else least
        if name not in beside:
            yield Pair(f"{mark}{name}", beside, {**beside, name: sample(hint, name)})
        for path, without, with_it in pairs_of(hint, around):
            yield Pair(f"{mark}{name}.{path}", {**beside, name: without}, {**beside, name: with_it})


def sample(kind: Any, name: str = "") -> Any:
    """Return the least value of a type, of a field of that name."""
    kind = _bare(kind)
    origin, inner = get_origin(kind), get_args(kind)
    if kind in LEAST:
        return LEAST[kind]("")
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        # Required fields are known only now that annotations are read: the SDKs write theirs as strings.
        required = [name for name, hint in hints.items() if _is_required(kind, name, hint)]
        return {field: sample(hints[field], field) for field in required}
    if origin is Literal:
        return inner[0]
    if origin in (Union, UnionType):
        return sample(next((one for one in inner if is_typeddict(_bare(one))), inner[0]), name)
    if origin in _LISTS:
        return [sample(inner[0], name)]
    if origin in (dict, Mapping):
        return {"k": sample(inner[1])}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind)[-1].value
    plain = {
        str: _TEXTS.get(name, "x"),
        int: 2,
        float: 0.5,
        bool: True,
        bytes: b"xyz",
        datetime: datetime(2026, 1, 2, tzinfo=UTC),
    }
    return plain.get(kind, {"type": "object"})


def _is_required(kind: Any, name: str, hint: Any) -> bool:
    return get_origin(hint) is Required or (
        name in kind.__required_keys__ and kind.__total__ and get_origin(hint) is not NotRequired
    )


def _bare(kind: Any) -> Any:
    while get_origin(kind) in (Annotated, Required, NotRequired):
        kind = get_args(kind)[0]
    return kind
