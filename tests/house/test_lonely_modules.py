"""A small module with a single importer beside it belongs into that importer, or says why it stands alone.

It says so with `# alone: why` within its first ten lines. Modules that do neither yet are counted in each folder.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from gateway_project.configuration.data_directory import PROJECT

# Lines below which a module is small.
SMALL = 80
# How many lonely modules a folder may have. The numbers may only fall; folders at 0 are finished.
LONELY = {
    "apps/batches": 0,
    "apps/billing": 1,
    "apps/catalog": 0,
    "apps/console": 3,
    "apps/gateway": 0,
    "apps/gateway/dialects": 0,
    "apps/guardrails": 6,
    "apps/kernel": 1,
    "apps/keys": 0,
    "apps/log_sinks": 1,
    "apps/logs": 0,
    "apps/mcp": 1,
    "apps/mcp_servers": 0,
    "apps/oauth": 1,
    "apps/organizations": 1,
    "apps/responses": 0,
    "apps/sandbox": 6,
    "gateway_project": 2,
}


def lonely_modules(sources: Mapping[str, str]) -> list[str]:
    """Return the small modules with a single importer, which is in their own folder, unless they say why.

    `sources` are texts by the modules' dotted names; a package goes by its folder's.
    """
    importers: dict[str, set[str]] = {name: set() for name in sources}
    for name, text in sources.items():
        for imported in _imports_of(text, sources):
            if imported != name:
                importers[imported].add(name)
    return [name for name, users in importers.items() if _is_lonely(name, users, sources[name])]


def _imports_of(text: str, known: Mapping[str, str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else node.module for name in inner]
        yield from (name for name in names if name in known)


def _is_lonely(name: str, importers: set[str], text: str) -> bool:
    lines = text.splitlines()
    if len(importers) != 1 or len(lines) >= SMALL or any(line.startswith("# alone: ") for line in lines[:10]):
        return False
    [importer] = importers
    folder = name.rpartition(".")[0]
    return folder in (importer, importer.rpartition(".")[0])


@cache
def lonely_of_the_product() -> dict[str, list[str]]:
    """Return the paths of lonely modules by the folder that counts them, the innermost that is listed."""
    paths = [path for root in ("apps", "gateway_project") for path in sorted((PROJECT / root).rglob("*.py"))]
    modules = {_name_of(path): path for path in paths if "migrations" not in path.parts}
    found: dict[str, list[str]] = {folder: [] for folder in LONELY}
    for name in lonely_modules({name: path.read_text() for name, path in modules.items()}):
        path = modules[name]
        if path.name != "__init__.py":
            place = str(path.relative_to(PROJECT))
            folder = max((folder for folder in LONELY if place.startswith(f"{folder}/")), key=len, default="apps")
            found.setdefault(folder, []).append(place)
    return found


def _name_of(path: Path) -> str:
    return ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__")


@pytest.mark.parametrize("folder", LONELY)
def test_lonely_modules_only_become_fewer(folder: str) -> None:
    found = lonely_of_the_product()[folder]
    assert len(found) <= LONELY[folder], "merge each into its importer, or state `# alone: why`:\n" + "\n".join(found)


def test_every_app_is_counted() -> None:
    assert {f"apps/{path.parent.name}" for path in (PROJECT / "apps").glob("*/__init__.py")} <= LONELY.keys()
    assert lonely_of_the_product().keys() == LONELY.keys()


@pytest.mark.parametrize(
    ("sources", "lonely"),
    [
        ({"a.b": "x = 1", "a.c": "from a.b import x"}, ["a.b"]),
        ({"a.b": "x = 1", "a.c": "from a import b"}, ["a.b"]),
        ({"a.b": "x = 1", "a": "import a.b"}, ["a.b"]),
        ({"a.b": "# alone: a hook, found by its name\nx = 1", "a.c": "from a.b import x"}, []),
        ({"a.b": "x = 1", "a.d.c": "from a.b import x"}, []),
        ({"a.b": "x = 1", "a.c": "from a.b import x", "a.d": "from a.b import x"}, []),
        ({"a.b": "x = 1\n" * SMALL, "a.c": "from a.b import x"}, []),
        ({"a.b": "x = 1", "a.c": ""}, []),
    ],
)
def test_which_modules_are_lonely(sources: dict[str, str], lonely: list[str]) -> None:
    assert lonely_modules(sources) == lonely
