"""Help texts of the admin: every field of every form says what it means, but for those whose name does."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import FieldDoesNotExist
from django.test import RequestFactory

from apps.guardrails.models import CustomRule
from apps.logs.models import RequestLog
from apps.organizations.actions import create_operator
from tests.support.cast import PASSWORD

# Fields for the row's identity, its owner and its time: nothing more could be said of them.
SPEAK_FOR_THEMSELVES = {
    *("id", "name", "email", "description", "created_at", "updated_at", "created", "updated"),
    *("organization", "organization_id", "project", "project_id", "user", "user_id", "api_key", "api_key_id"),
}
# Its page is no form: a template of its own shows it, with headings, units and sentences.
NO_FORM = {RequestLog}


@pytest.mark.django_db
def test_every_field_of_every_form_says_what_it_means() -> None:
    request = RequestFactory().get("/admin/")
    request.user = create_operator(email="op@example.com", password=PASSWORD)
    silent = []
    for model, page in admin.site._registry.items():
        if model in NO_FORM:
            continue
        # A rule's form depends on its type; a new one's has the fields of all of them.
        kept = CustomRule(type=CustomRule.Type.BLOCKED_TERMS) if model is CustomRule else model()
        for row in (None, kept) if page.has_add_permission(request) else (kept,):
            form = page.get_form(request, row, change=row is not None)
            # The form as made: some forms write their help then.
            fields, told = form().fields, getattr(form._meta, "help_texts", None) or {}
            # Words above a group of fields explain all of them.
            groups = [one for one in page.get_fieldsets(request, row) if not one[1].get("description")]
            for name in flatten_fieldsets(groups):
                field = fields.get(name)
                says = (field.help_text if field else "") or told.get(name) or _help_of_column(model, name)
                if not says and name not in SPEAK_FOR_THEMSELVES:
                    silent.append(f"{model._meta.label}.{name}")
    assert sorted(set(silent)) == []


def _help_of_column(model: type, name: str) -> str:
    try:
        return str(model._meta.get_field(name).help_text)  # type: ignore[attr-defined]  # every model has it
    except FieldDoesNotExist:
        return ""
