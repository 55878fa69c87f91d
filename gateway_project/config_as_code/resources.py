"""The kinds of things that a file describes: where the API has them, what names them, and what can change.

`read_state` reads an organization through the API; `as_document` writes it as a file would.
"""
# length: a table of kinds, with the readers and writers that only its rows name

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple

from gateway_project.config_as_code.document import GUARD_SECRETS, VERSION, with_defaults
from gateway_project.config_as_code.management_api import ManagementApi, RequestRefused
from gateway_project.config_as_code.yaml_file import ConfigError

Values = Mapping[str, Any]

_LEFT_OUT: Final = {"observe": False, "restore": True}


class Reference(NamedTuple):
    """A field of the API with the id of a thing of another section, which a file names."""

    id_field: str
    section: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceKind:
    """A kind of things. Paths have the fields `{organization}` and `{parent}`; one thing is at `path/id`."""

    # The list in the file, and the noun in sentences.
    section: str
    noun: str
    # The fields that name one within its parent; none where all of its content does, or where there is only one.
    names: tuple[str, ...] = ()
    path: str = ""
    # The member of answers to POST with the new thing; empty where the answer is the thing.
    answer: str = ""
    # The member of a POST's body with the id of the parent.
    owner: str = ""
    # Fields that files and listings have, in the order in which an export writes them.
    fields: tuple[str, ...] = ()
    # Cannot be changed once it is there.
    fixed: frozenset[str] = frozenset()
    # No listing has them: sent when it is created, and where PATCH takes them when the gateway has none.
    secrets: frozenset[str] = frozenset()
    takes_secrets: bool = False
    # Objects of which a file may give parts.
    merged: frozenset[str] = frozenset()
    # Not accepted by POST: set by a PATCH behind it.
    later: frozenset[str] = frozenset({"status"})
    # Fields with a path of their own for PATCH.
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    # The method of a change. PUT and PATCH of a single thing have no id.
    method: str = "PATCH"
    is_single: bool = False
    # Created, changed and reset by PATCH of `path`, with its names in the body.
    is_setting: bool = False
    # Whether a POST may skip the test at the other side (`validate=false`).
    is_tested: bool = False
    # Fields that name a thing of another section, by the API's field with its id.
    references: Mapping[str, Reference] = field(default_factory=dict)
    # Fields with a list of such names.
    reference_lists: Mapping[str, Reference] = field(default_factory=dict)
    # Fields that POST has by another name.
    renamed: Mapping[str, str] = field(default_factory=dict)
    children: tuple[ResourceKind, ...] = ()


