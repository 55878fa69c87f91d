"""Pages behind the links in e-mails: each has a form that sends the link's token.

Opening a link changes nothing and reads nothing, because mail scanners open every link. The pages load no other
resources and send no referrer, so the token in their address does not leak.
"""

from __future__ import annotations

import secrets

from django import forms
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from apps.kernel.errors import RateLimited
from apps.kernel.pages.languages import gettext_lazy, in_page_language, translated
from apps.kernel.rest.origin import address_of
from apps.organizations import actions
from apps.organizations.accounts import account_actions
from apps.organizations.credentials import attempt_rate_limiter
from apps.organizations.credentials.email_tokens import MAX_TOKEN, find_unverified, find_user_to_reset
from apps.organizations.serializers import MAX_PASSWORD

_NOT_GOOD = gettext_lazy("This link was used or has expired. Request another one.")


class TokenForm(forms.Form):
    """The token of the link in a hidden field."""

    token = forms.CharField(max_length=MAX_TOKEN, widget=forms.HiddenInput)


class PasswordForm(TokenForm):
    """The token and the new password."""

    password = forms.CharField(
        label=gettext_lazy("New password"),
        max_length=MAX_PASSWORD,
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password", "autofocus": True}),
    )

    def clean_password(self) -> str:
        """Validate the password. Raises ValidationError."""
        password: str = self.cleaned_data["password"]
        if "\x00" in password:
            raise ValidationError(gettext("A password must not contain a NUL character."))
        validate_password(password, find_user_to_reset(self.cleaned_data.get("token", "")))
        return password


# The token authorizes the request; no cookie is used here, and without a referrer browsers send no origin either.
@csrf_exempt
@require_http_methods(["GET", "HEAD", "POST"])
@in_page_language
def verify_email(request: HttpRequest) -> HttpResponse:
    """Confirm an e-mail address."""
    title, button = gettext("Confirm your e-mail address"), gettext("Confirm")
    if request.method != "POST":
        return _page(request, title, _begun(request, TokenForm), button)
    if refused := _throttled(request, attempt_rate_limiter.VERIFY_PER_ADDRESS, title):
        return refused
    form = TokenForm(request.POST)
    user = find_unverified(form.cleaned_data["token"]) if form.is_valid() else None
    if user is None or not actions.verify_email(user=user):
        return _page(request, title, text=_NOT_GOOD, status=400)
    return _page(request, title, text=gettext("Your e-mail address is confirmed. You can close this page."))


@csrf_exempt
@require_http_methods(["GET", "HEAD", "POST"])
@in_page_language
def reset_password(request: HttpRequest) -> HttpResponse:
    """Choose another password."""
    title, button = gettext("Choose another password"), gettext("Change the password")
    if request.method != "POST":
        return _page(request, title, _begun(request, PasswordForm), button)
    if refused := _throttled(request, attempt_rate_limiter.RESET_PER_ADDRESS, title):
        return refused
    form = PasswordForm(request.POST)
    if not form.is_valid():
        if "token" in form.errors:
            return _page(request, title, text=_NOT_GOOD, status=400)
        return _page(request, title, form, button, status=400)
    if not actions.reset_password(token=form.cleaned_data["token"], password=form.cleaned_data["password"]):
        return _page(request, title, text=_NOT_GOOD, status=400)
    return _page(
        request, title, text=gettext("Your password was changed, and all sessions were ended. You can close this page.")
    )


@csrf_exempt
@require_http_methods(["GET", "HEAD", "POST"])
@in_page_language
def change_email(request: HttpRequest) -> HttpResponse:
    """Confirm the new e-mail address of an account."""
    title, button = gettext("Confirm your new e-mail address"), gettext("Confirm")
    if request.method != "POST":
        return _page(request, title, _begun(request, TokenForm), button)
    if refused := _throttled(request, attempt_rate_limiter.VERIFY_PER_ADDRESS, title):
        return refused
    form = TokenForm(request.POST)
    if not form.is_valid() or not account_actions.change_email(token=form.cleaned_data["token"]):
        return _page(request, title, text=_NOT_GOOD, status=400)
    return _page(request, title, text=gettext("Your e-mail address was changed. Sign in with it from now on."))


def _begun(request: HttpRequest, form: type[TokenForm]) -> TokenForm:
    """Return the form with the token of the link, valid or not."""
    return form(initial={"token": request.GET.get("token", "")[:MAX_TOKEN]})


def _throttled(request: HttpRequest, rate: attempt_rate_limiter.AttemptLimit, title: str) -> HttpResponse | None:
    try:
        attempt_rate_limiter.count_attempt((rate, address_of(request)))
    except RateLimited as error:
        answer = _page(request, title, text=f"{translated(error.message)}.", status=429)
        answer["Retry-After"] = str(int(error.retry_after or 0) + 1)
        return answer
    return None


def _page(
    request: HttpRequest,
    title: str,
    form: TokenForm | None = None,
    button: str = "",
    *,
    text: str = "",
    status: int = 200,
) -> HttpResponse:
    nonce = secrets.token_urlsafe(16)
    context = {"title": title, "form": form, "button": button, "text": text, "nonce": nonce, "path": request.path}
    page = render(request, "mail_page.html", context, status=status)
    page["Referrer-Policy"] = "no-referrer"
    page["Content-Security-Policy"] = (
        f"default-src 'none'; style-src 'nonce-{nonce}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    return page
