"""Limits in the admin: operators see and set those of every organization, with their state, and the limits of plans."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from rest_framework import serializers
from unfold.widgets import UnfoldAdminTextInputWidget

from apps.catalog.models import Provider
from apps.kernel.money import plain
from apps.kernel.pages.admin import LinesField, LongTableAdmin, RowAdmin
from apps.kernel.rest.envelopes import InvalidFields, camel
from apps.limits import actions
from apps.limits.models import Limit, LimitCharge, LimitCounter, PlanLimit
from apps.limits.plan_limits import MAX_PLAN_LIMITS
from apps.limits.serializers import LimitChangesShape, NewLimitShape
from apps.limits.state import states_of
from apps.organizations.operators.audited_admin import ActingAdmin
from apps.organizations.operators.organization_tabs import OrganizationLink, link_to, moment

if TYPE_CHECKING:
    _Form = forms.ModelForm[Any]
else:
    _Form = forms.ModelForm

_OF_RAISE = ("raised_amount", "raised_until", "raise_reason")
_CHANGEABLE = ("name", "amount", "action", "reroute_models", *_OF_RAISE)
# The fields that a limit of a plan shares with those of organizations.
_OF_PLAN = (*("name", "model", "provider", "counts", "window", "time_zone", "amount", "action", "reroute_models"),)
_MODELS_HELP = "With the action reroute: ids of models that answer instead, one per line, the first that can."


class LimitForm(_Form):
    """A limit, validated as in the API."""

    scope_id = forms.CharField(
        required=False,
        max_length=100,
        label="Scope id",
        widget=UnfoldAdminTextInputWidget,
        help_text="The id of the team, project, member (the user's) or key; for end users the project's; else empty.",
    )
    reroute_models = LinesField(required=False, help_text=_MODELS_HELP)

    def clean(self) -> dict[str, Any]:
        """Check what the API would check. Raises ValidationError."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        if self.instance._state.adding:
            owner = {"organizationId": str(cleaned["organization"].pk)}
            cleaned["read"] = _read_new(self, {name: cleaned[name] for name in self.fields if name in cleaned}, **owner)
        elif changes := {camel(name): _text_of(cleaned[name]) for name in self.changed_data}:
            _read(self, LimitChangesShape(data=changes))
        return cleaned


def _read_new(form: _Form, values: Mapping[str, Any], **more: str) -> Any:
    """Return the fields of a new limit as the API reads them; adds errors to the form."""
    given = {camel(name): _text_of(value) for name, value in values.items() if name != "organization"}
    stated = {name: value for name, value in given.items() if value not in (None, "", [])}
    return _read(form, NewLimitShape(data={**stated, **more}))


def _read(form: _Form, shape: serializers.Serializer[Any]) -> Any:
    if shape.is_valid():
        return shape.validated_data
    columns = {camel(name): name for name in form.fields}
    for name, found in shape.errors.items():
        form.add_error(columns.get(name), found if isinstance(found, list) else str(found))
    return None


def _text_of(value: Any) -> Any:
    """Return a value of a form as the API is sent it."""
    if isinstance(value, Decimal):
        return plain(value)
    return value.isoformat() if isinstance(value, date | datetime) else value


