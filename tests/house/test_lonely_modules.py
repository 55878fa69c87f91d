"""A small module with a single importer beside it belongs into that importer, or says why it stands alone.

It says so with `# alone: why` within its first ten lines.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from gateway_project.configuration.data_directory import PROJECT

# Lines below which a module is small.
SMALL = 80


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


def _name_of(path: Path) -> str:
    return ".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__")


def test_no_module_is_lonely() -> None:
    paths = [path for root in ("apps", "gateway_project") for path in sorted((PROJECT / root).rglob("*.py"))]
    modules = {_name_of(path): path for path in paths if "migrations" not in path.parts}
    lonely = [modules[name] for name in lonely_modules({name: path.read_text() for name, path in modules.items()})]
    found = [str(path.relative_to(PROJECT)) for path in lonely if path.name != "__init__.py"]
    assert not found, "merge each into its importer, or state `# alone: why`:\n" + "\n".join(found)


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
