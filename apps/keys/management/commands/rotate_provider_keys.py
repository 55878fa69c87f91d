"""`manage.py rotate_provider_keys`: encrypt every provider credential with the newest of ENCRYPTION_KEYS."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.keys.provider_keys import rotate
from apps.organizations import two_factor


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
        if rotated.unreadable:
            raise CommandError(f"No encryption key opens these provider keys: {', '.join(rotated.unreadable)}")
