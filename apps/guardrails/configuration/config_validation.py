"""Validation of the fields of a guardrail configuration, and of a custom rule's `config`, which each type defines in
its own file of `custom/`. Pure.

A custom rule's configuration contains its rule's type.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from apps.guardrails.custom import BadConfig, custom_types, require_memory
from apps.guardrails.findings.scan_types import EARLIER_TURN, SPEAKERS, STRICTNESS
from apps.guardrails.outside import check_secrets, outside_types, read_outside_config, read_secrets
from apps.guardrails.rules import CALLS_RULE
from apps.kernel.rest.envelopes import InvalidFields, Issue

ACTIONS = tuple(reversed(STRICTNESS))
# Speakers that a rule may have an action of its own for, and earlier turns.
ROLES = (*SPEAKERS, EARLIER_TURN)
# Megabytes of a file; files larger than a request's body never arrive.
SMALLEST_FILE, LARGEST_FILE = Decimal("0.01"), Decimal(1000)
# How many types of files are named at most.
MAX_TYPES = 100
# RFC 6838: a type and a subtype of "restricted" names.
MIME_TYPE = r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,63}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}"
_FLAGS = ("enabled", "observe", "restore")
# Tools that the rule about tool calls lists, and characters of a name.
MAX_TOOLS, MAX_TOOL_NAME = 200, 64


def find_rule_issues(given: Any, known: Collection[str], path: str = "systemRules") -> list[Issue]:
    """Return what is wrong with the changes of system rules: which rules and fields there are not, which values."""
    if not isinstance(given, Mapping):
        return [Issue(path, "Must be an object of rules by name")]
    issues = []
    for name, changes in given.items():
        if name not in known:
            issues.append(Issue(f"{path}.{name}", f"Not a system rule; there are {', '.join(known)}"))
        elif not isinstance(changes, Mapping):
            issues.append(Issue(f"{path}.{name}", "Must be an object"))
        else:
            issues += [issue for field, value in changes.items() for issue in _issues(f"{path}.{name}", field, value)]
    return issues


def merge_system_rules(
    stored: Mapping[str, Mapping[str, Any]],
    given: Mapping[str, Mapping[str, Any]],
    defaults: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Return the system rules with the changes made to them.

    `observe` is there only where it is so, or where it is the rule's default; `restore` only where it is off;
    `roles` has the actions that were chosen, and `tools` those that were listed last.
    """
    whole = {name: {**stored.get(name, {}), **given.get(name, {})} for name in (*stored, *given)}
    for name, rule in whole.items():
        roles = {**stored.get(name, {}).get("roles", {}), **given.get(name, {}).get("roles", {})}
        rule["roles"] = {role: action for role, action in roles.items() if action is not None}
        if not rule["roles"]:
            del rule["roles"]
        if not (rule.get("observe") or "observe" in defaults.get(name, {})):
            rule.pop("observe", None)
        if rule.get("restore"):
            del rule["restore"]
        if not rule.get("tools"):
            rule.pop("tools", None)
    return whole


def read_megabytes(given: Any) -> Decimal:
    """Return a file's size in megabytes, to the hundredth. Raises ValueError."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not SMALLEST_FILE <= given <= LARGEST_FILE:
        raise ValueError(f"Must be a number from {SMALLEST_FILE} to {LARGEST_FILE}")
    return Decimal(str(given)).quantize(SMALLEST_FILE, ROUND_HALF_EVEN)


def find_file_type_issues(given: Any, path: str = "allowedFileTypes") -> list[Issue]:
    """Return what is wrong with a list of MIME types."""
    if not isinstance(given, list) or len(given) > MAX_TYPES:
        return [Issue(path, f"Must be a list of at most {MAX_TYPES} MIME types")]
    return [
        Issue(f"{path}[{index}]", "Must be a MIME type such as image/png")
        for index, one in enumerate(given)
        if not (isinstance(one, str) and re.fullmatch(MIME_TYPE, one))
    ]


def normalize_file_types(given: list[str]) -> list[str]:
    """Return MIME types as they are compared: in small letters, each once."""
    return list(dict.fromkeys(one.lower() for one in given))


def _issues(path: str, field: str, value: Any) -> list[Issue]:
    if field in _FLAGS:
        return [] if isinstance(value, bool) else [Issue(f"{path}.{field}", "Must be true or false")]
    if field == "action":
        is_one = isinstance(value, str) and value in ACTIONS
        return [] if is_one else [Issue(f"{path}.action", f"Must be one of {', '.join(ACTIONS)}")]
    if field == "tools" and path.rpartition(".")[2] == CALLS_RULE:
        is_fit = isinstance(value, Mapping) and len(value) <= MAX_TOOLS
        if not is_fit or not all(
            0 < len(tool) <= MAX_TOOL_NAME and isinstance(has, bool) for tool, has in value.items()
        ):
            limits = f"at most {MAX_TOOLS} names of 1 to {MAX_TOOL_NAME} characters"
            return [Issue(f"{path}.tools", f"Must be an object of {limits}, each with true or false")]
        return []
    if field == "roles":
        if not isinstance(value, Mapping):
            return [Issue(f"{path}.roles", "Must be an object of actions by role")]
        return [issue for role, action in value.items() if (issue := _role_issue(f"{path}.roles.{role}", role, action))]
    return [Issue(f"{path}.{field}", "Not a field of a system rule")]


def _role_issue(path: str, role: str, action: Any) -> Issue | None:
    """Return the fault of an action by role; null leaves the role to the rule's default."""
    if role not in ROLES:
        return Issue(path, f"Not a role; there are {', '.join(ROLES)}")
    # A rule that allows a text is not asked about it, whatever the turn.
    actions = [action for action in ACTIONS if action != "allow" or role != EARLIER_TURN]
    is_one = action is None or (isinstance(action, str) and action in actions)
    return None if is_one else Issue(path, f"Must be null or one of {', '.join(actions)}")


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
        check_secrets(type_, secrets)
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
