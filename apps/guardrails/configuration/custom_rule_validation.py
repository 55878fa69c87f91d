"""Validation of a custom rule's `config`, which each type defines in its own file of `custom/`.

A configuration contains its rule's type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from apps.guardrails.custom import BadConfig, custom_types, require_memory
from apps.guardrails.outside import outside_types, read_outside_config, read_secrets
from apps.kernel.rest.envelopes import InvalidFields, Issue

Config = Mapping[str, Any]


def validate_config(rule_type: str, given: Config) -> dict[str, Any]:
    """Return a rule's configuration as it is kept. Raises InvalidFields for one that is not of the type."""
    if given.get("type", rule_type) != rule_type:
        raise InvalidFields([Issue("config.type", f"Must be {rule_type}, as the rule's own type")])
    fields = {name: value for name, value in given.items() if name != "type"}
    with _naming_the_field():
        if (outside := outside_types().get(rule_type)) is not None:
            read = read_outside_config(outside, fields)
        else:
            read = custom_types()[rule_type].read_config(fields)
    for name, value in read.items():
        if any("\0" in text for text in _texts_of(value)):
            raise InvalidFields([Issue(f"config.{name}", "Null characters are not allowed.")])
    return {"type": rule_type, **read}


def validate_secrets(rule_type: str, given: Config, kept: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets of an outside guard: those given, and those kept otherwise. Raises InvalidFields."""
    type_ = outside_types()[rule_type]
    with _naming_the_field():
        secrets = {**kept, **read_secrets(type_, given)}
        type_.check_secrets(secrets)
    return secrets


def validate_action(rule_type: str, action: str) -> None:
    """Raise InvalidFields for an action that a type does not have."""
    if rule_type in outside_types() and action == "allow":
        raise InvalidFields([Issue("action", f"A rule of the type {rule_type} must block, redact or warn")])


def require_capacity(rule_type: str, configs: Sequence[Config]) -> None:
    """Raise InvalidFields when all of an organization's rules of a type are too much to be looked for together."""
    if rule_type in outside_types():
        return
    with _naming_the_field():
        type_ = custom_types()[rule_type]
        require_memory(type_, type_.compile_rules([dict(config) for config in configs]))


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
