"""`manage.py rotate_provider_keys`: seal every provider credential with the newest of ENCRYPTION_KEYS."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from apps.keys.provider_keys import rotate


class Command(BaseCommand):
    """See the module's docstring."""

    help = "Seal every provider credential with the newest encryption key; older keys can then be taken away."

    def handle(self, *args: Any, **options: Any) -> None:
        """Rotate, and name what could not be read."""
        rotated = rotate()
        self.stdout.write(f"{rotated.count} provider keys are sealed with the newest encryption key")
        if rotated.unreadable:
            raise CommandError(f"No encryption key opens these provider keys: {', '.join(rotated.unreadable)}")
