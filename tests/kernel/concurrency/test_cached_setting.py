"""A setting read as an attribute follows what tests make of it."""

from __future__ import annotations

from django.conf import settings
from django.test import override_settings

from apps.kernel.concurrency.cached_setting import CachedSetting


def test_it_is_what_the_settings_say_also_when_they_change() -> None:
    usual = settings.BODY_LIMIT
    limit = CachedSetting("BODY_LIMIT")
    assert limit.value == usual
    with override_settings(BODY_LIMIT=7):
        assert limit.value == 7
        with override_settings(BODY_TIMEOUT=1):
            assert limit.value == 7
    assert limit.value == usual
