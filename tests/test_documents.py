"""Documents for people: README leads to each of them, and what they link to and what they name is there."""

from __future__ import annotations

import os
import re
import tomllib
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from django.conf import global_settings
from django.core.management import get_commands

from gateway_project.configuration.data_directory import PROJECT

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#:\s]*\.md|)#([^)]+)\)")
TOP_LEVEL = sorted([*PROJECT.glob("*.md"), PROJECT / "LICENSE"])
NEWCOMERS = [*TOP_LEVEL, PROJECT / "docs" / "adr" / "README.md", *sorted((PROJECT / "docs").glob("adding-*.md"))]
# The change log tells of what was.
DOCUMENTS = sorted({*TOP_LEVEL, *(PROJECT / "docs").rglob("*.md")} - {PROJECT / "CHANGELOG.md", PROJECT / "LICENSE"})
ROOTS = "apps|gateway_project|tests|bench|docs|script|deploy|examples|templates"
PATH = re.compile(rf"(?<![\w/<.-])((?:{ROOTS})/[\w./-]*[\w/])(?![\w*<]|\.\w)")
# A path with an open place, as in `apps/catalog/providers/<id>.toml`.
PATTERN = re.compile(rf"`((?:{ROOTS})/[\w./-]*[<*][\w./<>*-]*)`")
# A test by its place under `tests/`, perhaps with its name behind it.
TEST = re.compile(r"`((?:\w+/)*test_\w+\.py)(?:::(\w+))?(?:::(\w+))?`")
MODULE = re.compile(r"`((?:\w+/)*\w+\.py)`")
# A name and its module, as in `Recorder` (`apps/gateway/recorder.py`).
NAMED = re.compile(rf"`([\w.]+)(?:\([^`]*\))?`\s+(?:\(|in |of )`((?:{ROOTS})/[\w/]+\.py)`")
COMMAND = re.compile(r"manage\.py ([a-z][\w-]+)")
SETTING = re.compile(r"`([A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+)(?:=[^`]*)?`")
METRIC = re.compile(r"`(gateway_\w+)(?:\{[^`]*\})?`")
RECORD = re.compile(r"(?:docs/adr/|\bADR )(\d{4})\b")
TERM = re.compile(r"^\| ([^|]+) \| [^|]+ \| `([^`]+)` \|$", re.MULTILINE)
WRAPPED = [path for path in NEWCOMERS if path.name != "CHANGELOG.md"]


def links_of(path: Path) -> set[Path]:
    """Return the files of the project that a document links to."""
    return {(path.parent / link).resolve() for link in LINK.findall(path.read_text())}


def test_the_readme_links_every_document() -> None:
    documents = {*TOP_LEVEL, *(PROJECT / "docs").glob("*.md"), PROJECT / "docs" / "adr" / "README.md"}
    assert documents - links_of(PROJECT / "README.md") == {PROJECT / "README.md"}


@cache
def sources() -> dict[Path, str]:
    """Return the text of every file that is no document, by its path."""
    folders = [PROJECT / name for name in (*ROOTS.split("|"), ".ci")]
    files = [path for folder in folders for path in folder.rglob("*")] + [*PROJECT.glob("*")]
    text = [path for path in files if path.suffix in {".py", ".toml", ".yaml", ".yml", ".html", ".js", ".json", ""}]
    return {path.relative_to(PROJECT): path.read_text(errors="replace") for path in text if path.is_file()}


