"""Documents for people: README leads to each of them, and the links of those a newcomer reads first lead somewhere."""

from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from gateway_project.data_directory import PROJECT

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
TOP_LEVEL = sorted([*PROJECT.glob("*.md"), PROJECT / "LICENSE"])
NEWCOMERS = [*TOP_LEVEL, PROJECT / "docs" / "adr" / "README.md", *sorted((PROJECT / "docs").glob("adding-*.md"))]
PATH = re.compile(r"`((?:apps|gateway_project|tests|bench|docs|script)/[\w./-]*)`")
TERM = re.compile(r"^\| ([^|]+) \| [^|]+ \| `([^`]+)` \|$", re.MULTILINE)
MAPS = ["architecture.md", "glossary.md", "adding-a-dialect.md", "adding-a-provider.md", "adding-an-endpoint.md"]
WRAPPED = [path for path in NEWCOMERS if path.name != "CHANGELOG.md"]


def links_of(path: Path) -> set[Path]:
    """Return the files of the project that a document links to."""
    return {(path.parent / link).resolve() for link in LINK.findall(path.read_text())}


def test_the_readme_links_every_document() -> None:
    documents = {*TOP_LEVEL, *(PROJECT / "docs").glob("*.md"), PROJECT / "docs" / "adr" / "README.md"}
    assert documents - links_of(PROJECT / "README.md") == {PROJECT / "README.md"}


@pytest.mark.parametrize("path", NEWCOMERS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    assert [link for link in links_of(path) if not link.exists()] == []


@pytest.mark.parametrize("name", MAPS)
def test_paths_that_a_map_names_are_there(name: str) -> None:
    paths = PATH.findall((PROJECT / "docs" / name).read_text())
    assert [path for path in paths if not (PROJECT / path).exists()] == []


@pytest.mark.parametrize(("contract", "prefix"), [("Imports go downwards", "apps/"), ("Within the gateway", "")])
def test_the_map_goes_down_as_imports_do(contract: str, prefix: str) -> None:
    """The map of the architecture names every app, and every folder of the gateway, in an order of the contract."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    [layers] = [
        one["layers"] for one in project["tool"]["importlinter"]["contracts"] if one["name"].startswith(contract)
    ]
    level = {name.removeprefix("apps."): depth for depth, layer in enumerate(layers) for name in layer.split(" | ")}
    # It has no place below the others: nothing imports it, and it imports none of them.
    level["sandbox"] = len(layers)
    text = (PROJECT / "docs" / "architecture.md").read_text().split("## The map", 1)[1].split("\n## ", 1)[0]
    section = text.partition("Inside `apps/gateway/`")[0 if prefix else 2]
    named = re.findall(rf"^\| `{prefix}(\w+)/` \|", section, re.MULTILINE)
    folder = PROJECT / (prefix or "apps/gateway")
    folders = {path.parent.name for path in folder.glob("*/__init__.py")} - {"management", "migrations"}
    assert set(named) == folders
    assert named == sorted(named, key=level.__getitem__)


def test_what_a_dialect_can_use_is_there() -> None:
    text = (PROJECT / "docs" / "adding-a-dialect.md").read_text()
    section = text.split("## What every writer can use", 1)[1].split("\n## ", 1)[0]
    names = re.findall(r"`(\w+)\.(\w+)(?:\([^`]*)?`", section)
    assert len(names) > 15
    modules = {module: import_module(f"apps.gateway.dialects.{module}") for module, _ in names}
    assert [f"{module}.{name}" for module, name in names if not callable(getattr(modules[module], name, None))] == []


def test_each_term_of_the_glossary_opens_the_module_that_owns_it() -> None:
    owners = TERM.findall((PROJECT / "docs" / "glossary.md").read_text())
    assert len(owners) == len({term.lower() for term, _ in owners}) > 40
    assert [term for term, _ in owners] == sorted((term for term, _ in owners), key=str.lower)
    opening = {path: (PROJECT / path).read_text().split("\n", 1)[0].lower() for _, path in owners}
    assert [term for term, path in owners if term.lower() not in opening[path]] == []


@pytest.mark.parametrize("path", WRAPPED, ids=lambda path: path.name)
def test_lines_are_short_enough_to_read(path: Path) -> None:
    """At most 100 characters, but for tables, code and titles."""
    lines = FENCED.sub("", path.read_text()).splitlines()
    assert [line for line in lines if len(line) > 100 and not line.startswith(("|", "    ", "#"))] == []


def test_the_licence_is_the_one_that_the_package_names() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert (project["license"], project["license-files"]) == ("MIT", ["LICENSE"])
    assert (PROJECT / "LICENSE").read_text().startswith("MIT License\n\nCopyright (c) 2026 The model gateway authors\n")
