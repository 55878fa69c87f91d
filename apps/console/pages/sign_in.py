"""Signing up, in and out, resetting a password, and accepting an invitation."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.translation import gettext

from apps.console.browser_session import BrowserSession, begin, end, find_browser_session
from apps.console.forms import PASSWORD_RULES, Form, attempt, read_form
from apps.console.rendering import show
from apps.console.visit import next_path, public_page, signed_in_page
from apps.console.workspace import organizations_of
from apps.kernel.pages.languages import translated
from apps.kernel.rest.origin import address_of
from apps.organizations import invitations
from apps.organizations.accounts import entrance, step_up
from apps.organizations.accounts.account_serializers import PasswordResetRequestShape
from apps.organizations.accounts.sign_in_method_forms import read_answer
from apps.organizations.credentials import passkeys, two_factor
from apps.organizations.models import Organization, User
from apps.organizations.serializers import SignInShape, SignUpShape


@public_page("GET", "POST")
def sign_in(request: HttpRequest) -> HttpResponse:
    """Sign in with a password and, if enabled, a second factor; or with a passkey alone."""
    form = Form()
    if request.method == "POST":
        if request.POST.get("step"):
            return _second_step(request, request.POST["step"])
        user, form = attempt(request, lambda: _first_step(request))
        if user is not None and not request.POST.get("passkey") and two_factor.is_on(user):
            return _ask_for_second_factor(request, entrance.second_step_token(user), user)
        if user is not None:
            return _enter(request, user)
    elif find_browser_session(request) is not None:
        return HttpResponseRedirect(_way_on(request))
    context: dict[str, Any] = {
        "form": form,
        "next": next_path(request, ""),
        "passkeys_on": passkeys.are_on(),
        "sign_up_open": settings.SIGN_UP != invitations.CLOSED,
    }
    return show(request, "sign_in", status=form.status, **context)


@public_page("GET", "POST")
def sign_up(request: HttpRequest) -> HttpResponse:
    """Create an account, with the invitation in the link if sign-up requires one."""
    form = Form(values={name: request.GET.get(name, "") for name in ("email", "invitation")})
    invitation = invitations.find_by_token(request.POST.get("invitation") or request.GET.get("invitation", ""))
    organization = None if invitation is None else invitation.organization
    if request.method == "POST":
        done, form = attempt(request, lambda: _sign_up(request))
        if done is not None and done.user is not None:
            return _enter(request, done.user, organization)
        if done is not None:
            return show(request, "sign_up_sent", email=request.POST.get("email", ""))
    elif find_browser_session(request) is not None:
        return HttpResponseRedirect(_way_on(request))
    invited = bool(form.values.get("invitation"))
    context: dict[str, Any] = {
        "form": form,
        "next": next_path(request, ""),
        "invited": invited,
        "organization": organization,
        "operator_group": "" if invitation is None else invitation.operator_group,
        "closed": settings.SIGN_UP == invitations.CLOSED and not (invitation and invitation.operator_group),
        "invitation_missing": settings.SIGN_UP == invitations.INVITE and not invited,
        "password_rules": PASSWORD_RULES,
    }
    response = show(request, "sign_up", status=form.status, **context)
    # Do not send the link's token to other sites as a referrer.
    response["Referrer-Policy"] = "same-origin"
    return response


@public_page("POST")
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session."""
    response = HttpResponseRedirect(reverse("console:sign_in"))
    end(request, response)
    messages.success(request, gettext("You are signed out."))
    return response


@public_page("GET", "POST")
def forgot_password(request: HttpRequest) -> HttpResponse:
    """Send a link that resets the password."""
    form, sent = Form(), False
    if request.method == "POST":
        done, form = attempt(request, lambda: _ask_for_reset(request))
        sent = done is not None
    return show(request, "forgot_password", status=form.status, form=form, sent=sent)


@public_page("POST")
def send_verification(request: HttpRequest) -> HttpResponse:
    """Send another confirmation e-mail."""
    done, form = attempt(request, lambda: _send_verification(request))
    if done is None:
        messages.error(request, form.problem or gettext("This is not a valid e-mail address."))
    else:
        messages.success(request, gettext("If this address is not confirmed yet, we have sent it another link."))
    return HttpResponseRedirect(reverse("console:sign_in"))


