"""Forms that manage sign-in methods: authenticator app, passkeys, recovery codes; used by admin and console.

Changes need proof of identity within the last five minutes: an open or stolen session is not enough. `step_up.py`,
`two_factor.py` and `passkeys.py` verify the proof.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import segno
from django.contrib import messages
from django.contrib.admin import AdminSite
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import transaction
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext
from django.views.decorators.http import require_http_methods
from unfold.widgets import INPUT_CLASSES

from apps.kernel.errors import ApiError, InvalidRequest
from apps.organizations.accounts import step_up
from apps.organizations.accounts.account_serializers import (
    NewPasskeyShape,
    PasskeyAnswerShape,
    PasskeyNameShape,
    answered,
)
from apps.organizations.credentials import attempt_rate_limiter, passkeys, two_factor
from apps.organizations.credentials.ceremonies import Holder
from apps.organizations.credentials.passkeys import Answered, Asked
from apps.organizations.journal import audit
from apps.organizations.models import AuditEntry, TwoFactor, User
from apps.organizations.serializers import MAX_PASSWORD

# Seconds for which a proof is valid.
PROVED_FOR: Final = 300
# Characters of an authenticator's response as JSON.
MAX_ANSWER: Final = 32_768
# Key in the browser's session: who proved their identity, in which session, and when.
_PROVED: Final = "sign_in_methods.proved"
Action = Callable[[HttpRequest, Holder], HttpResponse | None]


def read_answer(text: str) -> Answered:
    """Return the passkey response in a form field. Raises InvalidRequest."""
    return answered(_read(PasskeyAnswerShape, _json_of(text)))


def answer_question(request: HttpRequest, holder: Holder, name: str) -> HttpResponse | None:
    """Return the options for the page's script before it calls the authenticator; None for other actions."""
    question = _QUESTIONS.get(name)
    if question is None:
        return None
    try:
        asked = question(request, holder)
    except ApiError as error:
        return JsonResponse({"message": error.message}, status=error.status)
    return JsonResponse({"ceremonyId": asked.ceremony_id, "options": asked.options})


def state_of(request: HttpRequest, holder: Holder) -> dict[str, Any]:
    """Return the template context with a user's sign-in methods."""
    user = holder.user
    app = TwoFactor.objects.filter(user=user).exclude(sealed_secret=b"").first()
    return {
        "proved": is_proved(request, holder),
        "app_on": app is not None and app.confirmed_at is not None,
        "app_begun": app is not None and app.confirmed_at is None,
        "second_factor_on": two_factor.is_on(user),
        "passkeys": user.passkeys.order_by("id"),
        "passkeys_on": passkeys.are_on(),
        "max_name": passkeys.MAX_NAME,
    }


def act(request: HttpRequest, holder: Holder, name: str) -> Mapping[str, Any] | None:
    """Run a form of the page; return the context for the page that shows secrets once. Raises ApiError."""
    if name == "prove":
        _prove(request, holder)
        return None
    action = _ACTIONS.get(name)
    if action is None:
        raise InvalidRequest("There is no such action here")
    require_proof(request, holder)
    proved_at = request.session[_PROVED][1]
    shown = action(request, holder)
    # The proof is bound to the credentials, which the action may have changed.
    _remember_proof(request, holder, proved_at)
    return shown


def _prove(request: HttpRequest, holder: Holder) -> None:
    """Verify a proof and remember the time."""
    passkey = request.POST.get("passkey")
    password = request.POST.get("password", "")[:MAX_PASSWORD]
    step_up.require(
        holder,
        step_up.Proof(
            password=password or None,
            code=request.POST.get("code", "").strip() or None,
            passkey=read_answer(passkey) if passkey else None,
        ),
    )
    _remember_proof(request, holder, time.time())


def is_proved(request: HttpRequest, holder: Holder) -> bool:
    """Return whether the user proved their identity in this session within five minutes."""
    match request.session.get(_PROVED):
        case [whose, float(at)]:
            return whose == holder.binding() and 0 <= time.time() - at < PROVED_FOR
    return False


def _remember_proof(request: HttpRequest, holder: Holder, at: float) -> None:
    request.session[_PROVED] = [holder.binding(), at]


def require_proof(request: HttpRequest, holder: Holder) -> None:
    """Raise InvalidRequest without a recent proof."""
    if not is_proved(request, holder):
        raise InvalidRequest("Confirm your identity first", code="proof_required")


def _ask_to_prove(request: HttpRequest, holder: Holder) -> Asked:
    attempt_rate_limiter.count_attempt((attempt_rate_limiter.PASSKEY_PER_USER, str(holder.user.pk)))
    return passkeys.begin_proof(holder)


def _ask_for_new(request: HttpRequest, holder: Holder) -> Asked:
    require_proof(request, holder)
    attempt_rate_limiter.count_attempt((attempt_rate_limiter.PASSKEY_PER_USER, str(holder.user.pk)))
    return passkeys.begin_registration(holder)