TEAM_MEMBERS: Final = ResourceKind(
    section="members",
    noun="member",
    names=("email",),
    path="/organization/{organization}/teams/{parent}/members",
    answer="member",
    fields=("email", "isLead"),
    later=frozenset(),
    references={"email": Reference("memberId", "people")},
)
TEAMS: Final = ResourceKind(
    section="teams",
    noun="team",
    names=("name",),
    path="/organization/{organization}/teams",
    answer="team",
    fields=("name", "parent"),
    later=frozenset(),
    references={"parent": Reference("parentId", "teams")},
    children=(TEAM_MEMBERS,),
)
SERVICE_ACCOUNTS: Final = ResourceKind(
    section="serviceAccounts",
    noun="service account",
    names=("name",),
    path="/organization/{organization}/service-accounts",
    answer="serviceAccount",
    fields=("name", "team"),
    later=frozenset(),
    references={"team": Reference("teamId", "teams")},
)
ACCESS_RULES: Final = ResourceKind(
    section="accessRules",
    noun="access rule",
    path="/keys/api/{parent}/iam",
    answer="rule",
    fields=("ruleType", "ruleValue", "status"),
    later=frozenset(),
)
API_KEYS: Final = ResourceKind(
    section="keys",
    noun="API key",
    names=("description",),
    path="/keys/api",
    answer="apiKey",
    owner="projectId",
    fields=(
        "description",
        "status",
        *("team", "serviceAccount"),
        *("usageLimit", "periodLimit", "requestsPerMinute", "allowedOrigins", "expiresAt"),
    ),
    elsewhere={"usageLimit": "/keys/api/limit/{id}"},
    fixed=frozenset({"serviceAccount"}),
    references={
        "team": Reference("teamId", "teams"),
        "serviceAccount": Reference("serviceAccountId", "serviceAccounts"),
    },
    children=(ACCESS_RULES,),
)
PROJECTS: Final = ResourceKind(
    section="projects",
    noun="project",
    names=("name",),
    path="/projects",
    answer="project",
    owner="organizationId",
    fields=("name", "status", "team", "mode", "cachingEnabled", "cacheDurationSeconds", "hedgingEnabled"),
    references={"team": Reference("teamId", "teams")},
    children=(API_KEYS,),
)
OWN_MODELS: Final = ResourceKind(
    section="models",
    noun="model",
    names=("model",),
    path="/keys/provider/{parent}/models",
    fields=(
        "model",
        "alias",
        "contextLength",
        "inputPrice",
        "outputPrice",
        "hourlyPrice",
        "tokensPerHour",
        "overrides",
    ),
    is_setting=True,
)
PROVIDER_KEYS: Final = ResourceKind(
    section="providerKeys",
    noun="provider key",
    names=("provider", "providerName"),
    path="/keys/provider",
    answer="providerKey",
    owner="organizationId",
    fields=("provider", "providerName", "baseUrl", "server", "replicas", "status"),
    fixed=frozenset({"baseUrl", "server", "replicas"}),
    secrets=frozenset({"token"}),
    is_tested=True,
    children=(OWN_MODELS,),
)
LIMITS: Final = ResourceKind(
    section="limits",
    noun="limit",
    names=("name",),
    path="/limits",
    answer="limit",
    owner="organizationId",
    fields=(
        *("name", "scope", "of", "endUser", "model", "provider", "counts", "window", "rolling", "startsOn"),
        *("timeZone", "amount", "action", "rerouteModels"),
    ),
    fixed=frozenset(
        {"scope", "of", "endUser", "model", "provider", "counts", "window", "rolling", "startsOn", "timeZone"}
    ),
    later=frozenset(),
)
# The names by which a limit's `of` finds an id (`FoundState.named`), by its scope.
OWNERS: Final[Mapping[str, str]] = {
    "team": "teams",
    "project": "projects",
    "end_user": "projects",
    "member": "users",
    "key": "limitedKeys",
}
MCP_SERVERS: Final = ResourceKind(
    section="mcpServers",
    noun="MCP server",
    names=("name",),
    path="/mcp-servers",
    answer="mcpServer",
    owner="organizationId",
    fields=("name", "url", "status", "timeoutSeconds", "allowedTools", "projects"),
    reference_lists={"projects": Reference("projectIds", "projects")},
    fixed=frozenset({"url"}),
    secrets=frozenset({"token", "headers"}),
    takes_secrets=True,
    is_tested=True,
)
LOG_SINKS: Final = ResourceKind(
    section="logSinks",
    noun="log sink",
    names=("name",),
    path="/log-sinks",
    answer="logSink",
    owner="organizationId",
    fields=("name", "kind", "url", "status", "includeContent", "format", "bucket", "region", "prefix"),
    fixed=frozenset({"kind", "url", "format", "bucket", "region", "prefix"}),
    secrets=frozenset({"secret", "accessKeyId", "secretAccessKey", "publicKey", "secretKey"}),
)
ALERT_DESTINATIONS: Final = ResourceKind(
    section="alertDestinations",
    noun="alert destination",
    names=("name",),
    path="/alerts/destinations",
    answer="destination",
    owner="organizationId",
    fields=("name", "kind", "url", "status"),
    fixed=frozenset({"kind", "url"}),
    secrets=frozenset({"webhookUrl", "secret", "routingKey"}),
    renamed={"webhookUrl": "url"},
)
ALERT_RULES: Final = ResourceKind(
    section="alertRules",
    noun="alert rule",
    names=(*("kind", "amount", "days", "percent", "factor", "floor", "milliseconds", "aspect", "name", "minRequests"),),
    path="/alerts/rules",
    answer="rule",
    owner="organizationId",
    fields=(
        *("kind", "amount", "days", "percent", "factor", "floor", "milliseconds", "aspect", "name", "minRequests"),
        *("status", "destinations"),
    ),
    reference_lists={"destinations": Reference("destinationIds", "alertDestinations")},
)
GUARDRAIL_CONFIG: Final = ResourceKind(
    section="config",
    noun="guardrail configuration",
    path="/guardrails/config/{organization}",
    fields=("enabled", "systemRules", "maxFileSizeMb", "allowedFileTypes", "piiAction", "scanOutput"),
    merged=frozenset({"systemRules"}),
    method="PUT",
    is_single=True,
)
GUARDRAIL_RULES: Final = ResourceKind(
    section="rules",
    noun="guardrail rule",
    names=("name",),
    path="/guardrails/rules/{organization}",
    fields=("name", "type", "config", "priority", "enabled", "action", "observe", "restore"),
    fixed=frozenset({"type"}),
    merged=frozenset({"config"}),
    later=frozenset(),
)
GUARDRAILS: Final = ResourceKind(
    section="guardrails", noun="guardrails", is_single=True, children=(GUARDRAIL_CONFIG, GUARDRAIL_RULES)
)
ORGANIZATION: Final = ResourceKind(
    section="organization",
    noun="organization",
    path="/organization/{organization}",
    fields=("name", "retentionLevel", "outagePolicy"),
    is_single=True,
)
# In the order in which they are created: MCP servers name projects, which name teams.
ROOTS: Final = (
    *(ORGANIZATION, TEAMS, SERVICE_ACCOUNTS, PROJECTS, PROVIDER_KEYS, LIMITS, MCP_SERVERS, LOG_SINKS),
    *(ALERT_DESTINATIONS, ALERT_RULES, GUARDRAILS),
)
# Credentials that each kind of log sink needs.
_SINK_SECRETS: Final = {
    "webhook": ("secret",),
    "s3": ("accessKeyId", "secretAccessKey"),
    "otlp": ("publicKey", "secretKey"),
}
# The credential of each kind of alert destination.
_DESTINATION_SECRETS: Final = {
    "webhook": "secret",
    "slack": "webhookUrl",
    "teams": "webhookUrl",
    "pagerduty": "routingKey",
}


