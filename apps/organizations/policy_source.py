"""Policy sources: rows that request policies are read from; saving one invalidates cached policies on commit.

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
    # Columns that only the ledger writes: a row read before a charge and saved after it must not undo the charge.
    ledger_columns: ClassVar[frozenset[str]] = frozenset()

    class Meta:
        abstract = True

    def bump_generation(self) -> None:
        """Make the organization's cached policies stale when the current transaction commits."""
        organization_id = attrgetter(self.organization_path)(self)
        generation.bump_on_commit(generation.organization_scope(organization_id))

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save all but the ledger's columns, and make the organization's policies stale on commit."""
        if self.ledger_columns and not self._state.adding and kwargs.get("update_fields") is None:
            names = {field.name for field in self._meta.concrete_fields if not field.primary_key}
            kwargs["update_fields"] = names - self.ledger_columns
        super().save(*args, **kwargs)
        self.bump_generation()

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete, and make the organization's policies stale on commit."""
        self.bump_generation()
        return super().delete(*args, **kwargs)