def _begin(request: HttpRequest, holder: Holder) -> Mapping[str, Any]:
    enrolment = two_factor.begin(user=holder.user)
    return {"enrolment": enrolment, "picture": segno.make(enrolment.url).svg_data_uri(scale=5, border=2, light="white")}


def _confirm(request: HttpRequest, holder: Holder) -> Mapping[str, Any]:
    with transaction.atomic():
        codes = two_factor.confirm(user=holder.user, code=request.POST.get("code", ""), source=holder.session)
        _note(holder.user, TwoFactor.objects.get(user=holder.user), CHANGE, "Authenticator app turned on")
    messages.success(request, gettext("The authenticator app is on"))
    return {"recovery_codes": codes}


@transaction.atomic
def _disable(request: HttpRequest, holder: Holder) -> None:
    row = TwoFactor.objects.filter(user=holder.user).first()
    if row is not None:
        _note(holder.user, row, DELETION, "Authenticator app turned off")
        two_factor.disable(user=holder.user)
    messages.success(request, gettext("The authenticator app is off"))


def _add(request: HttpRequest, holder: Holder) -> Mapping[str, Any] | None:
    given = _json_of(request.POST.get("passkey", ""))
    fields = _read(NewPasskeyShape, {**given, "name": request.POST.get("name", "")})
    with transaction.atomic():
        row, codes = passkeys.register(holder, answered=answered(fields), name=fields["name"])
        _note(holder.user, row, ADDITION, "Passkey added")
    messages.success(request, gettext("The passkey “{name}” was added").format(name=row.name))
    return {"recovery_codes": codes} if codes else None


@transaction.atomic
def _rename(request: HttpRequest, holder: Holder) -> None:
    row = passkeys.access(holder.user, request.POST.get("id", ""))
    passkeys.rename(row, **_read(PasskeyNameShape, {"name": request.POST.get("name", "")}))
    _note(holder.user, row, CHANGE, "Passkey renamed")


@transaction.atomic
def _remove(request: HttpRequest, holder: Holder) -> None:
    row = passkeys.access(holder.user, request.POST.get("id", ""))
    _note(holder.user, row, DELETION, "Passkey removed")
    passkeys.remove(row)
    messages.success(request, gettext("The passkey “{name}” was removed").format(name=row.name))


_QUESTIONS: Final[dict[str, Callable[[HttpRequest, Holder], Asked]]] = {
    "prove-options": _ask_to_prove,
    "add-options": _ask_for_new,
}
_ACTIONS: Final[dict[str, Callable[[HttpRequest, Holder], Mapping[str, Any] | None]]] = {
    "begin": _begin,
    "confirm": _confirm,
    "disable": _disable,
    "add": _add,
    "rename": _rename,
    "remove": _remove,
}


def _note(user: User, row: Model, flag: int, words: str) -> None:
    """Write an operator's action to Django's admin log; the operator may belong to no organization."""
    if not user.is_staff:
        return
    LogEntry.objects.create(
        user_id=user.pk,
        content_type=ContentType.objects.get_for_model(row),
        object_id=str(row.pk),
        object_repr=str(row)[:200],
        action_flag=flag,
        change_message=words,
    )


def _json_of(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text[:MAX_ANSWER])
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidRequest("This is not an authenticator's response", param="passkey")
    return value


def _read(shape: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    read = shape(data=given)
    if not read.is_valid():
        field, problems = next(iter(read.errors.items()))
        words = problems[0] if isinstance(problems, list) else "This is no answer of an authenticator"
        raise InvalidRequest(f"{field}: {words}", param=str(field))
    return dict(read.validated_data)


# The classes of unfold's buttons, which accept no `data-` attributes.
_BUTTON: Final = "bg-primary-600 text-white rounded-default px-3 py-2 font-medium cursor-pointer"


@require_http_methods(["GET", "HEAD", "POST"])
def sign_in_methods(request: HttpRequest, site: AdminSite) -> HttpResponse:
    """Show the page, or run one of its forms; the admin site has checked that an operator asks."""
    holder = Holder(cast(User, request.user), request.session.session_key or "")
    if request.method != "POST":
        return _page(request, site, holder)
    name = request.POST.get("action", "")
    with audit.acting(holder.user, AuditEntry.ActorType.ADMIN):
        if (answer := answer_question(request, holder, name)) is not None:
            return answer
        try:
            shown = act(request, holder, name)
        except ApiError as error:
            messages.error(request, error.message)
            shown = None
    return HttpResponseRedirect(request.path) if shown is None else _page(request, site, holder, shown)


def _page(
    request: HttpRequest, site: AdminSite, holder: Holder, shown: Mapping[str, Any] | None = None
) -> HttpResponse:
    context = {
        **site.each_context(request),
        "title": "Sign-in methods",
        **state_of(request, holder),
        "input_class": " ".join(INPUT_CLASSES),
        "button_class": _BUTTON,
        **(shown or {}),
    }
    return TemplateResponse(request, "admin/sign_in_methods.html", context)