@admin.register(Limit)
class LimitAdmin(OrganizationLink, ActingAdmin):
    """Limits of organizations. Whose requests count, what of them and when never changes: create another limit."""

    thing = "limit"
    form = LimitForm
    list_display = (
        *("name", "organization_link", "scope", "subject", "counts", "window", "action"),
        *("amount_in_force", "used", "held", "left", "resets"),
    )
    list_filter = ("scope", "counts", "window", "action", "organization__plan")
    list_select_related = ("organization", "team", "project", "member", "api_key")
    search_fields = ("id__exact", "name", "model", "provider", "organization__name", "organization__id__exact")
    search_help_text = "Part of a limit's or an organization's name, a model, a provider; or an exact id of either"
    autocomplete_fields = ("organization",)
    sortable_by = ()
    ordering = ("-id",)
    help_texts = {
        "scope": "Whose requests count.",
        "subject": "The team, project, member, key, end user, model or provider.",
        "end_user": "The one end user that it is for; empty: each end user has a counter.",
        "model": "A model's id, or a pattern with *; empty: all models.",
        "provider": "The id of the provider whose answers count; empty: all.",
        "counts": "The part of a request that counts.",
        "window": "When it counts from 0 again.",
        "rolling": "How many hours or days count together, the present one and those before; empty: one.",
        "starts_on": "Weeks or months begin on this date's weekday, or day of the month; empty: Monday, the first.",
        "time_zone": "The time zone of days, weeks and months.",
        "amount": "USD, or a whole number.",
        "action": "How a request beyond the limit is handled.",
        "raised_amount": "The amount that holds instead for a time; empty: none.",
        "raised_until": "The raised amount holds until this moment (UTC).",
        "raise_reason": "Why it was raised.",
        "amount_in_force": "USD, or a whole number: the raised amount while it holds.",
        "used": "Used in the present window; a limit of each end user has many.",
        "held": "Held by requests in progress.",
        "left": "The rest of the present window.",
        "resets": "When it counts from 0 again (UTC).",
    }

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields of a new limit, or what changes of one and its state."""
        scope = ("scope", "scope_id" if obj is None else "subject")
        facts = ("end_user", "model", "provider", "counts", "window", "time_zone", "rolling", "starts_on")
        shown = [
            (None, {"fields": ("organization", "name", *scope, *facts)}),
            ("Amount", {"fields": ("amount", "action", "reroute_models")}),
            ("Temporary raise", {"fields": _OF_RAISE}),
        ]
        state = ("amount_in_force", "used", "held", "left", "resets")
        record = ("id", "created_at", "updated_at")
        return shown if obj is None else [*shown, ("State", {"fields": state}), ("Record", {"fields": record})]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return what cannot be changed of a limit that exists."""
        if obj is None:
            return ()
        named = [name for _, options in self.get_fieldsets(request, obj) for name in options["fields"]]
        return tuple(name for name in named if name not in _CHANGEABLE)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        """Return the list, with the state of all limits of the page read at once."""
        found = super().get_changelist_instance(request)
        rows = list(found.result_list)
        states = states_of(rows)
        for row in rows:
            row.shown_state = states[row]
        found.result_list = rows
        return found

    @admin.display(description="Of")
    def subject(self, row: Limit) -> str:
        """Return whose requests count, or which."""
        owner = row.team or row.project or row.member or row.api_key
        named = [one for one in (row.end_user, row.model, row.provider) if one]
        if owner is None:
            return ", ".join(named) or "-"
        return link_to(owner, ", ".join([str(owner), *named]))

    @admin.display(description="Amount")
    def amount_in_force(self, row: Limit) -> str:
        """Return the amount in force."""
        return self._state(row, "amount") or plain(row.amount)

    @admin.display(description="Used")
    def used(self, row: Limit) -> str:
        """Return the used amount."""
        return str(self._state(row, "used"))

    @admin.display(description="Held")
    def held(self, row: Limit) -> str:
        """Return the amount that requests in progress hold."""
        return str(self._state(row, "held"))

    @admin.display(description="Left")
    def left(self, row: Limit) -> str:
        """Return the remaining amount."""
        return str(self._state(row, "left"))

    @admin.display(description="Resets")
    def resets(self, row: Limit) -> str:
        """Return when it counts from 0 again."""
        return moment(self._state(row, "resets_at") or None)

    def _state(self, row: Any, name: str) -> Any:
        if not hasattr(row, "shown_state"):
            row.shown_state = states_of([row])[row]
        return "" if row.shown_state is None else getattr(row.shown_state, name) or ""

    def create_row(self, row: Limit, fields: Mapping[str, Any]) -> Limit:
        """Create a limit."""
        return actions.create_limit(organization=fields["organization"], fields=fields["read"])

    def change_row(self, row: Limit, changes: Mapping[str, Any]) -> None:
        """Change name, amount, action with its models, or temporary raise of a limit."""
        actions.change_limit(limit=row, changes=changes)

    def delete_row(self, row: Limit) -> None:
        """Delete a limit."""
        actions.delete_limit(limit=row)


