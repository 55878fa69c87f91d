"""Buttons of the catalog in the admin: switch a mapping, a model or a provider off and on, and retire a model.

Knows what each asks and tells beforehand, and which columns are the operators'.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminSingleDateWidget

from apps.catalog.models import CatalogRow, Model, ModelProvider
from apps.organizations.admin_buttons import ButtonQuestion, Done, button

_NOT_SERVED = "Nobody else serves it: requests for it are refused then."


class OffQuestion(ButtonQuestion):
    """Whether requests are to leave something out."""

    @property
    def lines(self) -> list[str]:
        """What happens, and which models are not served at all then."""
        said = [f"New requests leave {self.row} out at once, in every worker. Those under way end as they are."]
        if isinstance(self.row, ModelProvider):
            others = ModelProvider.objects.filter(model=self.row.model, active=True, provider__active=True)
            if not others.exclude(pk=self.row.pk).exists():
                said.append(_NOT_SERVED)
        return said


class OnQuestion(ButtonQuestion):
    """Whether something is to be used again."""

    text = "New requests may be sent to {row} again."


class RetireQuestion(ButtonQuestion):
    """From when on a model counts as deprecated, and from when on it is served no more."""

    retiring_on = forms.DateField(
        required=False,
        label="Deprecated from",
        widget=UnfoldAdminSingleDateWidget,
        help_text="Lists of models say so from this day on (UTC). Empty: it is not.",
    )
    retired_on = forms.DateField(
        required=False,
        label="Not served from",
        widget=UnfoldAdminSingleDateWidget,
        help_text="Requests for it are refused from this day on (UTC), and say since when. Empty: no such day.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("retiring_on", "retired_on"):
            self.fields[name].initial = getattr(self.row, name)

    @property
    def lines(self) -> list[str]:
        """What happens."""
        served = ModelProvider.objects.filter(model=self.row, active=True).count()
        return [
            f"{self.row} is offered by {served} provider{'' if served == 1 else 's'}. These days hold for all of them; "
            "earlier ones of a provider's own stay. Clear both to take it back."
        ]

    def clean(self) -> dict[str, Any]:
        """Let no model end before it is deprecated. Raises ValidationError."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        first, last = cleaned.get("retiring_on"), cleaned.get("retired_on")
        if first and last and last < first:
            self.add_error("retired_on", "Must not be before it is deprecated")
        return cleaned


def _set(row: CatalogRow, **columns: Any) -> None:
    """Write these columns and no other: a load may write beside them."""
    for name, value in columns.items():
        setattr(row, name, value)
    row.save(update_fields=[*columns, "updated_at"])


def switches(table: str) -> tuple[Any, Any]:
    """Return the buttons that switch a row of a table of the catalog off and on."""

    @button(
        "Switch off",
        permission=f"catalog.change_{table}",
        icon="toggle_off",
        danger=True,
        question=OffQuestion,
        offered=lambda row: row.active,
    )
    def switch_off(page: Any, row: CatalogRow, fields: Mapping[str, Any]) -> Done:
        """Leave something out of new requests."""
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
    """Say from when on a model is deprecated and served no more."""
    _set(model, retiring_on=fields["retiring_on"], retired_on=fields["retired_on"])
    if not (model.retiring_on or model.retired_on):
        return Done(f"{model} is deprecated no more")
    return Done(f"{model}: deprecated from {model.retiring_on or '-'}, not served from {model.retired_on or '-'}")
