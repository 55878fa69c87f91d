"""Looks for calls, modules and packages that must not be in the product at all."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from gateway_project.configuration.data_directory import PROJECT

# Calls and modules that run or unpack code and data from others.
_CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
_MODULES = {"pickle", "marshal", "shelve", "dill", "jinja2", "mako", "subprocess", "pty", "code", "xmlrpc"}
_ATTRIBUTES = {("os", "system"), ("os", "popen"), ("yaml", "load"), ("yaml", "unsafe_load")}


def trees() -> Iterator[tuple[str, ast.AST]]:
    """Yield the modules that handle clients' and providers' data, without those that start the product's processes."""
    for folder in ("apps", "gateway_project/http"):
        for path in sorted((PROJECT / folder).rglob("*.py")):
            yield str(path.relative_to(PROJECT)), ast.parse(path.read_text())


def test_no_code_template_or_command_of_anybodys_is_run() -> None:
    """CVE-2024-6825, CVE-2026-40217, CVE-2026-42271, CVE-2026-90898: rules and tools that run what they say."""
    found = []
    for place, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
                found.append(f"{place}:{node.lineno} {node.func.id}")
            if isinstance(node, ast.Attribute) and (ast.unparse(node.value), node.attr) in _ATTRIBUTES:
                found.append(f"{place}:{node.lineno} {ast.unparse(node)}")
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found += [f"{place}:{node.lineno} {name}" for name in names if name.partition(".")[0] in _MODULES]
    assert found == []


@pytest.mark.parametrize(
    "file", ["requirements.txt", "requirements-build.txt", "requirements-dev.txt", "tests/fuzz/requirements.txt"]
)
def test_every_package_is_pinned_by_its_hash(file: str) -> None:
    """The supply chain: a package that is republished under its old version is not installed."""
    text = (PROJECT / file).read_text().replace("\\\n", " ")
    wanted = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", "-"))]
    assert wanted
    assert [line.split()[0] for line in wanted if "==" not in line.split()[0] or "--hash=sha256:" not in line] == []
    assert "--require-hashes" in (PROJECT / "script" / "setup").read_text()
