"""The rules of the house, kept by looking: sizes, names, opening words, contracts, and what must never be written."""

from __future__ import annotations

import ast
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_project.configuration.data_directory import PROJECT

MAX_LINES = 600
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers", "service", "services"}
CODE = {
    path.relative_to(PROJECT): path.read_text()
    for folder in ("apps", "gateway_project", "tests", "bench")
    for path in sorted((PROJECT / folder).rglob("*.py"))
    if "migrations" not in path.parts
}
# Written for people, or run by them.
PROSE = {
    path.relative_to(PROJECT): path.read_text()
    for pattern in (
        "*.md",
        "*.toml",
        "Procfile",
        "manage.py",
        "docs/**/*.md",
        "script/*",
        ".ci/*",
        "templates/**/*.html",
    )
    for path in sorted(PROJECT.glob(pattern))
    if path.is_file()
}
# In pieces, so that this file keeps its own rules.
HOW_IT_IS_MADE = re.compile(
    "|".join(("/wor" + "k/", "/far" + "m/", r"\biss" + r"ue #?\d", r"shared/(spec|des" + "ign)"))
)
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
EXEMPTION = re.compile(r"# (?:no" + r"qa|type: ig" + r"nore)(.*)")


def lines_of(texts: dict[Path, str]) -> Iterator[tuple[str, str]]:
    """Yield every line with its place."""
    for path, text in texts.items():
        for number, line in enumerate(text.splitlines(), start=1):
            yield f"{path}:{number}", line


def test_a_long_file_says_why() -> None:
    """`# length: why` within its first ten lines."""
    texts = {path: text.splitlines() for path, text in CODE.items()}
    too_long = {path: len(lines) for path, lines in texts.items() if len(lines) > MAX_LINES}
    assert [path for path in too_long if not any(line.startswith("# length: ") for line in texts[path][:10])] == []


def test_a_name_says_what_is_inside() -> None:
    assert [path for path in CODE if BANNED_NAMES & {path.stem, *path.parent.parts}] == []


def test_a_module_opens_with_what_it_knows() -> None:
    assert [path for path, text in CODE.items() if not ast.get_docstring(ast.parse(text))] == []


def test_an_exemption_names_its_rule_and_its_reason() -> None:
    """As in `S104 - why`, or `[code]  # why`; lines that follow one another share a reason."""
    without, reason_above = [], False
    for place, line in lines_of(CODE):
        mark = EXEMPTION.search(line)
        reason = bool(mark and re.match(r"(: [A-Z0-9, ]+ - \S|\[[a-z, -]+\]\s+# \S)", mark[1]))
        rule = bool(mark and re.match(r"(: [A-Z]+\d+|\[[a-z-]+)", mark[1]))
        if mark and not (rule and (reason or reason_above)):
            without.append(place)
        reason_above = bool(mark) and (reason or reason_above)
    assert without == []


def test_the_text_is_about_the_product() -> None:
    assert [place for place, line in lines_of(CODE | PROSE) if HOW_IT_IS_MADE.search(line)] == []


def test_nothing_is_left_unfinished() -> None:
    assert [place for place, line in lines_of(CODE | PROSE) if UNFINISHED.search(line)] == []


def test_a_module_that_is_spoken_of_is_there() -> None:
    """As in `run.py`, or `gateway/run.py`; `types/` is a folder of providers' libraries, which sources name."""
    ends = {"/".join(path.parts[at:]) for path in CODE for at in range(len(path.parts))} | {"manage.py"}
    named = [(place, name) for place, line in lines_of(CODE) for name in re.findall(r"`([\w/]+\.py)`", line)]
    assert [(place, name) for place, name in named if name not in ends and not name.startswith("types/")] == []


def test_a_variable_does_not_hide_a_function_of_its_module() -> None:
    """Nor a class, nor an import: a reader of the name would think of that."""
    hiding = []
    for path, tree in ((path, ast.parse(text)) for path, text in CODE.items() if path.parts[0] != "tests"):
        known = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        known |= {alias.asname or alias.name for node in imports for alias in node.names} - {"annotations"}
        hiding += [
            f"{path}:{node.lineno}: {node.id}"
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in known
        ]
    assert hiding == []