@dataclass(slots=True)
class FoundEntry:
    """A thing at the gateway: its id, its fields as a file has them, and things in it by section."""

    id: str
    values: dict[str, Any]
    children: dict[str, list[FoundEntry]] = field(default_factory=dict)
    # Secrets as an export refers to them.
    secrets: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class FoundState:
    """An organization at a gateway: the sections that were read, and the ids of what others refer to by name."""

    organization_id: str
    organization_name: str
    roots: dict[str, list[FoundEntry]]
    # Sections that the plan or the key does not allow, with the gateway's reason.
    refused: dict[str, str]
    # By section, the ids of things that others refer to, by name; without names that two have. `people` are the
    # organization's members by address, `users` the accounts of members, by address, and of service accounts
    # (`owner_name`), `limitedKeys` API keys by `project/description`.
    named: dict[str, dict[str, str]] = field(default_factory=dict)


def find_organization(api: ManagementApi, wanted: str | None) -> Values:
    """Return the key's organization, or the one of this id or name. Raises ConfigError unless it is exactly one."""
    found: list[Values] = api.get("/organization", "organizations")
    if wanted is not None:
        found = [one for one in found if wanted in (one["id"], one["name"])]
    if len(found) != 1:
        names = ", ".join(f"{one['name']} ({one['id']})" for one in found)
        raise ConfigError("", f"Choose one with --organization: {names}" if found else "There is no such organization")
    return found[0]


