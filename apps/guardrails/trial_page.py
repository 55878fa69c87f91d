"""A page of the admin on which a text is tried against an organization's guardrails; nothing is recorded.

Knows the form and its answer. What a text would meet, `trial.py` knows.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from unfold.widgets import UnfoldAdminTextareaWidget

from apps.guardrails.trial import TrialResult, try_guardrails
from apps.kernel.errors import ApiError
from apps.organizations.operators.admin_buttons import address_of_row, page_button, page_context

# Characters of a text that is tried, as over the API.
LONGEST = 100_000


class TrialForm(forms.Form):
    """A text."""

    text = forms.CharField(
        max_length=LONGEST,
        strip=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 8}),
        help_text="As a user would send it. It is neither sent nor kept.",
    )


@page_button("Test a text", permission="guardrails.view_customrule", icon="experiment")
def try_text(page: Any, request: HttpRequest, row: Any) -> HttpResponse:
    """Say what the guardrails of a row's organization would do with a text."""
    form = TrialForm(request.POST if request.method == "POST" else None)
    result = None
    if request.method == "POST" and form.is_valid():
        try:
            result = try_guardrails(row.organization_id, form.cleaned_data["text"])
        except ApiError as error:
            form.add_error(None, error.message)
    context = {
        "title": "Test a text",
        "form": form,
        "result": result,
        "table": None if result is None else _table(result, str(row.pk)),
        "back": address_of_row(page, row),
    }
    return TemplateResponse(request, "admin/guardrails/try_text.html", page_context(page, request, row) | context)


def _table(result: TrialResult, rule_id: str) -> dict[str, Any]:
    rows = [
        (
            f"{one.rule_name} (this rule)" if one.rule_id == rule_id else one.rule_name,
            one.category,
            f"{one.action} (observes only)" if one.observed else one.action,
            one.matched_content,
            one.matched_pattern,
        )
        for one in result.findings
    ]
    return {
        "caption": "What was found",
        "headers": ("Rule", "Category", "Action", "What it found", "By"),
        "rows": rows,
        "empty": "No rule found anything.",
    }
