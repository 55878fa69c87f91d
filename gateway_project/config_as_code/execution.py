"""Making the changes of a plan, one request after the other, until the first that fails.

Nothing is undone: each change is whole, and a new plan has the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gateway_project.config_as_code.document import variable_of
from gateway_project.config_as_code.management_api import ManagementApi, RequestRefused
from gateway_project.config_as_code.plan import ConfigPlan, PlannedChange
from gateway_project.config_as_code.resources import (
    API_KEYS,
    MCP_SERVERS,
    PROJECTS,
    FoundState,
    ResourceKind,
    secrets_in,
)
from gateway_project.config_as_code.yaml_file import ConfigError

# Takes a new API key: its title, its id and its token.
KeepToken = Callable[[str, str, str], None]


def find_secrets(plan: ConfigPlan, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the secrets that a plan sends, by the environment variable. Raises ConfigError for one that is not set."""
    found: dict[str, str] = {}
    for change in plan.changes:
        for path, value in secrets_in(plan.kinds[change.address], change.values):
            name = variable_of(value) or ""
            if not environment.get(name):
                where = ".".join((change.place, *path))
                raise ConfigError(where, f"The environment variable {name} is not set; nothing was changed")
            found[name] = environment[name]
    return found


class Execution:
    """Makes a plan's changes at the organization whose state it was made from."""

    def __init__(
        self,
        api: ManagementApi,
        state: FoundState,
        plan: ConfigPlan,
        secrets: Mapping[str, str],
        *,
        keep_token: KeepToken,
        is_tested: bool = True,
    ) -> None:
        self._api, self._state, self._plan, self._secrets = api, state, plan, secrets
        self._keep_token, self._is_tested = keep_token, is_tested
        self._ids = dict(plan.ids)
        self._project_ids = dict(state.project_ids)
        self._named = {section: dict(ids) for section, ids in state.named.items()}

    def make(self, change: PlannedChange) -> None:
        """Make one change; the plan's changes before it have been made. Raises ConfigError with its place."""
        kind = self._plan.kinds[change.address]
        try:
            match change.action:
                case "create":
                    self._create(kind, change)
                case "update":
                    self._update(kind, change)
                case "delete":
                    self._delete(kind, change)
        except RequestRefused as error:
            raise _located(error, change) from error

    def _create(self, kind: ResourceKind, change: PlannedChange) -> None:
        body = self._body(kind, change.values)
        if kind.is_setting:
            self._api.send("PATCH", self._path(kind, change), body)
            return
        later = {name: body.pop(name) for name in kind.later & body.keys()}
        if kind.owner:
            body[kind.owner] = self._parent_id(change) or self._state.organization_id
        query = {"validate": "false"} if kind.is_tested and not self._is_tested else {}
        made = self._api.send("POST", self._path(kind, change), body, kind.answer, **query)
        identifier = str(made["id"])
        self._ids[change.address] = identifier
        if kind.section in self._named:
            self._named[kind.section][change.values["name"]] = identifier
        if kind is PROJECTS:
            self._project_ids[change.values["name"]] = identifier
        if kind is API_KEYS:
            self._keep_token(change.title, identifier, str(made["token"]))
        if any(made.get(name) != value for name, value in later.items()):
            self._api.send("PATCH", f"{self._path(kind, change)}/{identifier}", later)

    def _update(self, kind: ResourceKind, change: PlannedChange) -> None:
        body = self._body(kind, change.values)
        path = self._path(kind, change)
        if kind.is_single:
            self._api.send(kind.method, path, body)
            return
        if kind.is_setting:
            self._api.send("PATCH", path, {kind.names[0]: change.id, **body})
            return
        identifier = change.id or self._ids[change.address]
        for name in kind.elsewhere.keys() & body.keys():
            self._api.send("PATCH", kind.elsewhere[name].format(id=identifier), {name: body.pop(name)})
        if body:
            self._api.send("PATCH", f"{path}/{identifier}", body)

    def _delete(self, kind: ResourceKind, change: PlannedChange) -> None:
        if kind.is_setting:
            nothing = {name: None for name in kind.fields if name not in kind.names}
            self._api.send("PATCH", self._path(kind, change), {kind.names[0]: change.id, **nothing})
        else:
            self._api.delete(f"{self._path(kind, change)}/{change.id}")

    def _path(self, kind: ResourceKind, change: PlannedChange) -> str:
        return kind.path.format(organization=self._state.organization_id, parent=self._parent_id(change))

    def _parent_id(self, change: PlannedChange) -> str:
        """Return the id of what a change is made in; empty for the organization."""
        return self._ids.get(change.address[:-2], "")

    def _body(self, kind: ResourceKind, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return fields as the API takes them: secrets in clear; projects, teams and service accounts by their ids."""
        body = dict(values)
        for path, value in secrets_in(kind, values):
            secret = self._secrets[variable_of(value) or ""]
            first, *rest = path
            body[first] = {**body[first], rest[0]: secret} if rest else secret
        for field, (id_field, section) in kind.references.items():
            if field in body:
                name = body.pop(field)
                body[id_field] = None if name is None else self._named[section][name]
        if kind is MCP_SERVERS and "projects" in body:
            names = body.pop("projects")
            body["projectIds"] = None if names is None else [self._project_ids[name] for name in names]
        return body


def _located(error: RequestRefused, change: PlannedChange) -> ConfigError:
    """Return a refusal with the places of its fields in the file."""
    if error.issues and change.place:
        path, message = error.issues[0]
        return ConfigError(f"{change.place}.{path}".rstrip("."), message)
    return ConfigError(change.place, f"{error.message} ({error.request} was refused with {error.status})")