def read_state(
    api: ManagementApi, organization: Values, sections: Sequence[str], *, tolerant: bool = False
) -> FoundState:
    """Return an organization's sections. `tolerant` notes the sections that are refused with 403, instead of raising.

    Raises ConfigError, also for two things of one name.
    """
    projects: list[Values] = api.get(f"/organization/{organization['id']}/projects", "projects")
    listings = {
        kind.section: api.get(kind.path.format(organization=organization["id"]), kind.section)
        for kind in (TEAMS, SERVICE_ACCOUNTS)
    }
    named = {section: {one["name"]: one["id"] for one in rows} for section, rows in listings.items()}
    people: list[Values] = api.get(f"/organization/{organization['id']}/members", "members")
    named["people"] = {one["email"].lower(): one["id"] for one in people}
    named["users"] = {one["email"].lower(): one["userId"] for one in people}
    named["users"] |= {owner_name(one["name"], named["people"]): one["userId"] for one in listings["serviceAccounts"]}
    named["projects"] = _ids_by_name(projects)
    named["limitedKeys"] = {}
    if "limits" in sections:
        keys = [
            {"name": f"{project['name']}/{key['description']}", "id": key["id"]}
            for project in projects
            for key in api.get("/keys/api", "apiKeys", projectId=project["id"], filter="all")
        ]
        named["limitedKeys"] = _ids_by_name(keys)
    state = FoundState(organization["id"], organization["name"], {}, {}, named)
    names = {one["id"]: one["name"] for rows in listings.values() for one in rows}
    # API keys have the user that a service account is.
    names |= {one["userId"]: one["name"] for one in listings["serviceAccounts"]}
    readers = {
        "organization": lambda: [_entry(ORGANIZATION, organization)],
        # A part is created after its whole, and deleted before it.
        "teams": lambda: [
            _team(api, {**one, "parent": names.get(one["parentId"])})
            for one in sorted(listings["teams"], key=lambda row: row["parentId"] is not None)
        ],
        "serviceAccounts": lambda: [
            _entry(SERVICE_ACCOUNTS, {**one, "team": names.get(one["teamId"])}) for one in listings["serviceAccounts"]
        ],
        "projects": lambda: [_project(api, one, names) for one in projects],
        "providerKeys": lambda: [_provider_key(api, one) for one in _listed(api, organization, PROVIDER_KEYS)],
        "limits": lambda: [
            entry
            for one in _listed(api, organization, LIMITS)
            if (entry := _limit(one, named.get(OWNERS.get(one["scope"], ""), {}))) is not None
        ],
        "mcpServers": lambda: [_mcp_server(one, projects) for one in _listed(api, organization, MCP_SERVERS)],
        "logSinks": lambda: [_log_sink(one) for one in _listed(api, organization, LOG_SINKS)],
        "alertDestinations": lambda: [_alert_destination(one) for one in _destinations(api, organization, named)],
        "alertRules": lambda: _alert_rules(api, organization, named),
        "guardrails": lambda: [_guardrails(api, organization["id"])],
    }
    for section in sections:
        try:
            state.roots[section] = readers[section]()
        except RequestRefused as error:
            if not (tolerant and error.status == 403):
                raise
            state.refused[section] = error.message
    return state


def as_document(state: FoundState) -> dict[str, Any]:
    """Return the configuration that describes a state, with a reference for each secret."""
    document: dict[str, Any] = {"version": VERSION}
    for kind in ROOTS:
        if kind.section in state.roots:
            refuse_doubles(kind, state.roots[kind.section], f"At the gateway, {kind.section}")
            written = [_written(kind, one) for one in state.roots[kind.section]]
            document[kind.section] = written[0] if kind.is_single else written
    return document


def _written(kind: ResourceKind, entry: FoundEntry) -> dict[str, Any]:
    values = {**entry.values, **entry.secrets}
    if values.get("status") == "failed":
        # The gateway switched it off: no file can ask for that.
        del values["status"]
    for child in kind.children:
        entries = entry.children.get(child.section, [])
        refuse_doubles(child, entries, f"At the gateway, {child.section} of {label(kind, entry.values)}")
        if child.is_single:
            values.update((child.section, _written(child, one)) for one in entries)
        elif entries or child is not OWN_MODELS:
            values[child.section] = [_written(child, one) for one in entries]
    return values


def refuse_doubles(kind: ResourceKind, entries: Sequence[FoundEntry], place: str) -> None:
    """Raise ConfigError for two things of one name: neither a file nor a person could tell them apart."""
    seen: set[tuple[Any, ...]] = set()
    for entry in entries if kind.names else ():
        key = key_of(kind, entry.values)
        if key in seen:
            raise ConfigError(
                place, f"Two have the name {label(kind, entry.values)}; rename or delete one, or leave the section out"
            )
        seen.add(key)


def key_of(kind: ResourceKind, values: Values) -> tuple[Any, ...]:
    """Return what names a thing within its parent."""
    return tuple(values.get(name) for name in kind.names)


def label(kind: ResourceKind, values: Values) -> str:
    """Return the noun and the name of a thing, for people."""
    if kind is ACCESS_RULES:
        return f"{kind.noun} {values['ruleType']}"
    name = ":".join(str(part) for part in key_of(kind, values) if part)
    return f'{kind.noun} "{printable(name)}"' if name else kind.noun


