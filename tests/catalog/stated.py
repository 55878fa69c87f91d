"""Entries of the catalog's data files, counted with only a TOML parser: what the product reads must be all of it.

Tests compare with these and never with numbers of their own: a new provider, model or alias changes no test.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final

from apps.catalog.files import FOLDER


def _read(folder: Path) -> list[dict[str, Any]]:
    return [tomllib.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.toml"))]


_PROVIDERS: Final = _read(FOLDER / "providers")
_FAMILIES: Final = _read(FOLDER / "families")
# By name: a provider's mappings, and a model's aliases.
MAPPINGS: Final = {file["id"]: {entry["id"] for entry in file.get("models", [])} for file in _PROVIDERS}
ALIASES: Final = {entry["id"]: set(entry.get("aliases", [])) for file in _FAMILIES for entry in file.get("models", [])}
DEVELOPMENT_ONLY: Final = {file["id"] for file in _PROVIDERS if file.get("facts", {}).get("development_only")}
# How many rows all files make.
PROVIDER_COUNT, MODEL_COUNT = len(MAPPINGS), len(ALIASES)
MAPPING_COUNT: Final = sum(len(models) for models in MAPPINGS.values())


def served_models(*, development: bool = True) -> set[str]:
    """Return the models that some provider serves, in production without those of development alone."""
    return {
        model
        for provider, models in MAPPINGS.items()
        for model in models
        if development or provider not in DEVELOPMENT_ONLY
    }
