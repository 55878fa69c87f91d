"""Registry of custom rule types, which organizations configure: every file of this folder is one.

A type's file holds `TYPE`; `read_config(config)`, which returns the configuration as it is kept or raises `BadConfig`;
and `compile_rules(configs)`, which makes one matcher of all rules of the type. A matcher has `find(text, budget)`,
which yields (index of the rule, span), and may have `find_in_conversation(segments)`, which yields (index of the rule,
index of the segment, span). Its `max_bytes` is the memory that it takes at most; `FIELD`, a field of the
configuration, is the one to shorten where that is too much.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from apps.guardrails.findings.scan_types import Segment, Span
from apps.guardrails.regex.re2_matcher import TimeBudget
from apps.guardrails.text.scanned_text import ScannedText

# How many rules an organization may have.
MAX_RULES = 500
# Bytes that all rules of one type of an organization take at most when they are compiled.
MAX_TYPE_BYTES = 24_000_000


class BadConfig(ValueError):
    """A configuration that is not taken. `path` is the field within it, "terms[3]"; `message` says why."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


class Matcher(Protocol):
    """All rules of one type of an organization, ready to run."""

    @property
    def max_bytes(self) -> int:
        """Bytes that it takes at most, whatever texts it is applied to."""

    def find(self, text: ScannedText, budget: TimeBudget) -> Iterable[tuple[int, Span]]:
        """Yield the index of a rule and what it found, in any order."""


class ConversationMatcher(Protocol):
    """A matcher that also judges texts by the texts around them."""

    def find_in_conversation(self, segments: Sequence[Segment]) -> Iterator[tuple[int, int, Span]]:
        """Yield the index of a rule, that of a segment, and the matched span."""


class CustomType(Protocol):
    """The interface of a file of this folder."""

    TYPE: str
    FIELD: str

    def read_config(self, config: object) -> dict[str, Any]:
        """Return the configuration as it is kept. Raises BadConfig."""

    def compile_rules(self, configs: Sequence[dict[str, Any]]) -> Matcher:
        """Return a matcher of all rules. Raises BadConfig where they are too large together."""


@functools.cache
def custom_types() -> MappingProxyType[str, CustomType]:
    """Return every type of this folder by its name."""
    modules: list[Any] = [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]
    return MappingProxyType({module.TYPE: module for module in modules})


def require_memory(type_: CustomType, matcher: Matcher) -> None:
    """Raise BadConfig where all rules of a type of an organization take more memory than they may."""
    if matcher.max_bytes > MAX_TYPE_BYTES:
        taken, most = -(-matcher.max_bytes // 1_000_000), MAX_TYPE_BYTES // 1_000_000
        raise BadConfig(
            type_.FIELD,
            f"All rules of the type {type_.TYPE} together take {taken} MB of memory, and the maximum is {most} MB: "
            "shorten this one, or remove others",
        )


def fields_of(config: object) -> dict[str, Any]:
    """Return a configuration as an object's fields. Raises BadConfig for anything else."""
    if not isinstance(config, dict):
        raise BadConfig("", "Must be an object")
    return config


def read_texts(value: object, path: str, *, most: int, longest: int, fewest: int = 0) -> list[str]:
    """Return a list of texts, none of them blank, without the blanks around them. Raises BadConfig naming the item."""
    if not isinstance(value, list) or not fewest <= len(value) <= most:
        raise BadConfig(path, f"Must be a list of {fewest} to {most} texts")
    for index, item in enumerate(value):
        if not isinstance(item, str) or not item.strip() or len(item) > longest:
            raise BadConfig(f"{path}[{index}]", f"Must be a text of 1 to {longest} characters that is not blank")
    return [item.strip() for item in value]