def printable(text: str) -> str:
    """Return a text without characters that would move a terminal's cursor or hide text."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def normal(name: str, value: Any) -> Any:
    """Return a value as two spellings of it compare equal: moments, origins, file types, and defaults that the gateway
    leaves out of system rules."""
    if isinstance(value, Mapping):
        return {key: normal(key, one) for key, one in value.items()}
    if value is None and name in _LEFT_OUT:
        return _LEFT_OUT[name]
    if name == "expiresAt" and isinstance(value, str):
        return _moment(value)
    if name in {"allowedOrigins", "allowedFileTypes"} and isinstance(value, list):
        return list(dict.fromkeys(one.lower() if isinstance(one, str) else one for one in value))
    return value


def secrets_in(kind: ResourceKind, values: Values) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the paths of secrets in the fields of a thing, and the values there."""
    for name in kind.secrets & values.keys():
        if isinstance(values[name], Mapping):
            yield from (((name, one), value) for one, value in values[name].items())
        else:
            yield (name,), values[name]
    if kind is GUARDRAIL_RULES and isinstance(values.get("config"), Mapping):
        yield from ((("config", name), value) for name, value in values["config"].items() if name in GUARD_SECRETS)


def _moment(text: str) -> str:
    """Return a moment as the API writes it; a text that is none as it is, which the API will refuse."""
    try:
        if len(text) == len("2027-01-01"):
            return f"{date.fromisoformat(text)}T23:59:59.999999Z"
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment.isoformat().replace("+00:00", "Z")


def _ids_by_name(rows: Sequence[Values]) -> dict[str, str]:
    """Return ids by names; a name of several means none of them."""
    names = Counter(one["name"] for one in rows)
    return {one["name"]: one["id"] for one in rows if names[one["name"]] == 1}


def _listed(api: ManagementApi, organization: Values, kind: ResourceKind) -> list[Values]:
    rows: list[Values] = api.get(kind.path, kind.section, organizationId=organization["id"])
    return rows


def _entry(kind: ResourceKind, row: Values, **secrets: Any) -> FoundEntry:
    values = {name: row[name] for name in kind.fields if name in row}
    return FoundEntry(str(row["id"]), values, secrets=secrets)


def _team(api: ManagementApi, row: Values) -> FoundEntry:
    entry = _entry(TEAMS, row)
    members = api.get(f"/organization/{row['organizationId']}/teams/{row['id']}/members", "members")
    entry.children["members"] = [_entry(TEAM_MEMBERS, {**one, "email": one["email"].lower()}) for one in members]
    return entry


def _project(api: ManagementApi, row: Values, names: Mapping[str, str]) -> FoundEntry:
    entry = _entry(PROJECTS, {**row, "team": names.get(row["teamId"])})
    keys = api.get("/keys/api", "apiKeys", projectId=row["id"], filter="all")
    # Keys of playgrounds and signed-in programs belong to a person's session, and have no token.
    own = [one for one in keys if not one["maskedToken"].startswith(("playground...", "oauth..."))]
    entry.children["keys"] = [_api_key(one, names) for one in own]
    return entry


def _api_key(row: Values, names: Mapping[str, str]) -> FoundEntry:
    referred = {"team": names.get(row["teamId"]), "serviceAccount": names.get(row["createdBy"])}
    entry = _entry(API_KEYS, {**row, **referred})
    entry.children["accessRules"] = [_entry(ACCESS_RULES, one) for one in row["iamRules"]]
    return entry


def _provider_key(api: ManagementApi, row: Values) -> FoundEntry:
    # Only a custom provider has a name and an address.
    given = {name: value for name, value in row.items() if value is not None}
    name = f"{row['provider']}_{row['providerName'] or ''}"
    secrets = {"token": _variable("PROVIDER_KEY", name, "TOKEN")} if row["maskedToken"] != "..." else {}
    entry = _entry(PROVIDER_KEYS, given, **secrets)
    if row["provider"] == "custom":
        models = api.get(f"/keys/provider/{row['id']}/models", "models")
        # A context alone may be what the server states, which no file needs.
        set_fields = ("alias", "inputPrice", "hourlyPrice", "overrides")
        chosen = [
            one
            for one in models
            if any(one[name] is not None for name in set_fields)
            or not (one["listed"] or one["goneAt"] or one["contextLength"] is None)
        ]
        entry.children["models"] = [_entry(OWN_MODELS, {**one, "id": one["model"]}) for one in chosen]
    return entry


