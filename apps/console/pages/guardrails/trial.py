"""Tries a text against all rules and shows each finding; nothing is stored."""
# alone: one page; the folder's `__init__` lists the paths of all of them

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpRequest, HttpResponse
from django.urls import path

from apps.console.forms import Form, attempt, read_form
from apps.console.pages.guardrails.settings import guarded_page, show_tab
from apps.console.workspace import Workspace
from apps.guardrails.serializers import TriedContentShape
from apps.guardrails.trial import TrialResult, try_guardrails

# Characters of the text that are shown again with the findings.
MAX_SHOWN = 20_000


@guarded_page("GET", "POST")
def try_text(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Show the form and the findings."""
    form, result, pieces = Form(), None, []
    if request.method == "POST":
        content = request.POST.get("content", "").replace("\r\n", "\n")

        def work() -> TrialResult:
            return try_guardrails(
                workspace.organization.id, read_form(request, TriedContentShape, content=content)["content"]
            )

        result, form = attempt(request, work)
        if result is not None:
            form = Form({"content": content})
            pieces = list(cut(content[:MAX_SHOWN], result.places))
    return show_tab(
        request,
        "trial",
        workspace,
        tab="try_guardrails",
        status=form.status,
        form=form,
        result=result,
        pieces=pieces,
    )


def cut(text: str, places: list[tuple[int, int]]) -> Iterator[tuple[str, bool]]:
    """Yield the text in pieces, each with whether it is part of a finding."""
    at = 0
    for start, end in places:
        if start >= len(text):
            break
        if start > at:
            yield text[at:start], False
        yield text[start:end], True
        at = end
    if at < len(text):
        yield text[at:], False


PATHS = [path("o/<str:organization_id>/guardrails/try", try_text, name="try_guardrails")]
