"""What a request's policy is read from: saving or deleting one bumps its organization's generation on commit.

Knows which organization a row belongs to. Must never know what a policy is made of.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, ClassVar

from django.db import models

from apps.kernel import generation


class PolicySource(models.Model):
    """A row that policies are read from. Bulk updates do not pass here: bump by hand after them."""

    # From the row to the id of the organization whose policies read it.
    organization_path: ClassVar[str]

    class Meta:
        abstract = True

    def bump_generation(self) -> None:
        """Make the organization's cached policies stale when the current transaction commits."""
        organization_id = attrgetter(self.organization_path)(self)
        generation.bump_on_commit(generation.organization(organization_id))

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save, and make the organization's policies stale on commit."""
        super().save(*args, **kwargs)
        self.bump_generation()

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete, and make the organization's policies stale on commit."""
        self.bump_generation()
        return super().delete(*args, **kwargs)
