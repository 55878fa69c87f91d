"""The page of the admin where an operator sees to how they sign in: authenticator app, passkeys, recovery codes.

Nothing changes there but for who proved within five minutes who they are: a session left open, or stolen, does not do.
Knows forms and words. Must never decide what proves who one is: `step_up.py`, `two_factor.py` and `passkeys.py` do.
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
from django.views.decorators.http import require_http_methods
from unfold.widgets import INPUT_CLASSES

from apps.kernel.errors import ApiError, InvalidRequest
from apps.organizations import attempt_rate_limiter, audit, passkeys, step_up, two_factor
from apps.organizations.ceremonies import Holder
from apps.organizations.models import AuditEntry, TwoFactor, User
from apps.organizations.passkey_shapes import NewPasskeyShape, PasskeyAnswerShape, PasskeyNameShape, answered
from apps.organizations.passkeys import Answered, Asked
from apps.organizations.serializers import MAX_PASSWORD

# Seconds for which a proof is good.
PROVED_FOR: Final = 300
# Characters of an answer of an authenticator's, as JSON.
MAX_ANSWER: Final = 32_768
# As unfold's own buttons are, which take no `data-` attributes.
_BUTTON: Final = "bg-primary-600 text-white rounded-default px-3 py-2 font-medium cursor-pointer"
_PROVED: Final = "sign_in_methods.proved"
Action = Callable[[HttpRequest, Holder], HttpResponse | None]


@require_http_methods(["GET", "HEAD", "POST"])
def sign_in_methods(request: HttpRequest, site: AdminSite) -> HttpResponse:
    """Show the page, or do what one of its forms says; the site has seen to it that an operator asks."""
    user = cast(User, request.user)
    holder = Holder(user, request.session.session_key or "")
    if request.method != "POST":
        return _page(request, site, user)
    name = request.POST.get("action", "")
    try:
        with audit.acting(user, AuditEntry.ActorType.ADMIN):
            if name in _QUESTIONS:
                return _json(_QUESTIONS[name](request, holder))
            shown = _act(request, holder, name)
    except ApiError as error:
        if name in _QUESTIONS:
            return JsonResponse({"message": error.message}, status=error.status)
        messages.error(request, error.message)
        shown = None
    return HttpResponseRedirect(request.path) if shown is None else _page(request, site, user, shown)


def read_answer(text: str) -> Answered:
    """Return the answer to a request for a passkey that a form's field brings. Raises InvalidRequest."""
    return answered(_read(PasskeyAnswerShape, _json_of(text)))


def _act(request: HttpRequest, holder: Holder, name: str) -> Mapping[str, Any] | None:
    """Do it; return what is to be shown, this once."""
    if name == "prove":
        _prove(request, holder)
        return None
    action = _ACTIONS.get(name)
    if action is None:
        raise InvalidRequest("There is no such action here")
    _require_proof(request, holder)
    return action(request, holder)


def _prove(request: HttpRequest, holder: Holder) -> None:
    """Take a proof, and remember when it was given."""
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
    request.session[_PROVED] = time.time()


def _is_proved(request: HttpRequest) -> bool:
    at = request.session.get(_PROVED)
    return isinstance(at, float) and 0 <= time.time() - at < PROVED_FOR


def _require_proof(request: HttpRequest, holder: Holder) -> None:
    if not _is_proved(request):
        raise InvalidRequest("Prove first that it is you", code="proof_required")


def _ask_to_prove(request: HttpRequest, holder: Holder) -> Asked:
    attempt_rate_limiter.count_attempt((attempt_rate_limiter.PASSKEY_PER_USER, str(holder.user.pk)))
    return passkeys.begin_proof(holder)


def _ask_for_new(request: HttpRequest, holder: Holder) -> Asked:
    _require_proof(request, holder)
    attempt_rate_limiter.count_attempt((attempt_rate_limiter.PASSKEY_PER_USER, str(holder.user.pk)))
    return passkeys.begin_registration(holder)


def _begin(request: HttpRequest, holder: Holder) -> Mapping[str, Any]:
    enrolment = two_factor.begin(user=holder.user)
    return {"enrolment": enrolment, "picture": segno.make(enrolment.url).svg_data_uri(scale=5, border=2, light="white")}


def _confirm(request: HttpRequest, holder: Holder) -> Mapping[str, Any]:
    with transaction.atomic():
        codes = two_factor.confirm(user=holder.user, code=request.POST.get("code", ""))
        _note(holder.user, TwoFactor.objects.get(user=holder.user), CHANGE, "Authenticator app turned on")
    messages.success(request, "The authenticator app is on")
    return {"recovery_codes": codes}


@transaction.atomic
def _disable(request: HttpRequest, holder: Holder) -> None:
    row = TwoFactor.objects.filter(user=holder.user).first()
    if row is not None:
        _note(holder.user, row, DELETION, "Authenticator app turned off")
        two_factor.disable(user=holder.user)
    messages.success(request, "The authenticator app is off")


def _add(request: HttpRequest, holder: Holder) -> Mapping[str, Any] | None:
    given = _json_of(request.POST.get("passkey", ""))
    fields = _read(NewPasskeyShape, {**given, "name": request.POST.get("name", "")})
    with transaction.atomic():
        row, codes = passkeys.register(holder, answered=answered(fields), name=fields["name"])
        _note(holder.user, row, ADDITION, "Passkey added")
    messages.success(request, f"The passkey “{row.name}” was added")
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
    messages.success(request, f"The passkey “{row.name}” was removed")


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


def _page(request: HttpRequest, site: AdminSite, user: User, shown: Mapping[str, Any] | None = None) -> HttpResponse:
    app = TwoFactor.objects.filter(user=user).exclude(sealed_secret=b"").first()
    context = {
        **site.each_context(request),
        "title": "Sign-in methods",
        "proved": _is_proved(request),
        "app_on": app is not None and app.confirmed_at is not None,
        "app_begun": app is not None and app.confirmed_at is None,
        "second_factor_on": two_factor.is_on(user),
        "passkeys": user.passkeys.order_by("id"),
        "passkeys_on": passkeys.are_on(),
        "max_name": passkeys.MAX_NAME,
        "input_class": " ".join(INPUT_CLASSES),
        "button_class": _BUTTON,
        **(shown or {}),
    }
    return TemplateResponse(request, "admin/sign_in_methods.html", context)


def _note(user: User, row: Model, flag: int, words: str) -> None:
    """Take down in the admin's own history what an operator did, who may be in no organization."""
    LogEntry.objects.create(
        user_id=user.pk,
        content_type=ContentType.objects.get_for_model(row),
        object_id=str(row.pk),
        object_repr=str(row)[:200],
        action_flag=flag,
        change_message=words,
    )


def _json(asked: Asked) -> JsonResponse:
    return JsonResponse({"ceremonyId": asked.ceremony_id, "options": asked.options})


def _json_of(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text[:MAX_ANSWER])
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidRequest("This is no answer of an authenticator", param="passkey")
    return value


def _read(shape: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    read = shape(data=given)
    if not read.is_valid():
        field, problems = next(iter(read.errors.items()))
        words = problems[0] if isinstance(problems, list) else "This is no answer of an authenticator"
        raise InvalidRequest(f"{field}: {words}", param=str(field))
    return dict(read.validated_data)
