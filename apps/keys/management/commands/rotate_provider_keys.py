"""`manage.py rotate_provider_keys`: encrypt every provider credential with the newest of ENCRYPTION_KEYS.

Apps that keep credentials of another kind have a hook `rotate` (`apps.organizations.app_hooks`).
"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.keys.provider_keys import rotate
from apps.organizations.app_hooks import find_hook_modules
from apps.organizations.credentials import two_factor


class Command(BaseCommand):
    """See the module's docstring."""

    help = "Seal provider credentials and second factors with the newest encryption key; older keys can be taken away."

    def handle(self, *args: Any, **options: Any) -> None:
        """Rotate, and name what could not be read."""
        second_factors = two_factor.rotate()
        rotated = rotate()
        self.stdout.write(f"{rotated.count} provider keys are sealed with the newest encryption key")
        if second_factors:
            self.stdout.write(f"{second_factors} second factors, too")
        unreadable = list(rotated.unreadable)
        for module in find_hook_modules("rotate"):
            others = module.rotate()
            unreadable += others.unreadable
            if others.count:
                self.stdout.write(f"{others.count} {module.WORDS}, too")
        if unreadable:
            raise CommandError(f"No encryption key opens these credentials: {', '.join(unreadable)}")
