"""Modules of the same name in other apps: how work reaches apps that the one who begins it must not know."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from django.apps import apps


def find_hook_modules(name: str, asking: str) -> Iterator[str]:
    """Yield the full names of every app's module of that name, without the one that asks."""
    for config in apps.get_app_configs():
        full = f"{config.name}.{name}"
        if full != asking and config.name.startswith("apps.") and find_spec(full):
            yield full