def owner_name(account: str, people: Collection[str]) -> str:
    """Return the name by which a limit's `of` means a service account: its own, unless it is a member's address."""
    return f"service-account/{account}" if account.lower() in people else account


def _limit(row: Values, owners: Mapping[str, str]) -> FoundEntry | None:
    """Return a limit; None for one of what has no name in a file, such as the key of a signed-in program."""
    given = {name: value for name, value in row.items() if value not in (None, "", [])}
    if row["scopeId"] is not None:
        found = [name for name, identifier in owners.items() if identifier == row["scopeId"]]
        if len(found) != 1:
            return None
        given["of"] = found[0]
    return _entry(LIMITS, given)


def _mcp_server(row: Values, projects: Sequence[Values]) -> FoundEntry:
    names = {one["id"]: one["name"] for one in projects}
    ids = row["projectIds"]
    # A project that was deleted stays in the list, without effect.
    listed = None if ids is None else [names[one] for one in ids if one in names]
    secrets: dict[str, Any] = {}
    if row["maskedToken"]:
        secrets["token"] = _variable("MCP_SERVER", row["name"], "TOKEN")
    if row["headerNames"]:
        secrets["headers"] = {one: _variable("MCP_SERVER", row["name"], one) for one in row["headerNames"]}
    return _entry(MCP_SERVERS, {**row, "projects": listed}, **secrets)


def _log_sink(row: Values) -> FoundEntry:
    secrets = {one: _variable("LOG_SINK", row["name"], one) for one in _SINK_SECRETS.get(row["kind"], ())}
    return _entry(LOG_SINKS, {**row, **row["options"]}, **secrets)


def _destinations(api: ManagementApi, organization: Values, named: dict[str, dict[str, str]]) -> list[Values]:
    """Return the alert destinations, and note their ids, which rules refer to."""
    rows: list[Values] = api.get(ALERT_DESTINATIONS.path, "destinations", organizationId=organization["id"])
    named[ALERT_DESTINATIONS.section] = _ids_by_name(rows)
    return rows


def _alert_destination(row: Values) -> FoundEntry:
    credential = _DESTINATION_SECRETS[row["kind"]]
    # An address that is a secret is listed masked.
    is_masked = credential in ALERT_DESTINATIONS.renamed
    given = {name: value for name, value in row.items() if name != "url" or not is_masked}
    return _entry(ALERT_DESTINATIONS, given, **{credential: _variable("ALERT_DESTINATION", row["name"], credential)})


def _alert_rules(api: ManagementApi, organization: Values, named: dict[str, dict[str, str]]) -> list[FoundEntry]:
    names = {one["id"]: one["name"] for one in _destinations(api, organization, named)}
    entries = []
    for row in api.get(ALERT_RULES.path, "rules", organizationId=organization["id"]):
        ids, parameters = row["destinationIds"], {**row["parameters"], "kind": row["kind"]}
        # A destination that was deleted stays in the list, without effect.
        listed = None if ids is None else [names[one] for one in ids if one in names]
        entries.append(_entry(ALERT_RULES, {**row, **with_defaults(parameters), "destinations": listed}))
    return entries


def _guardrails(api: ManagementApi, organization_id: str) -> FoundEntry:
    config = api.get(f"/guardrails/config/{organization_id}")
    rules = api.get(f"/guardrails/rules/{organization_id}", "rules")
    children = {
        "config": [] if config is None else [_entry(GUARDRAIL_CONFIG, config)],
        "rules": [_guardrail_rule(one) for one in rules],
    }
    return FoundEntry("", {}, children)


def _guardrail_rule(row: Values) -> FoundEntry:
    config = dict(row["config"])
    for name in config.pop("secrets", ()):
        config[name] = _variable("GUARDRAIL", row["name"], name)
    return _entry(GUARDRAIL_RULES, {**row, "config": config})


def _variable(kind: str, name: str, what: str) -> str:
    """Return a reference to an environment variable for a secret, by what it belongs to."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", f"{kind}_{name}_{what}")
    return f"${{{re.sub(r'[^A-Z0-9]+', '_', words.upper()).strip('_')}}}"
