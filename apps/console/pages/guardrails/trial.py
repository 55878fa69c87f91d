"""A text tried out: what the rules would do with it, and where; nothing of it is kept."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpRequest, HttpResponse
from django.urls import path

from apps.console.forms import Form, attempt, read_form
from apps.console.pages.guardrails.frame import guarded_page, show_tab
from apps.console.workspace import Workspace
from apps.guardrails.serializers import TriedContentShape
from apps.guardrails.trial import TrialResult, try_guardrails

# Characters of the text that are shown again with what was found in them.
MOST_SHOWN = 20_000


@guarded_page("GET", "POST")
def try_text(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """Ask for a text, and show what was found in it."""
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
            pieces = list(cut(content[:MOST_SHOWN], result.places))
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
    """Yield the text in pieces, each with whether something was found there."""
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
