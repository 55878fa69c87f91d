"""Validation of a custom rule's `config`, which each type defines in its own file of `custom/`.

A configuration contains its rule's type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from apps.guardrails.custom import BadConfig, custom_types
from apps.kernel.rest.envelopes import InvalidFields, Issue

Config = Mapping[str, Any]


def validate_config(rule_type: str, given: Config) -> dict[str, Any]:
    """Return a rule's configuration as it is kept. Raises InvalidFields for one that is not of the type."""
    if given.get("type", rule_type) != rule_type:
        raise InvalidFields([Issue("config.type", f"Must be {rule_type}, as the rule's own type")])
    fields = {name: value for name, value in given.items() if name != "type"}
    with _naming_the_field():
        read = custom_types()[rule_type].read_config(fields)
    for name, value in read.items():
        if any("\0" in text for text in _texts_of(value)):
            raise InvalidFields([Issue(f"config.{name}", "Null characters are not allowed.")])
    return {"type": rule_type, **read}


def require_capacity(rule_type: str, configs: Sequence[Config]) -> None:
    """Raise InvalidFields when all of an organization's rules of a type are too much to be looked for together."""
    with _naming_the_field():
        custom_types()[rule_type].compile_rules([dict(config) for config in configs])


@contextmanager
def _naming_the_field() -> Iterator[None]:
    try:
        yield
    except BadConfig as error:
        raise InvalidFields([Issue(f"config.{error.path}" if error.path else "config", error.message)]) from error


def _texts_of(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for name, inner in value.items():
                yield name
                yield from _texts_of(inner)
        case list():
            for inner in value:
                yield from _texts_of(inner)
