"""Validation of the fields of a guardrail configuration. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from apps.guardrails.findings.scan_types import EARLIER_TURN, SPEAKERS, STRICTNESS
from apps.kernel.rest.envelopes import Issue

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
    `roles` has the actions that were chosen.
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
