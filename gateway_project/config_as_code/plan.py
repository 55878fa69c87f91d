"""The plan: the changes that lead from an organization as it is to the organization that a file describes.

A plan can be kept as a file. It has no secrets, only the names of the environment variables that have them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from gateway_project.config_as_code.document import variable_of
from gateway_project.config_as_code.resources import (
    ACCESS_RULES,
    GUARDRAIL_RULES,
    LIMITS,
    OWNERS,
    PROJECTS,
    ROOTS,
    TEAMS,
    FoundEntry,
    FoundState,
    ResourceKind,
    Values,
    key_of,
    label,
    normal,
    owner_name,
    printable,
    refuse_doubles,
)
from gateway_project.config_as_code.yaml_file import ConfigError

# Characters of a value in a plan for people.
MAX_SHOWN: Final = 160
_ARCHIVED: Final = "archived"
# Refusals of names of other sections.
_ABSENT: Final = {
    "teams": "There is no team of this name",
    "serviceAccounts": "There is no service account of this name",
    "people": "No member of the organization has this address; invite them first",
    "projects": "There is no project of this name, or more than one",
    "alertDestinations": "There is no alert destination of this name",
}
_SIGNS: Final = {"create": "+", "update": "~", "delete": "-"}


class PlannedChange(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to create, change or delete. `address` names it by sections and names, `place` is its path in the
    file, `values` are the fields to send, `before` are those that the gateway has."""

    action: Literal["create", "update", "delete"]
    address: tuple[str, ...]
    title: str
    place: str = ""
    id: str = ""
    values: dict[str, Any] = {}
    before: dict[str, Any] = {}


class KeptPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A plan as a file."""

    gateway_plan: Literal[1]
    organization_id: str
    prune: bool
    document: dict[str, Any]
    changes: list[PlannedChange]


@dataclass(slots=True)
class ConfigPlan:
    """Changes in the order in which they are made, with the kind of each; the ids of what they are made in."""

    changes: list[PlannedChange] = field(default_factory=list)
    kinds: dict[tuple[str, ...], ResourceKind] = field(default_factory=dict)
    ids: dict[tuple[str, ...], str] = field(default_factory=dict)
    # Titles of what the file does not have, and is kept.
    kept: list[str] = field(default_factory=list)


def make_plan(state: FoundState, document: Values, *, prune: bool) -> ConfigPlan:
    """Return the changes that make a state what a document describes; `prune` deletes what it does not have.

    Sections and fields that the document leaves out stay. Raises ConfigError with the place of what cannot be done.
    """
    return _Comparison(state, document, prune).run()


class _Comparison:
    """Compares the sections of a document with those of a state."""

    def __init__(self, state: FoundState, document: Values, prune: bool) -> None:
        self._state, self._document, self._prune = state, document, prune
        self._plan = ConfigPlan()
        self._deletions: list[PlannedChange] = []

    def run(self) -> ConfigPlan:
        """Return the plan."""
        for kind in ROOTS:
            if kind.section in self._document:
                given = self._document[kind.section]
                given = [given] if kind.is_single else given
                self._list(kind, self._state.roots[kind.section], given, kind.section, (), "")
        # Later kinds refer to earlier ones.
        self._plan.changes += reversed(self._deletions)
        return self._plan

    def _list(
        self,
        kind: ResourceKind,
        entries: Sequence[FoundEntry],
        given: Sequence[Values],
        place: str,
        parent: tuple[str, ...],
        inside: str,
    ) -> None:
        if kind is ACCESS_RULES:
            pairs, rest = _matched_rules(entries, given)
        else:
            refuse_doubles(kind, entries, f"At the gateway, {kind.section}")
            pairs, rest = _matched(kind, entries, given, place)
        # A team is created after the one that it is part of.
        order = sorted(range(len(pairs)), key=lambda at: kind is TEAMS and bool(pairs[at][1].get("parent")))
        for index in order:
            entry, values = pairs[index]
            here = place if kind.is_single else f"{place}[{index}]"
            name = here if not kind.names else _name_of(kind, values)
            address = (*parent, kind.section, *(() if kind.is_single else (name,)))
            self._one(kind, entry, values, here, address, inside)
        for entry in rest:
            title = f"{label(kind, entry.values)}{inside}"
            if self._prune:
                address = (*parent, kind.section, _name_of(kind, entry.values) if kind.names else entry.id)
                self._note(kind, self._deletions, action="delete", address=address, title=title, id=entry.id)
            else:
                self._plan.kept.append(title)

    def _one(
        self,
        kind: ResourceKind,
        entry: FoundEntry | None,
        given: Values,
        place: str,
        address: tuple[str, ...],
        inside: str,
    ) -> None:
        own = {name: value for name, value in given.items() if name in kind.fields or name in kind.secrets}
        self._check(kind, own, place)
        title = f"{label(kind, given)}{inside}"
        # A project takes no keys once it is archived.
        last = {"status": _ARCHIVED} if kind is PROJECTS and own.get("status") == _ARCHIVED else {}
        own = {name: value for name, value in own.items() if name not in last}
        about = {"address": address, "title": title, "place": place}
        if entry is None and not kind.is_single:
            self._note(kind, self._plan.changes, action="create", values=own, **about)
        elif kind.fields:
            entry = entry or FoundEntry("", {})
            self._plan.ids[address] = entry.id
            changed = _changed(kind, entry, own, place)
            if changed:
                before = {name: entry.values.get(name) for name in changed if name not in kind.secrets}
                changes = {"values": changed, "before": before, "id": entry.id}
                self._note(kind, self._plan.changes, action="update", **about, **changes)
        for child in kind.children:
            if child.section in given:
                value = given[child.section]
                entries = entry.children.get(child.section, []) if entry else []
                within = f" in {label(kind, given)}{inside}" if kind.names else inside
                value = [value] if child.is_single else value
                self._list(child, entries, value, f"{place}.{child.section}", address, within)
        if last and (entry is None or entry.values.get("status") != _ARCHIVED):
            before = {"status": entry.values.get("status") if entry else "active"}
            changes = {"values": last, "before": before, "id": entry.id if entry else ""}
            self._note(kind, self._plan.changes, action="update", **about, **changes)

    def _check(self, kind: ResourceKind, own: Values, place: str) -> None:
        """Raise ConfigError if something that is named, such as a team or a member, does not exist."""
        for name, (_, section) in kind.references.items():
            if own.get(name) is not None and own[name] not in self._known(section, self._state.named[section]):
                raise ConfigError(f"{place}.{name}", _ABSENT[section])
        if kind is LIMITS:
            self._check_owner(own, place)
        wholes = {one["name"]: one.get("parent") for one in self._document.get(TEAMS.section, ())}
        if kind is TEAMS and wholes.get(own.get("parent")) is not None:
            raise ConfigError(f"{place}.parent", "Must be a team that is part of no other: teams nest one level deep")
        for name, (_, section) in kind.reference_lists.items():
            for index, one in enumerate(own.get(name) or ()):
                if one not in self._known(section, self._state.named[section]):
                    raise ConfigError(f"{place}.{name}[{index}]", _ABSENT[section])

    def _check_owner(self, own: Values, place: str) -> None:
        """Raise ConfigError unless a limit is of something that exists, or will."""
        section = OWNERS.get(own["scope"])
        if section is None and "of" not in own:
            return
        if section is None or "of" not in own:
            raise ConfigError(f"{place}.of", "Required" if section else f"Not a field of the scope {own['scope']}")
        known = set(self._state.named[section])
        declared: Mapping[str, Collection[str]] = {
            "teams": [one["name"] for one in self._document.get("teams", ())],
            "projects": [one["name"] for one in self._document.get("projects", ())],
            "users": [
                owner_name(one["name"], self._state.named["people"])
                for one in self._document.get("serviceAccounts", ())
            ],
            "limitedKeys": [
                f"{project['name']}/{key['description']}"
                for project in self._document.get("projects", ())
                for key in project.get("keys", ())
            ],
        }
        if own["of"] not in known.union(declared[section]):
            raise ConfigError(f"{place}.of", f"There is no {own['scope'].replace('_', ' ')} of this name")

    def _known(self, section: str, found: Collection[str]) -> set[str]:
        """Return the names that a section will have when the plan is made."""
        declared = self._document.get(section)
        known = set() if declared is not None and self._prune else set(found)
        return known | {one["name"] for one in declared or ()}

    def _note(self, kind: ResourceKind, changes: list[PlannedChange], **about: Any) -> None:
        change = PlannedChange(**about)
        self._plan.kinds[change.address] = kind
        changes.append(change)


def _name_of(kind: ResourceKind, values: Values) -> str:
    return ":".join(str(part) for part in key_of(kind, values) if part is not None)


def _matched(
    kind: ResourceKind, entries: Sequence[FoundEntry], given: Sequence[Values], place: str
) -> tuple[list[tuple[FoundEntry | None, Values]], list[FoundEntry]]:
    """Return each given thing with the entry of its name, and the entries that were not given."""
    rest = {key_of(kind, one.values): one for one in entries}
    pairs: list[tuple[FoundEntry | None, Values]] = []
    seen: dict[tuple[Any, ...], int] = {}
    for index, values in enumerate(given):
        key = key_of(kind, values)
        if kind.names and key in seen:
            where = f"{place}[{index}].{kind.names[0]}"
            raise ConfigError(where, f"{place}[{seen[key]}] has the same name; names must differ")
        seen[key] = index
        pairs.append((rest.pop(key, None), values))
    return pairs, list(rest.values())


def _matched_rules(
    entries: Sequence[FoundEntry], given: Sequence[Values]
) -> tuple[list[tuple[FoundEntry | None, Values]], list[FoundEntry]]:
    """Return each given access rule with an equal one, else with a left one of its type; and the entries left."""
    rest = list(entries)

    def take(values: Values, names: Sequence[str]) -> FoundEntry | None:
        for entry in rest:
            if all(entry.values.get(name) == values[name] for name in names if name in values):
                rest.remove(entry)
                return entry
        return None

    found: dict[int, FoundEntry] = {}
    for names in (("ruleType", "ruleValue", "status"), ("ruleType", "ruleValue"), ("ruleType",)):
        for index, values in enumerate(given):
            if index not in found and (entry := take(values, names)) is not None:
                found[index] = entry
    return [(found.get(index), values) for index, values in enumerate(given)], rest


def _changed(kind: ResourceKind, entry: FoundEntry, given: Values, place: str) -> dict[str, Any]:
    """Return the fields to send. Raises ConfigError for one that cannot be changed."""
    changed: dict[str, Any] = {}
    for name, value in given.items():
        if name in kind.names:
            continue
        if name in kind.secrets:
            if kind.takes_secrets and _names_in(value) != _names_in(entry.secrets.get(name)):
                changed[name] = value
            continue
        before = entry.values.get(name)
        if name in kind.merged and isinstance(value, Mapping):
            if next(_differences(name, before or {}, value), None):
                # PATCH replaces a rule's configuration; the gateway keeps its secrets.
                stored = {key: one for key, one in (before or {}).items() if variable_of(one) is None}
                changed[name] = {**stored, **value} if kind is GUARDRAIL_RULES else value
        elif name in kind.fixed:
            if not _is_same_fixed(name, before, value):
                shown = _shown(before)
                words = (
                    f"Cannot be changed: the gateway has {shown}. Give another name, or delete the {kind.noun} first"
                )
                raise ConfigError(f"{place}.{name}", words)
        elif normal(name, before) != normal(name, value):
            changed[name] = value
    return changed


def _is_same_fixed(name: str, before: Any, given: Any) -> bool:
    if before == given or (not before and not given):
        return True
    if name == "replicas" and isinstance(before, list) and isinstance(given, list):
        pairs = zip(before, given, strict=False)
        return len(before) == len(given) and all(_is_same_fixed("baseUrl", old, new) for old, new in pairs)
    if name not in {"url", "baseUrl"} or not isinstance(before, str):
        return False
    start = str(given).rstrip("/")
    # The gateway adds the path of the API to the address of a server.
    return before.rstrip("/") == start or (name == "baseUrl" and before.startswith(f"{start}/"))


def _names_in(secret: Any) -> Any:
    """Return what can be compared of a secret: whether there is one, or the names of headers."""
    return sorted(name.lower() for name in secret) if isinstance(secret, Mapping) else bool(secret)


def _differences(path: str, before: Any, given: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the path, the old and the new value of each part of a given value that differs; two secrets are equal."""
    if isinstance(given, Mapping):
        for name, value in given.items():
            old = before.get(name) if isinstance(before, Mapping) else None
            yield from _differences(f"{path}.{name}", old, value)
        return
    is_secret = variable_of(given) is not None and variable_of(before) is not None
    name = path.rpartition(".")[2]
    if not is_secret and normal(name, before) != normal(name, given):
        yield path, before, given


