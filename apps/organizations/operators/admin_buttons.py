"""Admin buttons: each asks for its input on a separate page and runs once, however often it is clicked.

A button is a function of the admin page, the row and the submitted fields. It calls the same actions as the API, in one
transaction with their audit entries and the idempotency record (`idempotency.py`). Calls to other services follow
outside the transaction (`finish`).
"""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar, cast
from uuid import uuid4

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import unquote
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from rest_framework.response import Response
from unfold.decorators import action
from unfold.enums import ActionVariant

from apps.kernel.errors import ApiError
from apps.kernel.pages.admin import RowAdmin
from apps.kernel.postgres import database
from apps.kernel.rest.envelopes import InvalidFields, Issue
from apps.organizations.journal import audit, idempotency
from apps.organizations.models import DELETED, AuditEntry
from apps.organizations.operators.audited_admin import operator_of

# Seconds that a second click waits for the first, and between checks.
PATIENCE, PAUSE = 15.0, 0.2


@dataclass(frozen=True, slots=True)
class Done:
    """The result. `secret` is shown once; `reference` is passed to `finish`; `level` is Django's message level."""

    message: str
    secret: str = ""
    reference: str = ""
    level: int = messages.SUCCESS


class ButtonQuestion(forms.Form):
    """The form of a button; without fields it only asks for confirmation. `row` is None for a button of the table."""

    once = forms.RegexField(r"^[0-9a-f]{32}$", widget=forms.HiddenInput)
    # The explanation, if one paragraph is enough: `{row}` is the row, `{row.name}` a column.
    text: ClassVar[str] = ""

    def __init__(self, *args: Any, row: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.row = row

    @property
    def lines(self) -> list[str]:
        """Paragraphs of explanation above the fields."""
        return [self.text.format(row=self.row)] if self.text else []


Act = Callable[[Any, Any, Mapping[str, Any]], Done]
Finish = Callable[[Any, Done], Done]
View = Callable[..., HttpResponse]
Page = Callable[[Any, HttpRequest, Any], HttpResponse]


def anyone(row: Any) -> bool:
    """Offer a button on every row."""
    return True


def is_living(row: Any) -> bool:
    """Offer a button on rows whose `status` is not deleted."""
    return bool(row.status != DELETED)


@dataclass(frozen=True, slots=True)
class _Button:
    """A declared button; `permission` is Django's, such as `billing.add_transaction`."""

    name: str
    title: str
    permission: str
    act: Act
    question: type[ButtonQuestion] = ButtonQuestion
    offered: Callable[[Any], bool] = anyone
    finish: Finish | None = None
    danger: bool = False


def button(
    title: str, *, permission: str, icon: str = "", danger: bool = False, **options: Any
) -> Callable[[Act], View]:
    """Turn a function of page, row and fields into a button: list it in `actions_detail`, or in `actions_list` for a
    button of the table (its row is None).

    Options are `question` (a form), `offered` (for which rows) and `finish` (runs after the transaction, also on a
    repeated click). An ApiError is shown beside its field and rolls everything back.
    """

    def made(act: Act) -> View:
        described = _Button(act.__name__, title, permission, act, danger=danger, **options)

        def view(admin: RowAdmin, request: HttpRequest, object_id: str | None = None) -> HttpResponse:
            return _answer(described, request, admin, _permitted_row(described, admin, request, object_id))

        view.__name__, view.__doc__ = act.__name__, act.__doc__
        return _shown(view, described, icon)

    return made


def page_button(title: str, *, permission: str, icon: str = "") -> Callable[[Page], View]:
    """Turn a function of page, request and row into a button that opens a page; it changes nothing."""

    def made(page: Page) -> View:
        described = _Button(page.__name__, title, permission, _nothing)

        def view(admin: RowAdmin, request: HttpRequest, object_id: str | None = None) -> HttpResponse:
            return page(admin, request, _permitted_row(described, admin, request, object_id))

        view.__name__, view.__doc__ = page.__name__, page.__doc__
        return _shown(view, described, icon)

    return made


def _nothing(admin: Any, row: Any, fields: Mapping[str, Any]) -> Done:
    return Done("")


def _shown(view: View, described: _Button, icon: str) -> View:
    """Return a view as a button of unfold. The permission is checked here, because unfold would look it up in the
    database at startup."""
    variant = ActionVariant.DANGER if described.danger else ActionVariant.DEFAULT
    url = described.name.replace("_", "-")
    shown = action(description=described.title, url_path=url, icon=icon or None, variant=variant)(view)
    shown.described = described
    return cast(View, shown)


def _permitted_row(button: _Button, admin: RowAdmin, request: HttpRequest, object_id: str | None) -> Any:
    """Return the row of a button, None for the table. Raises Http404, PermissionDenied."""
    row = None if object_id is None else admin.get_object(request, unquote(object_id))
    if object_id is not None and row is None:
        raise Http404
    if not (admin.has_view_or_change_permission(request, row) and request.user.has_perm(button.permission)):
        raise PermissionDenied
    return row


class ButtonsAdmin(RowAdmin):
    """An admin page that shows only the buttons that are available."""

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        """Return the buttons of a row that its state and the operator's permissions allow."""
        found = self._permitted(request, super().get_actions_detail(request, object_id))  # type: ignore[misc]  # the library says nothing of types
        row = self.get_object(request, unquote(str(object_id))) if found else None
        return [one for one in found if row is not None and one.method.described.offered(row)]

    def get_actions_list(self, request: HttpRequest) -> list[Any]:
        """Return the buttons of the table that the operator's permissions allow."""
        return self._permitted(request, super().get_actions_list(request))  # type: ignore[misc]  # the library says nothing of types

    def _permitted(self, request: HttpRequest, buttons: list[Any]) -> list[Any]:
        """Return the buttons that the operator's permissions allow."""
        return [one for one in buttons if request.user.has_perm(one.method.described.permission)]


def _answer(button: _Button, request: HttpRequest, admin: RowAdmin, row: Any) -> HttpResponse:
    form = button.question(request.POST or None, row=row)
    if request.method != "POST" or "once" in form.errors:
        if row is not None and not button.offered(row):
            return _too_late(button, admin, request, row)
        return _ask(button, admin, request, row, button.question(row=row, initial={"once": uuid4().hex}))
    with audit.acting(operator_of(request), AuditEntry.ActorType.ADMIN):
        try:
            return _do(button, admin, request, row, form)
        except ApiError as error:
            if error.code == "idempotency_key_reused":
                return _too_late(button, admin, request, row)
            _add_error(form, error)
            return _ask(button, admin, request, row, form)


def _do(button: _Button, admin: RowAdmin, request: HttpRequest, row: Any, form: ButtonQuestion) -> HttpResponse:
    """Run the action unless the same click already did, and show its result. Raises ApiError."""
    claim = _claim_of(button, admin, request)
    done = _found_answer(claim)
    if done is None:
        if row is not None and not button.offered(row):
            return _too_late(button, admin, request, row)
        if not form.is_valid():
            return _ask(button, admin, request, row, form)
        done = _act_once(claim, partial(_act, button, admin, request, row, form.cleaned_data))
    if button.finish is not None:
        done = button.finish(row, done)
    if done.secret:
        context = {"title": button.title, "done": done, "back": address_of_row(admin, row)}
        return TemplateResponse(request, "admin/shown_once.html", page_context(admin, request, row) | context)
    messages.add_message(request, done.level, done.message)
    return HttpResponseRedirect(address_of_row(admin, row))


def _act(button: _Button, admin: RowAdmin, request: HttpRequest, row: Any, fields: Mapping[str, Any]) -> Response:
    """Run the action and log it in Django's admin log, in the caller's transaction."""
    done = button.act(admin, row, fields)
    LogEntry.objects.create(
        user_id=cast(Any, request.user.pk),
        content_type=ContentType.objects.get_for_model(admin.model),
        object_id=None if row is None else str(row.pk),
        object_repr=str(row or admin.model._meta.verbose_name_plural)[:200],
        action_flag=CHANGE,
        change_message=button.title,
    )
    return Response(asdict(done))


def _act_once(claim: idempotency.Claim, work: Callable[[], Response]) -> Done:
    """Run the action, or wait for a concurrent click and return its result. Raises ApiError."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            answer = idempotency.answer_once(claim, work)
        except ApiError as error:
            if error.code != "idempotency_key_in_use" or time.monotonic() > until:
                raise
            database.release_connection()
            time.sleep(PAUSE)
            continue
        return Done(**(answer.data if isinstance(answer, Response) else json.loads(cast(Any, answer).content)))


def _found_answer(claim: idempotency.Claim) -> Done | None:
    known = idempotency.find_answer(claim)
    return None if known is None else Done(**json.loads(known.content))


def _claim_of(button: _Button, admin: RowAdmin, request: HttpRequest) -> idempotency.Claim:
    """Return the idempotency claim of a click; the same page submitted twice is one click."""
    said = sorted((name, values) for name, values in request.POST.lists() if name != "csrfmiddlewaretoken")
    fingerprint = hmac.digest(settings.SECRET_KEY.encode(), json.dumps([request.path, said]).encode(), "sha256")
    route = f"admin:{admin.model._meta.label_lower}:{button.name}"
    return idempotency.Claim(cast(Any, request.user.pk), route, request.POST.get("once", "")[:255], fingerprint)


def _ask(button: _Button, admin: RowAdmin, request: HttpRequest, row: Any, form: ButtonQuestion) -> HttpResponse:
    context = {"title": button.title, "form": form, "back": address_of_row(admin, row), "danger": button.danger}
    return TemplateResponse(request, "admin/confirm.html", page_context(admin, request, row) | context)


def page_context(admin: RowAdmin, request: HttpRequest, row: Any) -> dict[str, Any]:
    """Return the template context shared by all pages of buttons."""
    return {**admin.admin_site.each_context(request), "media": admin.media, "about": row}


def _too_late(button: _Button, admin: RowAdmin, request: HttpRequest, row: Any) -> HttpResponse:
    messages.error(request, f"{button.title}: not possible here, or already done")
    return HttpResponseRedirect(address_of_row(admin, row))


def address_of_row(admin: RowAdmin, row: Any) -> str:
    """Return the address of a row's page, or of the list without one."""
    table = f"admin:{admin.model._meta.app_label}_{admin.model._meta.model_name}"
    return reverse(f"{table}_changelist") if row is None else reverse(f"{table}_change", args=[row.pk])


def _add_error(form: ButtonQuestion, error: ApiError) -> None:
    """Add the error to the field that it names, else to the form."""
    issues = error.issues if isinstance(error, InvalidFields) else [Issue(error.param or "", error.message)]
    for path, message in issues:
        field = path if path in form.fields else None
        form.add_error(field, message if field or not isinstance(error, InvalidFields) else f"{path}: {message}")
