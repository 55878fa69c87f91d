"""The visitor's own account: name, e-mail address, password, sign-in methods, sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.translation import gettext

from apps.console.browser_session import BrowserSession, begin
from apps.console.forms import PASSWORD_RULES, Form, attempt, error_words, read_form, read_proof
from apps.console.rendering import show
from apps.console.visit import signed_in_page
from apps.kernel.errors import ApiError, InvalidRequest, NotFound
from apps.kernel.pages.languages import page_language, remember_language
from apps.kernel.rest.serializers import CamelSerializer, EmailField, NameField
from apps.organizations.accounts import account_actions, entrance, step_up
from apps.organizations.accounts.account_serializers import NewPasswordShape
from apps.organizations.accounts.sign_in_method_forms import act, answer_question, state_of
from apps.organizations.credentials.ceremonies import Holder
from apps.organizations.credentials.sessions import end_session, name_of, sessions_of

_Action = Callable[[HttpRequest, BrowserSession], str]


class NameShape(CamelSerializer):
    """The form that changes the name."""

    name = NameField(max_length=255)


class EmailShape(CamelSerializer):
    """The form that changes the e-mail address."""

    new_email = EmailField(max_length=254)


@signed_in_page("GET", "POST")
def account(request: HttpRequest, visitor: BrowserSession) -> HttpResponse:
    """Show the account, and run the submitted form."""
    form, name = Form(), request.POST.get("action", "")
    if request.method == "POST":
        if name == "password":
            done, form = attempt(request, lambda: _change_password(request, visitor))
            if done is not None:
                return done
        else:
            words, form = attempt(request, lambda: _act(request, visitor, name))
            if words is not None:
                messages.success(request, words)
                response = HttpResponseRedirect(reverse("console:account"))
                if name == "language":
                    remember_language(response, visitor.user.language)
                return response
        visitor.user.refresh_from_db()
    context: dict[str, Any] = {
        "form": form,
        "visitor": visitor.user,
        "languages": [("", gettext("The browser's language")), *settings.LANGUAGES],
        "password_rules": PASSWORD_RULES,
        "sessions": sessions_of(visitor.user),
        "this_session": name_of(visitor.session),
        "second_factor_on": state_of(request, _holder(visitor))["second_factor_on"],
    }
    return show(request, "account", status=form.status, **context)


@signed_in_page("GET", "POST")
def sign_in_methods(request: HttpRequest, visitor: BrowserSession) -> HttpResponse:
    """Show authenticator app, passkeys and recovery codes; change them after re-authentication."""
    holder, shown = _holder(visitor), None
    if request.method == "POST":
        name = request.POST.get("action", "")
        if (answer := answer_question(request, holder, name)) is not None:
            return answer
        try:
            shown = act(request, holder, name)
        except ApiError as error:
            messages.error(request, error_words(error.message))
        if shown is None:
            return HttpResponseRedirect(reverse("console:sign_in_methods"))
    context: dict[str, Any] = {**state_of(request, holder), "visitor": visitor.user, **(shown or {})}
    return show(request, "sign_in_methods", **context)


def _act(request: HttpRequest, visitor: BrowserSession, name: str) -> str:
    """Run the action and return its message. Raises InvalidRequest and the errors of the action."""
    action = _ACTIONS.get(name)
    if action is None:
        raise InvalidRequest("There is no such action here")
    return action(request, visitor)


def _rename(request: HttpRequest, visitor: BrowserSession) -> str:
    account_actions.rename(user=visitor.user, **read_form(request, NameShape))
    return gettext("Saved.")


def _choose_language(request: HttpRequest, visitor: BrowserSession) -> str:
    """Choose the language; empty is the browser's. Raises InvalidRequest."""
    code = request.POST.get("language", "")
    if code and code not in dict(settings.LANGUAGES):
        raise InvalidRequest("Must be one of the allowed values", param="language")
    account_actions.choose_language(user=visitor.user, language=code)
    with page_language(request, visitor.user.language):
        return gettext("Saved.")


def _change_email(request: HttpRequest, visitor: BrowserSession) -> str:
    fields = read_form(request, EmailShape)
    _require_proof(request, visitor)
    entrance.request_email_change(user=visitor.user, email=fields["new_email"])
    return gettext("We sent a link to {new_email}. The address changes when you open it.").format(
        new_email=fields["new_email"]
    )


def _end_session(request: HttpRequest, visitor: BrowserSession) -> str:
    if not end_session(visitor.user, request.POST.get("session", "")):
        raise NotFound("This session has already ended")
    return gettext("The session was ended.")


def _end_others(request: HttpRequest, visitor: BrowserSession) -> str:
    mine = name_of(visitor.session)
    others = [one.name for one in sessions_of(visitor.user) if one.name != mine]
    for name in others:
        end_session(visitor.user, name)
    return gettext("Sessions ended: {number}.").format(number=len(others))


def _change_password(request: HttpRequest, visitor: BrowserSession) -> HttpResponse:
    """Change the password and, since that ends every session, begin a new one."""
    fields = read_form(request, NewPasswordShape, about={"user": visitor.user})
    _require_proof(request, visitor)
    account_actions.change_password(user=visitor.user, password=fields["new_password"])
    response = HttpResponseRedirect(reverse("console:account"))
    begin(request, response, visitor.user)
    messages.success(
        request,
        gettext(
            "The password was changed. Your other sessions and signed-in programs were ended; API keys still work."
        ),
    )
    return response


def _require_proof(request: HttpRequest, visitor: BrowserSession) -> None:
    step_up.require(_holder(visitor), read_proof(request))


def _holder(visitor: BrowserSession) -> Holder:
    return Holder(visitor.user, str(visitor.session.pk))


_ACTIONS: Final[dict[str, _Action]] = {
    "rename": _rename,
    "language": _choose_language,
    "email": _change_email,
    "end": _end_session,
    "end-others": _end_others,
}

PATHS = [
    path("account", account, name="account"),
    path("account/sign-in-methods", sign_in_methods, name="sign_in_methods"),
]
