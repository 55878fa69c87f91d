"""Buttons of the catalog in the admin: switch a mapping, a model or a provider off and on, and retire a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminSingleDateWidget

from apps.catalog.models import CatalogRow, Model, ModelProvider
from apps.organizations.operators.admin_buttons import ButtonQuestion, Done, button

_NOT_SERVED = "No other provider serves it, so requests for it will be refused."


class OffQuestion(ButtonQuestion):
    """Asks whether to exclude something from new requests."""

    @property
    def lines(self) -> list[str]:
        """Paragraphs on the effect, and on models that are no longer served at all."""
        said = [f"New requests no longer use {self.row}, in every worker at once. Running ones finish normally."]
        if isinstance(self.row, ModelProvider):
            others = ModelProvider.objects.filter(model=self.row.model, active=True, provider__active=True)
            if not others.exclude(pk=self.row.pk).exists():
                said.append(_NOT_SERVED)
        return said


class OnQuestion(ButtonQuestion):
    """Asks whether to use something again."""

    text = "New requests may be sent to {row} again."


class RetireQuestion(ButtonQuestion):
    """Asks for the days from which a model is deprecated and no longer served."""

    retiring_on = forms.DateField(
        required=False,
        label="Deprecated from",
        widget=UnfoldAdminSingleDateWidget,
        help_text="Lists of models show it as deprecated from this day on (UTC). Empty: not deprecated.",
    )
    retired_on = forms.DateField(
        required=False,
        label="Not served from",
        widget=UnfoldAdminSingleDateWidget,
        help_text="Requests for it are refused from this day on (UTC). Empty: no such day.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("retiring_on", "retired_on"):
            self.fields[name].initial = getattr(self.row, name)

    @property
    def lines(self) -> list[str]:
        """Paragraphs that explain the effect."""
        served = ModelProvider.objects.filter(model=self.row, active=True).count()
        return [
            f"{self.row} is offered by {served} provider{'' if served == 1 else 's'}. These days apply to all of them; "
            "earlier days of a provider stay. Clear both to undo it."
        ]

    def clean(self) -> dict[str, Any]:
        """Refuse an end before the deprecation. Raises ValidationError."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        first, last = cleaned.get("retiring_on"), cleaned.get("retired_on")
        if first and last and last < first:
            self.add_error("retired_on", "Must not be before it is deprecated")
        return cleaned


def _set(row: CatalogRow, **columns: Any) -> None:
    """Save only these columns: a load may write others concurrently."""
    for name, value in columns.items():
        setattr(row, name, value)
    row.save(update_fields=[*columns, "updated_at"])


def switches(table: str) -> tuple[Any, Any]:
    """Return the buttons that switch a row of a catalog table off and on."""

    @button(
        "Switch off",
        permission=f"catalog.change_{table}",
        icon="toggle_off",
        danger=True,
        question=OffQuestion,
        offered=lambda row: row.active,
    )
    def switch_off(page: Any, row: CatalogRow, fields: Mapping[str, Any]) -> Done:
        """Exclude the row from new requests."""
        _set(row, active=False)
        return Done(f"{row} is switched off")

    @button(
        "Switch on",
        permission=f"catalog.change_{table}",
        icon="toggle_on",
        question=OnQuestion,
        offered=lambda row: not row.active,
    )
    def switch_on(page: Any, row: CatalogRow, fields: Mapping[str, Any]) -> Done:
        """Use something again."""
        _set(row, active=True)
        return Done(f"{row} is switched on")

    return switch_off, switch_on


@button("Deprecate", permission="catalog.change_model", icon="event_busy", question=RetireQuestion)
def deprecate(page: Any, model: Model, fields: Mapping[str, Any]) -> Done:
    """Set the days from which a model is deprecated and no longer served."""
    _set(model, retiring_on=fields["retiring_on"], retired_on=fields["retired_on"])
    if not (model.retiring_on or model.retired_on):
        return Done(f"{model} is no longer deprecated")
    return Done(f"{model}: deprecated from {model.retiring_on or '-'}, not served from {model.retired_on or '-'}")
