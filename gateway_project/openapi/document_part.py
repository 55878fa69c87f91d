"""Part of the document: the operations of one tag, with the components that they reach, as a document of its own.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gateway_project.openapi.document import METHODS

Record = dict[str, Any]
_REFERENCE, _COMPONENTS = "$ref", "#/components/"
# Components that operations name directly, without a reference.
_SECURITY: Final = "securitySchemes"


def part_of(whole: Record, tag: str) -> Record:
    """Return a document's operations of a tag, and of its components those that they need."""
    paths: Record = {}
    for path, operations in whole["paths"].items():
        kept = {name: one for name, one in operations.items() if name not in METHODS or tag in one["tags"]}
        if any(name in METHODS for name in kept):
            paths[path] = kept
    return {
        **whole,
        "paths": paths,
        "tags": [one for one in whole["tags"] if one["name"] == tag],
        "components": _reached(whole["components"], paths),
    }


def _reached(components: Record, start: Any) -> Record:
    """Return the components that references lead to, and those that these lead to, in their order."""
    found: set[tuple[str, str]] = set()
    left = [start]
    while left:
        for reference in _references(left.pop()):
            kind, _, name = reference.removeprefix(_COMPONENTS).partition("/")
            if (kind, name) not in found:
                found.add((kind, name))
                left.append(components[kind][name])
    return {
        kind: members if kind == _SECURITY else {name: one for name, one in members.items() if (kind, name) in found}
        for kind, members in components.items()
    }


def _references(value: Any) -> Iterator[str]:
    left = [value]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            reference = node.get(_REFERENCE)
            if isinstance(reference, str) and reference.startswith(_COMPONENTS):
                yield reference
            left += node.values()
        elif isinstance(node, list):
            left += node
