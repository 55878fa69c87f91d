"""A cached setting: avoids some twenty steps of Django's settings proxy on every request.

It follows Django's signal for changed settings, which tests send.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.signals import setting_changed


class CachedSetting:
    """One setting by name; `value` is its current value. For module constants: it is never disconnected."""

    def __init__(self, name: str) -> None:
        """Raises AttributeError if the setting does not exist."""
        self.value: Any = getattr(settings, name)
        self._name = name
        setting_changed.connect(self._follow, weak=False)

    def _follow(self, *, setting: str, **_: object) -> None:
        if setting == self._name:
            self.value = getattr(settings, setting)
