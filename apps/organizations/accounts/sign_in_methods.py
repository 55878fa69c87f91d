"""The admin page where operators manage their sign-in methods; the console uses the same forms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.views.decorators.http import require_http_methods
from unfold.widgets import INPUT_CLASSES

from apps.kernel.errors import ApiError
from apps.organizations.accounts.sign_in_method_forms import act, answer_question, state_of
from apps.organizations.credentials.ceremonies import Holder
from apps.organizations.journal import audit
from apps.organizations.models import AuditEntry, User

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
