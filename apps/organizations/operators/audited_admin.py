"""Admin pages that write operators' changes to the organization's audit log and show it as the row's history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partialmethod
from operator import attrgetter
from typing import Any, ClassVar

from django.contrib import messages
from django.db import transaction
from django.db.models import Model, QuerySet
from django.forms import ModelForm
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.html import format_html_join

from apps.kernel.errors import ApiError
from apps.kernel.pages.admin import RowAdmin
from apps.organizations.journal import audit
from apps.organizations.models import DELETED, AuditEntry, User

# Entries of the audit log in a history.
SHOWN_ENTRIES = 200


def operator_of(request: HttpRequest) -> User | None:
    """Return the operator of a request."""
    return request.user if isinstance(request.user, User) else None


def lines_of(entry: AuditEntry) -> str:
    """Return an audit entry as text, one line a column."""
    changes = entry.details.get("changes")
    lines: list[tuple[str, object]] = [
        (name, f"{_text_of(change.get('from'))} → {_text_of(change.get('to'))}")
        for name, change in (changes.items() if isinstance(changes, dict) else ())
    ]
    lines += [(name, _text_of(value)) for name, value in entry.details.items() if name != "changes"]
    return format_html_join("", "<div>{}: {}</div>", lines)


def cells_of(entry: AuditEntry) -> tuple[str, str, str, str]:
    """Return an audit entry as table cells: time, action, details, user."""
    who = f"{entry.actor_email} ({entry.actor_type})" if entry.actor_email else entry.actor_type
    return f"{entry.created_at:%Y-%m-%d %H:%M:%S}", entry.action, lines_of(entry), who


def _text_of(value: Any) -> str:
    return "-" if value in (None, "") else str(value)


class AuditedAdmin(RowAdmin):
    """Rows of an organization; `thing` is the resource type in the audit log."""

    thing: ClassVar[str]

    def formfield_for_choice_field(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Offer no status `deleted`: deleting does more than set a column, and has its own button."""
        if db_field.name == "status":
            kwargs["choices"] = [one for one in db_field.get_choices(include_blank=False) if one[0] != DELETED]
        return super().formfield_for_choice_field(db_field, request, **kwargs)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allow changes only to rows that are not deleted."""
        return getattr(obj, "status", "") != DELETED and super().has_change_permission(request, obj)

    def save_model(self, request: HttpRequest, obj: Any, form: ModelForm[Any], change: bool) -> None:
        """Save and record, in the admin's transaction."""
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
        """Delete and record."""
        self._record(request, "delete", obj, {"name": str(obj)})
        super().delete_model(request, obj)

    @transaction.atomic
    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete the rows one by one."""
        for row in queryset:
            self.delete_model(request, row)

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the audit entries of a row: from the API, operators and commands."""
        row = self.get_object(request, object_id)
        if row is None or not self.has_view_or_change_permission(request, row):
            raise Http404
        entries = AuditEntry.objects.filter(organization_id=self._organization_of(row), resource_id=str(row.pk))
        context = {
            **self.admin_site.each_context(request),
            "title": f"History: {row}",
            "table": {
                "caption": f"History of {row}",
                "headers": ("When (UTC)", "What", "Details", "Who"),
                "rows": [cells_of(entry) for entry in entries.order_by("-id")[:SHOWN_ENTRIES]],
                "empty": "No changes yet.",
            },
            "opts": self.opts,
            "original": row,
            "media": self.media,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/audit_history.html", context)

    def _organization_of(self, row: Any) -> Any:
        return attrgetter(getattr(row, "organization_path", "organization_id"))(row)

    def _record(self, request: HttpRequest, verb: str, row: Model, details: dict[str, Any]) -> None:
        with audit.acting(operator_of(request), AuditEntry.ActorType.ADMIN):
            audit.record(
                f"{self.thing}.{verb}", organization_id=self._organization_of(row), resource=row, details=details
            )


def _refuse(form: Any, words: str) -> None:
    form.add_error(None, words)


class ActingAdmin(AuditedAdmin):
    """Rows that are changed by the API's actions, which write their own audit entries.

    If an action refuses, the page shows its error and nothing is saved.
    """

    def create_row(self, row: Any, fields: Mapping[str, Any]) -> Model:
        """Create the row of a form and return it. Raises ApiError."""
        raise NotImplementedError

    def change_row(self, row: Any, changes: Mapping[str, Any]) -> None:
        """Set columns of a row. Raises ApiError."""
        raise NotImplementedError

    def delete_row(self, row: Any) -> None:
        """Delete a row. Raises ApiError."""
        raise NotImplementedError

    def save_model(self, request: HttpRequest, obj: Any, form: ModelForm[Any], change: bool) -> None:
        """Create or change the row with the action."""
        with audit.acting(operator_of(request), AuditEntry.ActorType.ADMIN):
            if not change:
                made = self.create_row(obj, form.cleaned_data)
                obj.pk, obj._state.adding = made.pk, False
                return
            changes = self.changes_of(form)
            if changes:
                # Read again: the form has already written into `obj`, and the action compares with the old values.
                self.change_row(type(obj)._default_manager.get(pk=obj.pk), changes)

    def changes_of(self, form: ModelForm[Any]) -> dict[str, Any]:
        """Return the columns that the form changes, without fields that are not columns."""
        columns = {field.name for field in form._meta.model._meta.concrete_fields}
        return {name: form.cleaned_data[name] for name in form.changed_data if name in columns}

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete the row with the action."""
        with audit.acting(operator_of(request), AuditEntry.ActorType.ADMIN):
            self.delete_row(obj)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Return the form; after a refusal, one with its error."""
        form: Any = super().get_form(request, obj, change, **kwargs)
        words = getattr(request, "refused", None)
        return form if words is None else type(form)(form.__name__, (form,), {"clean": partialmethod(_refuse, words)})

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show an action's refusal above the form; the transaction is rolled back."""
        try:
            return super().changeform_view(request, *args, **kwargs)
        except ApiError as error:
            request.refused = error.message  # type: ignore[attr-defined]  # for the form of this request alone
            return super().changeform_view(request, *args, **kwargs)

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show an action's refusal; the transaction is rolled back."""
        return self._telling(request, super().delete_view, *args, **kwargs)

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Show an action's refusal; the transaction is rolled back."""
        return self._telling(request, super().changelist_view, *args, **kwargs)

    def _telling(self, request: HttpRequest, view: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return view(request, *args, **kwargs)
        except ApiError as error:
            messages.error(request, error.message)
            return HttpResponseRedirect(request.get_full_path())