def test_apps_do_not_print() -> None:
    printing = [
        f"{path}:{node.lineno}"
        for path, text in CODE.items()
        if path.parts[0] == "apps"
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert printing == []


def test_every_app_has_its_place_in_the_import_contracts() -> None:
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["name"] == "Imports go downwards"]
    placed = set(re.findall(r"apps\.\w+", " ".join(layers)))
    assert {f"apps.{path.parent.name}" for path in (PROJECT / "apps").glob("*/__init__.py")} - placed == set()


def test_every_module_has_its_place_in_an_import_contract() -> None:
    """A contract over a package's layers names each of its modules, or the folder that it is in."""
    contracts = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    places: dict[str, set[str]] = {}
    for one in contracts:
        for container in one.get("containers", ()):
            names = [*re.split(r"[|: ]+", " ".join(one["layers"])), *one.get("exhaustive_ignores", ())]
            places.setdefault(container, set()).update(names)
    packages = {f"apps.{path.parent.name}" for path in (PROJECT / "apps").glob("*/__init__.py")} | {"gateway_project"}
    homeless = {
        f"{package}.{module}"
        for package in packages
        for module in modules_of(package)
        if not any(f"{module}.".startswith(f"{name}.") for name in places.get(package, ()))
    }
    assert homeless == set()


def modules_of(package: str) -> list[str]:
    """Return the modules of a package, without its migrations, by their names within it."""
    folder = PROJECT / package.replace(".", "/")
    paths = [path.relative_to(folder).with_suffix("") for path in folder.rglob("*.py") if path.name != "__init__.py"]
    return [".".join(path.parts) for path in paths if path.parts[0] != "migrations"]


def test_a_public_class_has_a_name_of_its_own() -> None:
    """Outside the wire formats, where each dialect has the same things; nested classes go by their owner's."""
    owners: dict[str, list[str]] = {}
    for path, text in CODE.items():
        if path.parts[0] == "tests" or "dialects" in path.parts or path.parts[:2] == ("apps", "sandbox"):
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and path.parent.name != "commands":
                owners.setdefault(node.name, []).append(str(path))
    assert {name for name, paths in owners.items() if len(paths) > 1} == set()


def test_the_changelog_and_the_settings_name_the_version() -> None:
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    assert f'VERSION = "{version}"' in (PROJECT / "gateway_project" / "settings.py").read_text()
    assert re.search(rf"^## \[?{re.escape(version)}\b", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_every_variable_that_is_read_is_documented() -> None:
    reading = re.compile(r'(?:\benv\.\w+(?:\.\w+)?|environ(?:\.get)?|_count)[(\[]\s*"([A-Z][A-Z0-9_]+)"')
    code = "\n".join(text for path, text in CODE.items() if path.parts[0] == "gateway_project")
    not_ours = {"PATH", "DJANGO_SETTINGS_MODULE"}
    # WSGI's own, in `gateway_project.http`.
    not_ours |= {
        "REQUEST_METHOD",
        "PATH_INFO",
        "QUERY_STRING",
        "RAW_URI",
        "SERVER_PROTOCOL",
        "REMOTE_ADDR",
        "CONTENT_LENGTH",
    }
    not_ours |= {name for name in reading.findall(code) if name.startswith("HTTP_")}
    documented = re.findall(r"`([A-Z][A-Z0-9_]+)`", (PROJECT / "docs" / "operations.md").read_text())
    assert set(reading.findall(code)) - not_ours - set(documented) == set()


@pytest.mark.parametrize("name", ["setup", "server", "test", "check", "bench", "attack", "chaos", "fuzz", "clients"])
def test_the_front_door_opens(name: str) -> None:
    script = PROJECT / "script" / name
    assert os.access(script, os.X_OK)
    assert script.read_text().startswith("#!")


def test_continuous_integration_runs_the_front_door_commands() -> None:
    run = PROJECT / ".ci" / "run"
    assert os.access(run, os.X_OK)
    assert run.read_text().splitlines()[-2:] == ["script/check", "script/test"]


def test_work_lets_the_event_loop_look_for_what_has_arrived() -> None:
    """A sleep of no time lets other greenlets go on, and not those that wait for bytes: `let_others_go_on` does."""
    ours = {path: text for path, text in CODE.items() if path.parts[0] in {"apps", "gateway_project"}}
    # Where the docstring says why.
    del ours[Path("apps/kernel/concurrency/turn_queue.py")]
    assert [place for place, line in lines_of(ours) if re.search(r"\bsleep\(0(\.0*)?\)|\bgevent\.idle\(", line)] == []