class PlanLimitForm(_Form):
    """A limit of a plan, validated as one of an organization."""

    reroute_models = LinesField(required=False, help_text=_MODELS_HELP)

    def clean(self) -> dict[str, Any]:
        """Check the limit as the API would check one. Raises ValidationError."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if self.errors:
            return cleaned
        row = self.instance
        for name in self.fields:
            setattr(row, name, cleaned[name])
        _read_new(self, {name: getattr(row, name) for name in _OF_PLAN}, organizationId="-", scope="organization")
        if self.errors:
            return cleaned
        try:
            actions.check_plan_limit(row)
        except InvalidFields as error:
            names = {camel(name): name for name in self.fields}
            for path, message in error.issues:
                self.add_error(names.get(path), message)
        if row.provider and not Provider.objects.filter(pk=row.provider).exists():
            self.add_error("provider", "Must be the id of a provider")
        if row._state.adding and PlanLimit.objects.filter(plan=row.plan).count() >= MAX_PLAN_LIMITS:
            self.add_error("plan", f"Maximum {MAX_PLAN_LIMITS} limits per plan")
        return cleaned


@admin.register(PlanLimit)
class PlanLimitAdmin(RowAdmin):
    """Limits that every organization of a plan has. Plan, model, provider, count and window never change."""

    form = PlanLimitForm
    list_display = ("name", "plan", "model", "provider", "counts", "window", "amount", "action", "is_fixed")
    list_filter = ("plan", "counts", "window")
    search_fields = ("name", "model", "provider")
    sortable_by = ()
    ordering = ("plan", "name")
    fields = (
        *("plan", "name", "model", "provider", "counts", "window", "time_zone", "amount", "action"),
        *("reroute_models", "is_fixed"),
    )
    help_texts = {
        "plan": "Each organization of this plan has the limit, with counters of its own.",
        "model": "A model's id, or a pattern with *; empty: all models.",
        "provider": "The id of the provider whose answers count; empty: all.",
        "counts": "The part of a request that counts.",
        "window": "When it counts from 0 again.",
        "time_zone": "The time zone of days, weeks and months.",
        "amount": "USD, or a whole number.",
        "action": "How a request beyond the limit is handled.",
        "is_fixed": "Holds beside an organization's own limits. Off: an own limit with the same model, provider, count "
        "and window takes its place, whatever its amount.",
    }

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Return what identifies the counters of a limit that exists."""
        return () if obj is None else ("plan", "model", "provider", "counts", "window", "time_zone")


@admin.register(LimitCounter)
class LimitCounterAdmin(LongTableAdmin):
    """Usage of limits, by window."""

    list_display = ("id", "limit_id", "starts_at", "ends_at", "used")
    search_help_text = "The exact id of a counter, a limit or an organization"
    owners = ("limit_id", "organization_id")
    help_texts = {
        "limit_id": "The limit that it counts for.",
        "organization_id": "The organization of the limit.",
        "starts_at": "The first moment of the window (UTC).",
        "ends_at": "The first moment after the window (UTC); empty: it never ends.",
        "is_money": "Whether it counts USD.",
        "used": "USD, or a whole number.",
        "folded": "The part of it whose requests are no longer kept one by one.",
        "used_version": "Counts the changes; its copy in Valkey has the same number.",
    }


@admin.register(LimitCharge)
class LimitChargeAdmin(LongTableAdmin):
    """Amounts that settled requests added to counters."""

    list_display = ("reference", "organization_id", "created_at")
    ordering = ("-reference",)
    search_fields = ("reference",)
    search_help_text = "The exact id of a request or an organization"
    owners = ("organization_id",)
    help_texts = {
        "reference": "The id of the request in the request log.",
        "organization_id": "The organization whose request it was.",
        "counted": "Pairs of a counter and the amount that was added.",
    }