def render(plan: ConfigPlan) -> list[str]:
    """Return the lines of a plan for people."""
    lines: list[str] = []
    for change in plan.changes:
        lines.append(f"{_SIGNS[change.action]} {change.title}")
        for name, value in change.values.items():
            for path, before, after in _differences(name, change.before.get(name), value):
                old = "" if change.action == "create" else f"{_shown(before)} -> "
                lines.append(f"    {printable(path)}: {old}{_shown(after)}")
    lines += [f"  {title} is not in the file and stays; --prune deletes it" for title in plan.kept]
    if lines:
        lines.append("")
    counts = {action: sum(one.action == action for one in plan.changes) for action in _SIGNS}
    if not plan.changes:
        return [*lines, "No changes."]
    return [*lines, f"{counts['create']} to create, {counts['update']} to update, {counts['delete']} to delete."]


def _shown(value: Any) -> str:
    text = printable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def write_plan(plan: ConfigPlan, state: FoundState, document: Values, *, prune: bool) -> bytes:
    """Return a plan as a file."""
    kept = KeptPlan(
        gateway_plan=1,
        organization_id=state.organization_id,
        prune=prune,
        document=dict(document),
        changes=plan.changes,
    )
    return msgspec.json.encode(kept) + b"\n"


def read_plan(data: bytes) -> KeptPlan:
    """Return the plan in a file. Raises ConfigError."""
    try:
        return msgspec.json.decode(data, type=KeptPlan)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError("", f"The file is no plan of this version: {error}") from error


def is_plan(data: bytes) -> bool:
    """Return whether a file is a plan, and not a configuration."""
    return data.lstrip().startswith(b'{"gatewayPlan"')
