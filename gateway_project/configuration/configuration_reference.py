"""Configuration reference: makes docs/configuration.md.

`python -m gateway_project.configuration.configuration_reference [--write]` compares it, or writes it.

The allowed values of a variable come from the calls that read it, its meaning from the table in docs/operations.md;
neither is written twice. Without `--write` it exits with 1 when the document is not current. Must never load a setting.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gateway_project.configuration import data_directory
from gateway_project.configuration.terminal_output import print_line

_HEAD = """# Configuration

Every variable, what it may be, and its default. Written by
`python -m gateway_project.configuration.configuration_reference --write` from the settings and from
[operations](operations.md#environment); a test holds that it is current. A value that is not allowed
stops the start, with a message that says what would be right.

| variable | may be | default | meaning |
|---|---|---|---|
"""
_ROW = re.compile(r"^\| (`[A-Z<][^|]*) \| ([^|]*) \| (.*) \|$", re.MULTILINE)
_NAME = re.compile(r"`([A-Z<][A-Z0-9_<>]*)`")
_KINDS = {
    "boolean": "true or false",
    "words": "a list, separated by commas",
    "directory": "a folder that exists",
    "secret": "a secret",
    "url_of_extra": "a URL",
    "_count": "a whole number above 0",
    "share": "a number from 0 to 1",
}


def reference() -> str:
    """Return the document as the code and the table have it now."""
    allowed = dict(_allowed())
    rows = []
    for names, default, meaning in _ROW.findall((data_directory.PROJECT / "docs" / "operations.md").read_text()):
        known = _NAME.findall(names)
        words = sorted({allowed[name] for name in known if name in allowed})
        rows.append(f"| {names} | {'; '.join(words) or 'text'} | {default.strip()} | {meaning} |")
    return _HEAD + "\n".join(rows) + "\n"


def _allowed() -> Iterator[tuple[str, str]]:
    """Yield each variable that is read through `env`, and what it may be in words."""
    for path in sorted((data_directory.PROJECT / "gateway_project").rglob("*.py")):
        tree = ast.parse(path.read_text())
        constants = _constants(tree)
        for call in ast.walk(tree):
            if not (isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant)):
                continue
            words = _words(_reader(call.func), call, constants, tree)
            if words:
                yield str(call.args[0].value), words


def _reader(function: ast.expr) -> str:
    """Return the name of a reader of `env`, or of gunicorn's settings; nothing for any other function."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "env":
        return function.attr
    return function.id if isinstance(function, ast.Name) and function.id == "_count" else ""


def _words(kind: str, call: ast.Call, constants: dict[str, float], tree: ast.Module) -> str:
    arguments = [_value(one, constants) for one in call.args[1:]]
    named = {one.arg: _value(one.value, constants) for one in call.keywords}
    if kind == "choice" and isinstance(call.args[1], ast.Tuple):
        # A name stands for its word: `env.DEVELOPMENT`.
        words = [ast.unparse(one).strip("'").removeprefix("env.").lower() for one in call.args[1].elts]
        return " or ".join(f"`{word}`" for word in words)
    if kind == "store_url" and (schemes := _texts(call.args[1], tree)):
        return " or ".join(f"`{scheme}://`" for scheme in schemes)
    if kind in {"integer", "optional_integer"}:
        low, high = arguments[-2:]
        return f"a whole number from {_shown(low)} to {_shown(high)}"
    if kind == "seconds":
        return f"seconds, at most {_shown(named.get('high', 3600.0))}"
    if kind == "usd":
        return f"USD, from 0 to {_shown(named.get('high'))}"
    return _KINDS.get(kind, "")


def _texts(node: ast.expr, tree: ast.Module) -> list[str]:
    """Return the texts of a tuple, which may be a module's constant; none of anything else."""
    if isinstance(node, ast.Name):
        wanted = node.id
        values = [
            one.value for one in tree.body if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == wanted
        ]
        node = values[0] if values else node
    return [str(ast.literal_eval(one)) for one in node.elts] if isinstance(node, ast.Tuple) else []


def _constants(tree: ast.Module) -> dict[str, float]:
    """Return a module's numbers by name."""
    found: dict[str, float] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            value = _value(node.value, found)
            if value is not None:
                found[node.targets[0].id] = value
    return found


def _value(node: ast.expr, constants: dict[str, float]) -> float | None:
    """Return the number that an expression of numbers is; None for any other."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int | float) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, constants), _value(node.right, constants)
        if left is not None and right is not None and isinstance(node.op, ast.Mult | ast.Pow):
            return left * right if isinstance(node.op, ast.Mult) else left**right
    return None


def _shown(value: float | None) -> str:
    return "?" if value is None else f"{value:,.15g}"


def main(arguments: Sequence[str]) -> int:
    """Write the document, or tell whether it is current; return the exit code."""
    path: Path = data_directory.PROJECT / "docs" / "configuration.md"
    text = reference()
    if list(arguments) == ["--write"]:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        print_line(
            f"{path.name} is not current: python -m gateway_project.configuration.configuration_reference --write"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