@cache
def words() -> set[str]:
    """Return every word of the sources."""
    return set(re.findall(r"\w+", "\n".join(sources().values())))


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
class TestWhatADocumentNames:
    def test_links_lead_somewhere(self, path: Path) -> None:
        assert [link for link in links_of(path) if not link.exists()] == []

    def test_links_lead_to_headings_that_are_there(self, path: Path) -> None:
        lost = []
        for link, heading in ANCHOR.findall(path.read_text()):
            there = (path.parent / link if link else path).read_text()
            titles = [re.sub(r"[^\w -]", "", title.lower()) for title in re.findall(r"^#+ (.+)$", there, re.MULTILINE)]
            if heading not in {title.replace(" ", "-") for title in titles}:
                lost.append((link, heading))
        assert lost == []

    def test_paths_are_there(self, path: Path) -> None:
        """A record of a decision is named by its number alone (`docs/adr/0040`)."""
        named = {*PATH.findall(path.read_text())}
        there = {name for name in named if (PROJECT / name).exists() or (PROJECT / "tests" / name).exists()}
        assert {name for name in named - there if not re.fullmatch(r"docs/adr/\d{4}", name)} == set()

    def test_something_is_where_a_path_has_an_open_place(self, path: Path) -> None:
        patterns = {re.sub(r"<\w+>", "[!_]*", name) for name in PATTERN.findall(path.read_text())}
        assert {pattern for pattern in patterns if not any(PROJECT.glob(pattern))} == set()

    def test_modules_are_there(self, path: Path) -> None:
        ends = {"/".join(known.parts[at:]) for known in sources() for at in range(len(known.parts))}
        assert {name for name in MODULE.findall(path.read_text()) if name not in ends} == set()

    def test_names_stand_in_their_modules(self, path: Path) -> None:
        named = [(name.rpartition(".")[2], module) for name, module in NAMED.findall(path.read_text())]
        missing = [(name, file) for name, file in named if not re.search(rf"\b{name}\b", sources()[Path(file)])]
        assert missing == []

    def test_tests_are_there(self, path: Path) -> None:
        ends = {known: text for known, text in sources().items() if known.parts[0] == "tests"}
        missing = [
            (file, *names)
            for file, *names in TEST.findall(path.read_text())
            if not any(
                f"/{known.as_posix()}".endswith(f"/{file}") and {*filter(None, names)} <= {*re.findall(r"\w+", text)}
                for known, text in ends.items()
            )
        ]
        assert missing == []

    def test_commands_are_there(self, path: Path) -> None:
        """The doctor, `drain` and `remove-home` are none of Django's (`gateway_project/__main__.py`)."""
        assert {*COMMAND.findall(path.read_text())} - {*get_commands(), "doctor", "drain", "remove-home"} == set()

    def test_settings_are_there(self, path: Path) -> None:
        """Ours, Django's and the system's; settings for a client of the gateway are that client's affair."""
        if path.parent.name == "clients":
            return
        named = {*SETTING.findall(path.read_text())}
        assert {
            name for name in named - words() if not hasattr(global_settings, name) and not hasattr(os, name)
        } == set()

    def test_metrics_are_there(self, path: Path) -> None:
        """A counter is named with the ending that it has where it is shown."""
        named = {*METRIC.findall(path.read_text())}
        assert {name for name in named if not {name, name.removesuffix("_total")} & words()} == set()

    def test_records_are_there(self, path: Path) -> None:
        known = {record.name[:4] for record in (PROJECT / "docs" / "adr").glob("0*.md")}
        assert {*RECORD.findall(path.read_text())} - known == set()


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


def test_operations_state_the_queue_shares_of_the_code() -> None:
    text = sources()[Path("gateway_project/http/admission_control.py")]
    shares = re.search(r"_BURST_SHARE, _STANDING_SHARE, \w+ = ([\d.]+), ([\d.]+)", text)
    assert shares is not None
    burst, standing = (f"{float(share):.0%}".replace("%", " %") for share in shares.groups())
    operations = " ".join((PROJECT / "docs" / "operations.md").read_text().split())
    assert f"within {burst} of `QUEUE_TIME_LIMIT` in a burst, within {standing} of it" in operations


def test_what_a_dialect_can_use_is_there() -> None:
    text = (PROJECT / "docs" / "adding-a-dialect.md").read_text()
    section = text.split("## Shared building blocks of writers", 1)[1].split("\n## ", 1)[0]
    names = re.findall(r"`([\w.]+)\.(\w+)(?:\([^`]*)?`", section)
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
