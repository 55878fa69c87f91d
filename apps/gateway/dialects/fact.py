"""Fact declaration: describes a fact of a data file, and the bounds of its value, where a dialect declares it.

`facts_reader` reads the facts of one task (`rerank`, `speech` …), which data files state under its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Meta

from apps.kernel.concurrency.identity_cache import IdentityCache

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def fact(description: str, *, default: str | None = None, **bounds: Any) -> Meta:
    """Return the annotation of a fact: its description for the documents, bounds on its value (`pattern`, `ge`, `le` …)
    and, where the field's own default does not show it, the effect of a fact that is not stated."""
    return Meta(description=description, extra=None if default is None else {"default": default}, **bounds)


def facts_reader(task: str, struct: type[_Struct]) -> Callable[[Mapping[str, Any]], _Struct | None]:
    """Return a function that reads the facts of a task from an offer's facts; None where the offer states none.

    It reads the same object once.
    """
    read = IdentityCache[Any, _Struct](lambda stated: msgspec.convert(stated, struct))

    def read_stated(facts: Mapping[str, Any]) -> _Struct | None:
        stated = facts.get(task)
        return None if stated is None else read(stated)

    return read_stated
