"""Buttons of the catalog in the admin: reload the data files, switch a mapping, a model or a provider off and on, and
retire a model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any

from django import forms
from django.conf import settings
from unfold.widgets import UnfoldAdminSingleDateWidget

from apps.catalog.files import InvalidFiles
from apps.catalog.load import find_differences, load
from apps.catalog.models import CatalogRow, Model, ModelProvider
from apps.catalog.price_history import LOADER
from apps.organizations.journal import audit
from apps.organizations.operators.admin_buttons import ButtonQuestion, Done, button

# Lines of differences on the page of a reload.
SHOWN_DIFFERENCES = 200
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
        help_text="Requests for it are refused from this day on (UTC). Empty: it does not end.",
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


class ReloadQuestion(ButtonQuestion):
    """Shows the changes that the data files would make, and asks whether to make them."""

    # A hash of the shown changes: files that change after the page was made are not loaded unseen.
    seen = forms.CharField(widget=forms.HiddenInput, required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["seen"].initial = self._fingerprint

    @cached_property
    def _found(self) -> tuple[list[str], list[str]]:
        """The changes, and the problems of files that are not valid."""
        try:
            return find_differences(), []
        except InvalidFiles as error:
            return [], str(error).splitlines()

    def _fingerprint(self) -> str:
        return sha256("\n".join(self._found[0]).encode()).hexdigest()

    @property
    def lines(self) -> list[str]:
        """Paragraphs: where the files are, then each change or each problem."""
        own = f" and in {settings.CATALOG_DIR}" if settings.CATALOG_DIR else "; CATALOG_DIR is not set"
        head = f"Data files of the product{own}. + added, ~ changed, - withdrawn."
        differences, problems = self._found
        if problems:
            return [head, "The files are not valid, so nothing can be loaded:", *problems[:SHOWN_DIFFERENCES]]
        if not differences:
            return [head, "The tables say what the files say."]
        hidden = len(differences) - SHOWN_DIFFERENCES
        more = [f"And {hidden} more; `load_catalog --diff` prints all."] if hidden > 0 else []
        return [head, *differences[:SHOWN_DIFFERENCES], *more]

    def clean(self) -> dict[str, Any]:
        """Refuse invalid files, and changes that the operator has not seen. Raises ValidationError."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self._found[1]:
            raise forms.ValidationError("The data files are not valid; correct them first.")
        if cleaned.get("seen") != self._fingerprint():
            # The next click confirms the changes that are shown beside this error.
            self.data = {**dict(self.data.items()), "seen": self._fingerprint()}
            raise forms.ValidationError("The data files have changed. Check the changes above, then confirm again.")
        return cleaned


@button("Reload data files", permission="catalog.change_provider", icon="sync", question=ReloadQuestion)
def reload_files(page: Any, row: None, fields: Mapping[str, Any]) -> Done:
    """Load the data files, as `load_catalog` does."""
    operator = audit.acting_user()
    return Done(str(load(author=operator.email if operator else LOADER)))
