"""The command `gateway config`: export, check, plan and apply the configuration of an organization.

A plan is applied one request after the other, until the first that fails. Nothing is undone: each change is whole, and
a new plan has the rest.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from gateway_project.config_as_code.document import SECTIONS, check_document, read_document, schema, variable_of
from gateway_project.config_as_code.management_api import ManagementApi, RequestRefused
from gateway_project.config_as_code.plan import (
    ConfigPlan,
    KeptPlan,
    PlannedChange,
    is_plan,
    make_plan,
    read_plan,
    render,
    write_plan,
)
from gateway_project.config_as_code.resources import (
    API_KEYS,
    LIMITS,
    OWNERS,
    SERVICE_ACCOUNTS,
    FoundState,
    ResourceKind,
    as_document,
    find_organization,
    owner_name,
    printable,
    read_state,
    secrets_in,
)
from gateway_project.config_as_code.yaml_file import MAX_BYTES, ConfigError, write_yaml

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
        if kind is SERVICE_ACCOUNTS:
            name = owner_name(change.values["name"], self._named["people"])
            self._named["users"][name] = str(made["userId"])
        if kind is API_KEYS:
            self._named["limitedKeys"][f"{change.address[-3]}/{change.values['description']}"] = identifier
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
        if kind is LIMITS and "of" in body:
            name = body.pop("of")
            if body["scope"] in OWNERS:
                name = self._named[OWNERS[body["scope"]]][name]
            body["scopeId"] = name
        for field, (id_field, section) in kind.reference_lists.items():
            if field in body:
                names = body.pop(field)
                body[id_field] = None if names is None else [self._named[section][name] for name in names]
        for field, name in kind.renamed.items():
            if field in body:
                body[name] = body.pop(field)
        return body


def _located(error: RequestRefused, change: PlannedChange) -> ConfigError:
    """Return a refusal with the places of its fields in the file."""
    if error.issues and change.place:
        path, message = error.issues[0]
        return ConfigError(f"{change.place}.{path}".rstrip("."), message)
    return ConfigError(change.place, f"{error.message} ({error.request} was refused with {error.status})")


NO_CHANGES, FAILED, CHANGES = 0, 1, 2
# Bytes of a plan: a configuration, and its changes with the values before.
MAX_PLAN = 4 * MAX_BYTES
_EPILOG = "docs/configuration-as-code.md explains the file; the key is read from GATEWAY_API_KEY"


class _Parser(argparse.ArgumentParser):
    """A parser whose errors exit with 1, because `plan` exits with 2 when it finds changes."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(FAILED, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str]) -> int:
    """Run a command; return 0, 1 after an error, or 2 where `plan` finds changes."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    given = _parser().parse_args(arguments)
    try:
        result: int = given.run(given)
        sys.stdout.flush()
        return result
    except ConfigError as error:
        _say_error(str(error))
        return FAILED
    except KeyboardInterrupt:
        _say_error("interrupted; `gateway config plan` shows the rest")
        return FAILED
    except BrokenPipeError:
        # The reader of the output has gone: without this, Python complains while it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="gateway config",
        description="Export, check, plan and apply the configuration of an organization.",
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    there = _Parser(add_help=False)
    there.add_argument("--base-url", default="http://127.0.0.1:8000", help="the gateway (default: %(default)s)")
    there.add_argument("--key", help="a management key; better in GATEWAY_API_KEY, where no process list shows it")
    there.add_argument("--organization", metavar="ID", help="needed where the key has more than one; an id or a name")
    changing = _Parser(add_help=False)
    changing.add_argument("file", help="the configuration, or - for standard input")
    changing.add_argument("--prune", action="store_true", help="delete what the file's sections do not have")

    export = commands.add_parser("export", parents=[there], help="write the configuration as YAML")
    export.add_argument("--section", action="append", choices=SECTIONS, help="only this section; may be repeated")
    export.add_argument("--out", metavar="FILE", help="write it there instead of to standard output")
    export.set_defaults(run=_export)
    plan = commands.add_parser("plan", parents=[there, changing], help="show what `apply` would change; 2: changes")
    plan.add_argument("--out", metavar="PLAN", help="keep the plan in a file, for `apply PLAN`")
    plan.set_defaults(run=_plan)
    apply = commands.add_parser("apply", parents=[there, changing], help="make the changes; FILE may be a kept plan")
    apply.add_argument("--yes", action="store_true", help="do not ask")
    apply.add_argument("--tokens", metavar="FILE", help="write tokens of new API keys there, instead of printing them")
    apply.add_argument("--no-validate", action="store_true", help="do not test new credentials at their providers")
    apply.set_defaults(run=_apply)
    check = commands.add_parser("check", help="check a file without a gateway")
    check.add_argument("file", help="the configuration, or - for standard input")
    check.set_defaults(run=_check)
    commands.add_parser("schema", help="print the JSON schema of the file").set_defaults(run=_schema)
    return parser


def _export(given: argparse.Namespace) -> int:
    api, organization = _connected(given)
    state = read_state(api, organization, given.section or SECTIONS, tolerant=given.section is None)
    for section, reason in state.refused.items():
        _say_error(f"{section} is left out: {reason}")
    document = as_document(state)
    check_document(document)
    text = write_yaml(document)
    if given.out:
        _write(Path(given.out), text.encode())
    else:
        sys.stdout.write(text)
    return 0


def _check(given: argparse.Namespace) -> int:
    read_document(_read(given.file, MAX_BYTES))
    _say(f"{given.file} is a valid configuration")
    return 0


def _schema(given: argparse.Namespace) -> int:
    sys.stdout.write(schema())
    return 0


def _plan(given: argparse.Namespace) -> int:
    document = read_document(_read(given.file, MAX_BYTES))
    api, organization = _connected(given)
    state, plan = _compared(api, organization, document, prune=given.prune)
    _show(api, state, plan)
    if given.out:
        _write(Path(given.out), write_plan(plan, state, document, prune=given.prune))
        _say(f"The plan is in {given.out}.")
    return CHANGES if plan.changes else NO_CHANGES


def _apply(given: argparse.Namespace) -> int:
    data = _read(given.file, MAX_PLAN)
    kept = read_plan(data) if is_plan(data) else None
    document = check_document(kept.document) if kept else read_document(data)
    prune = kept.prune if kept else given.prune
    api, organization = _connected(given)
    state, plan = _compared(api, organization, document, prune=prune)
    if kept is not None:
        _refuse_drift(kept, state, plan)
    _show(api, state, plan)
    if not plan.changes:
        return 0
    secrets = find_secrets(plan, os.environ)
    tokens = _Tokens(given.tokens)
    try:
        if not given.yes:
            _confirm(state)
            # A person may take minutes to answer.
            shown = plan.changes
            state, plan = _compared(api, organization, document, prune=prune)
            if plan.changes != shown:
                raise ConfigError("", "The organization has changed meanwhile; nothing was changed. Apply again")
        execution = Execution(api, state, plan, secrets, keep_token=tokens.keep, is_tested=not given.no_validate)
        return _carry_out(execution, plan)
    finally:
        tokens.close()


def _carry_out(execution: Execution, plan: ConfigPlan) -> int:
    """Make the changes; after an error, say which were made and which were not."""
    done = 0
    try:
        for change in plan.changes:
            execution.make(change)
            done += 1
            _say(f"{change.action}d {change.title}")
    except (ConfigError, KeyboardInterrupt) as error:
        _say_error(str(error) or "interrupted")
        _say_error(f"Stopped: {done} of {len(plan.changes)} changes were made. Not made:")
        for change in plan.changes[done:]:
            _say_error(f"  {change.action} {change.title}")
        _say_error("Correct the cause and apply again; no change is made twice.")
        return FAILED
    _say(f"Applied {done} changes.")
    return 0


def _connected(given: argparse.Namespace) -> tuple[ManagementApi, Any]:
    api = ManagementApi(given.base_url, given.key or os.environ.get("GATEWAY_API_KEY", ""))
    return api, find_organization(api, given.organization)


def _compared(
    api: ManagementApi, organization: Any, document: dict[str, Any], *, prune: bool
) -> tuple[FoundState, ConfigPlan]:
    # Not the row from before: its name and policies may have changed.
    current = find_organization(api, organization["id"])
    state = read_state(api, current, [name for name in SECTIONS if name in document])
    return state, make_plan(state, document, prune=prune)


def _refuse_drift(kept: KeptPlan, state: FoundState, plan: ConfigPlan) -> None:
    """Raise ConfigError unless the plan made now is the kept one."""
    if kept.organization_id != state.organization_id:
        raise ConfigError("", f"The plan is for the organization {kept.organization_id}; nothing was changed")
    if kept.changes != plan.changes:
        for line in render(plan):
            _say(line)
        words = "The organization has changed since this plan was made; nothing was changed"
        raise ConfigError("", f"{words}. Above is what would change now")


def _show(api: ManagementApi, state: FoundState, plan: ConfigPlan) -> None:
    _say(f'Organization "{printable(state.organization_name)}" ({state.organization_id}) at {api.base_url}')
    _say("")
    for line in render(plan):
        _say(line)


def _confirm(state: FoundState) -> None:
    """Raise ConfigError unless a person says yes."""
    if not sys.stdin.isatty():
        raise ConfigError("", "Nothing was changed: without a terminal, --yes is needed")
    sys.stdout.write(f'Apply to "{printable(state.organization_name)}"? Type yes: ')
    sys.stdout.flush()
    if sys.stdin.readline().strip() != "yes":
        raise ConfigError("", "Nothing was changed")


class _Tokens:
    """Where tokens of new API keys go: to standard output, or to a file that only its owner can read."""

    def __init__(self, path: str | None) -> None:
        """Open the file before anything is changed. Raises ConfigError."""
        self._file: int | None = None
        if path is None:
            return
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ConfigError("", f"--tokens: {path} cannot be written: {error.strerror}") from error
        if stat.S_IMODE(os.fstat(self._file).st_mode) & 0o077:
            self.close()
            raise ConfigError("", f"--tokens: others can read {path}; run chmod 600 on it, or name a new file")

    def keep(self, title: str, identifier: str, token: str) -> None:
        """Show or store a new key's token."""
        if self._file is None:
            _say(f"token of {title}: {token}")
            sys.stdout.flush()
            return
        line = json.dumps({"key": title, "id": identifier, "token": token}, ensure_ascii=False)
        os.write(self._file, f"{line}\n".encode())
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _read(path: str, most: int) -> bytes:
    """Return a file's bytes, at most one more than `most`. Raises ConfigError."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read(most + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(most + 1)
    except OSError as error:
        raise ConfigError("", f"{path} cannot be read: {error.strerror}") from error
    if len(data) > most:
        raise ConfigError("", f"{path} is larger than {most // 1024 // 1024} MB")
    return data


def _write(path: Path, data: bytes) -> None:
    """Write a file whole, or not at all. Raises ConfigError."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError("", f"{path} cannot be written: {error.strerror}") from error


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _say_error(line: str) -> None:
    sys.stdout.flush()
    sys.stderr.write(f"{line}\n")
