"""Accepted proposals as data files: `accepted/providers/<id>.toml` in an operator's folder; the command writes them.

They come between the product's files and the operator's own, which are never rewritten.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from apps.catalog import files
from apps.catalog.proposals import At, Proposal

_HEAD = (
    "# Accepted proposals, written by `catalog propose`; the next one rewrites this file.\n"
    "# Files in the folder providers beside the folder accepted win over it.\n"
    "# Remove an entry to return to the product's prices.\n"
)


def operator_prices(own: Path) -> frozenset[At]:
    """Return the offers whose prices or end an operator's own files state. Raises InvalidFiles."""
    stated = set()
    for path in sorted((own / files.PROVIDERS).glob("*.toml")):
        for model in tomllib.loads(path.read_text("utf-8")).get("models", []):
            if model.keys() & {"prices", "tiers", "deactivated"}:
                stated.add((path.stem, str(model.get("id"))))
    return frozenset(stated)


def accept(own: Path, proposals: Iterable[Proposal]) -> None:
    """Write the proposals into the accepted files below `own`, all or none.

    Raises InvalidFiles if the catalog would be invalid with them, and OSError; then the files are as before.
    """
    folder = own / files.ACCEPTED / files.PROVIDERS
    folder.mkdir(parents=True, exist_ok=True)
    before: dict[Path, str | None] = {}
    try:
        for provider, models in _by_provider(proposals).items():
            path = folder / f"{provider}.toml"
            before[path] = path.read_text("utf-8") if path.exists() else None
            known = tomllib.loads(before[path] or "", parse_float=Decimal).get("models", [])
            entries = {entry["id"]: entry for entry in known}
            for model, changes in models.items():
                entries[model] = entries.get(model, {"id": model}) | changes
            _write(path, _HEAD + "".join(_entry(entries[model]) for model in sorted(entries)))
        files.read_files(own=own)
    except (files.InvalidFiles, OSError):
        for path, text in before.items():
            path.unlink(missing_ok=True) if text is None else _write(path, text)
        raise


def _by_provider(proposals: Iterable[Proposal]) -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for one in proposals:
        changes: dict[str, Any] = {"prices": one.prices} if one.changes else {}
        changes |= {} if one.tiers is None else {"tiers": list(one.tiers)}
        changes |= {"deactivated": one.deactivated} if one.deactivated else {}
        found.setdefault(one.provider, {})[one.model] = changes
    return found


def _write(path: Path, text: str) -> None:
    """Replace a file at once: a load never reads a half of it. The reader ignores hidden names."""
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _entry(entry: Mapping[str, Any]) -> str:
    return "\n[[models]]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in entry.items())


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(one) for one in value) + "]"
    if isinstance(value, Decimal):
        return f"{value.normalize():f}"
    # Ids have no character that TOML would escape.
    return value.isoformat() if isinstance(value, date) else str(value) if isinstance(value, int) else f'"{value}"'