@signed_in_page("GET", "POST")
def accept_invitation(
    request: HttpRequest, visitor: BrowserSession, organization_id: str, invitation_id: str
) -> HttpResponse:
    """Show an invitation to the visitor's address, and accept it."""
    form = Form()
    if request.method == "POST":
        membership, form = attempt(
            request,
            lambda: entrance.accept_invitation(
                user=visitor.user, organization_id=organization_id, identifier=invitation_id
            ),
        )
        if membership is not None:
            messages.success(
                request,
                gettext("You joined {organization} as {role}.").format(
                    organization=membership.organization.name, role=translated(membership.role)
                ),
            )
            return HttpResponseRedirect(reverse("console:overview", args=[membership.organization_id]))
    found = invitations.addressed_to(visitor.user).filter(pk=invitation_id, organization_id=organization_id).first()
    status = form.status if found is not None or form.problem else 404
    return show(request, "invitation", status=status, form=form, invitation=found, user=visitor.user)


@signed_in_page("GET", "POST")
def accept_operator_invitation(request: HttpRequest, visitor: BrowserSession, invitation_id: UUID) -> HttpResponse:
    """Show an invitation to operators that was sent to the visitor's address, and accept it."""
    form = Form()
    if request.method == "POST":
        group, form = attempt(
            request, lambda: entrance.accept_operator_invitation(user=visitor.user, identifier=invitation_id)
        )
        if group is not None:
            return HttpResponseRedirect(reverse("admin:index"))
    found = entrance.find_operator_invitation(visitor.user, invitation_id)
    status = form.status if found is not None or form.problem else 404
    return show(request, "invitation", status=status, form=form, invitation=found, user=visitor.user)


class _SignedUp(NamedTuple):
    """The result of a sign-up; `user` is None until the address is confirmed."""

    user: User | None


def _sign_up(request: HttpRequest) -> _SignedUp:
    return _SignedUp(entrance.sign_up(address=address_of(request), **read_form(request, SignUpShape)))


def _send_verification(request: HttpRequest) -> bool:
    entrance.send_verification(address=address_of(request), **read_form(request, PasswordResetRequestShape))
    return True


def _first_step(request: HttpRequest) -> User:
    """Return the user with a correct password; a second factor may still be required."""
    address = address_of(request)
    if answer := request.POST.get("passkey"):
        return step_up.sign_in_with_passkey(read_answer(answer), address=address)
    fields = read_form(request, SignInShape)
    user = entrance.check_password(email=fields["email"], password=fields["password"], address=address)
    if not two_factor.is_on(user):
        entrance.check_second_factor(user, code=None, passkey=None, address=address)
    return user


def _second_step(request: HttpRequest, token: str) -> HttpResponse:
    user, form = attempt(request, lambda: entrance.find_second_step(token))
    if user is None:
        return show(request, "sign_in", status=400, form=form, next=next_path(request, ""), sign_up_open=False)
    answer = request.POST.get("passkey")
    done, form = attempt(request, lambda: _finish(request, user, answer))
    if done:
        return _enter(request, user)
    return _ask_for_second_factor(request, token, user, form)


def _finish(request: HttpRequest, user: User, answer: str | None) -> bool:
    passkey = read_answer(answer) if answer else None
    code = request.POST.get("code", "").strip()[:32]
    entrance.check_second_factor(user, code=code or None, passkey=passkey, address=address_of(request))
    return True


def _ask_for_second_factor(request: HttpRequest, token: str, user: User, form: Form | None = None) -> HttpResponse:
    form = form or Form()
    context: dict[str, Any] = {
        "form": form,
        "step": token,
        "next": next_path(request, ""),
        "has_app": two_factor.has_app(user),
        "passkeys_on": passkeys.are_on() and user.passkeys.exists(),
    }
    return show(request, "second_factor", status=form.status, **context)


def _ask_for_reset(request: HttpRequest) -> bool:
    entrance.request_password_reset(address=address_of(request), **read_form(request, PasswordResetRequestShape))
    return True


def _enter(request: HttpRequest, user: User, organization: Organization | None = None) -> HttpResponse:
    """Redirect a signed-in user: to the requested page, else to the organization of their invitation, else home."""
    home = reverse("console:home") if organization is None else reverse("console:overview", args=[organization.id])
    if organization is None and user.is_staff and not organizations_of(user):
        home = reverse("admin:index")
    response = HttpResponseRedirect(next_path(request, home))
    begin(request, response, user)
    return response


def _way_on(request: HttpRequest) -> str:
    return next_path(request, reverse("console:home"))


PATHS = [
    path("sign-in", sign_in, name="sign_in"),
    path("sign-up", sign_up, name="sign_up"),
    path("sign-out", sign_out, name="sign_out"),
    path("forgot-password", forgot_password, name="forgot_password"),
    path("send-verification", send_verification, name="send_verification"),
    path("invitations/operators/<uuid:invitation_id>", accept_operator_invitation, name="accept_operator_invitation"),
    path("invitations/<uuid:organization_id>/<uuid:invitation_id>", accept_invitation, name="accept_invitation"),
]
