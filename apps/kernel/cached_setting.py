"""A setting that every request asks for, without the way through Django's proxy: some twenty steps each time.

Knows how Django tells that a setting has changed, which it does in tests. Must never know which settings there are.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.signals import setting_changed


class CachedSetting:
    """One setting by its name; `value` is what `settings` says. For constants of modules: it is followed for ever."""

    def __init__(self, name: str) -> None:
        """Raises AttributeError when there is no such setting."""
        self.value: Any = getattr(settings, name)
        self._name = name
        setting_changed.connect(self._follow, weak=False)

    def _follow(self, *, setting: str, **_: object) -> None:
        if setting == self._name:
            self.value = getattr(settings, setting)
