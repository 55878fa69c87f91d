"""Policy sources: rows that request policies are built from; saving one invalidates cached policies on commit."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, ClassVar

from django.db import models

from apps.kernel.valkey import generation


class PolicySource(models.Model):
    """A row that policies are built from. Bulk updates bypass it: bump the generation by hand after them."""

    # Lookup path from the row to the id of the organization whose policies use it.
    organization_path: ClassVar[str]
    # Columns that only the ledger writes: a row read before a charge and saved after it must not undo the charge.
    ledger_columns: ClassVar[frozenset[str]] = frozenset()

    class Meta:
        abstract = True

    def bump_generation(self) -> None:
        """Invalidate the organization's cached policies when the current transaction commits."""
        organization_id = attrgetter(self.organization_path)(self)
        generation.bump_on_commit(generation.organization_scope(organization_id))

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save all but the ledger's columns, and invalidate the organization's policies on commit."""
        if self.ledger_columns and not self._state.adding and kwargs.get("update_fields") is None:
            names = {field.name for field in self._meta.concrete_fields if not field.primary_key}
            kwargs["update_fields"] = names - self.ledger_columns
        super().save(*args, **kwargs)
        self.bump_generation()

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete, and invalidate the organization's policies on commit."""
        self.bump_generation()
        return super().delete(*args, **kwargs)
