"""Pages of the admin whose changes an organization's audit log must show: what operators do is taken down as well.

Knows how the admin saves and deletes. Must never know a table.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, ClassVar

from django.db import transaction
from django.db.models import Model, QuerySet
from django.forms import ModelForm
from django.http import HttpRequest

from apps.kernel.admin import RowAdmin
from apps.organizations import audit
from apps.organizations.models import AuditEntry, User


class AuditedAdmin(RowAdmin):
    """Rows of an organization; `thing` is what the audit log calls one."""

    thing: ClassVar[str]

    def save_model(self, request: HttpRequest, obj: Any, form: ModelForm[Any], change: bool) -> None:
        """Save, and take it down; the admin does both in one transaction."""
        super().save_model(request, obj, form, change)
        changes = {
            name: {
                "from": audit.audit_value(form.initial.get(name)),
                "to": audit.audit_value(form.cleaned_data.get(name)),
            }
            for name in form.changed_data
        }
        self._record(request, "update" if change else "create", obj, {"changes": changes})

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete one, and take it down."""
        self._record(request, "delete", obj, {"name": str(obj)})
        super().delete_model(request, obj)

    @transaction.atomic
    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete one by one."""
        for row in queryset:
            self.delete_model(request, row)

    def _record(self, request: HttpRequest, verb: str, row: Model, details: dict[str, Any]) -> None:
        operator = request.user if isinstance(request.user, User) else None
        organization_id = attrgetter(getattr(row, "organization_path", "organization_id"))(row)
        with audit.acting(operator, AuditEntry.ActorType.ADMIN):
            audit.record(f"{self.thing}.{verb}", organization_id=organization_id, resource=row, details=details)
