"""Programs that people sign in: the page that asks for consent, and the list of consents.

A person signs a program in for a project with a budget, or gives it an API key. The page names the program and its
redirect address, and redirects only after a click. `apps.oauth` validates the request.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final
from urllib.parse import urlsplit

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path
from django.utils.translation import gettext
from oauthlib.common import add_params_to_uri
from rest_framework import serializers

from apps.console.browser_session import BrowserSession
from apps.console.forms import Form, attempt, error_words, read_form
from apps.console.pages.keys import PER_PERIOD
from apps.console.rendering import show
from apps.console.visit import MAX_NEXT, POLICY, lead_to, signed_in_page, workspace_page
from apps.console.workspace import Workspace, organizations_of
from apps.kernel.errors import Forbidden, InvalidRequest
from apps.kernel.money import plain
from apps.kernel.pages.languages import gettext_lazy
from apps.kernel.rest.origin import address_of
from apps.kernel.rest.serializers import CamelSerializer, ChoiceField, DecimalTextField, TextField
from apps.keys.models import ApiKey
from apps.oauth import actions
from apps.oauth.access import NO_CONSENT, access_consent, access_consents, consents_of
from apps.oauth.authorization import (
    S256,
    AuthorizationRequest,
    Unanswerable,
    check_parameters,
    is_challenge,
    issue_code,
    read_authorization_request,
)
from apps.oauth.models import Consent, OAuthClient
from apps.oauth.redirects import form_source, redirect_problem, scheme_of, shown_host
from apps.oauth.resources import SCOPES, resource_of
from apps.organizations.credentials.attempt_rate_limiter import AttemptLimit, count_attempt
from apps.organizations.models import Project, User

_IN_ALL: Final = "all"
PERIODS: Final = (
    *((value, PER_PERIOD[value]) for value in reversed(ApiKey.Period)),
    (_IN_ALL, gettext_lazy("in all")),
)
# The proposed budget in USD per month.
_BUDGET: Final = Decimal(10)
# Limit by client address. Without a session nothing is counted: the visitor is sent to sign in.
AUTHORIZE_PER_ADDRESS: Final = AttemptLimit("oauth-authorize:address", 60)
ALLOW, REFUSE = "allow", "refuse"


class ConsentShape(CamelSerializer):
    """The consent form: project and budget; without a budget only the organization's credits limit the program."""

    project_id = TextField(max_length=100)
    budget = DecimalTextField(required=False, allow_null=True)
    period = ChoiceField(PERIODS)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Return project and terms. Raises ValidationError."""
        budget, period = attrs.get("budget"), attrs["period"]
        if budget == 0:
            raise serializers.ValidationError({"budget": ["Must be more than 0; or refuse the program"]})
        if budget is None or period == _IN_ALL:
            terms = actions.KeyTerms(budget, None, "")
        else:
            terms = actions.KeyTerms(None, budget, period)
        return {"project_id": attrs["project_id"], "terms": terms}


class _Return(HttpResponseRedirect):
    """A redirect back to a program, whose URL scheme was checked."""

    def __init__(self, url: str) -> None:
        self.allowed_schemes = [scheme_of(url)]
        super().__init__(url)


@signed_in_page("GET", "POST")
def authorize(request: HttpRequest, visitor: BrowserSession) -> HttpResponse:
    """Show a program's request, and answer it."""
    count_attempt((AUTHORIZE_PER_ADDRESS, address_of(request)))
    try:
        _require_short(request)
        asked = read_authorization_request(request)
    except Unanswerable as error:
        return _show_problem(request, visitor, error)
    form = Form()
    if request.method == "POST":
        if _decision(request) == REFUSE:
            return _lead_back(asked.redirect_uri, asked.refusal_url)
        consent, form = attempt(request, lambda: _consent(request, visitor.user, asked))
        if consent is not None:
            return _lead_back(asked.redirect_uri, issue_code(request, asked, consent, visitor.user))
    described = asked.client.registration_source == OAuthClient.RegistrationSource.CIMD
    context = {
        "name": str(asked.client),
        "described_at": urlsplit(asked.client.client_id).netloc if described else "",
        "scopes": [SCOPES[scope] for scope in asked.scopes],
        "resource": asked.resource,
    }
    return _show_question(
        request, visitor, form, asked.redirect_uri, _given_before(visitor.user, asked.client), **context
    )


@signed_in_page("GET", "POST")
def authorize_key(request: HttpRequest, visitor: BrowserSession) -> HttpResponse:
    """Ask whether a program may have an API key, and redirect back with the code that it exchanges for one."""
    count_attempt((AUTHORIZE_PER_ADDRESS, address_of(request)))
    try:
        _require_short(request)
        callback_url, challenge = _read_key_request(request)
    except Unanswerable as error:
        return _show_problem(request, visitor, error)
    form = Form()
    if request.method == "POST":
        if _decision(request) == REFUSE:
            return _lead_back(callback_url, str(add_params_to_uri(callback_url, [("error", "access_denied")])))
        code, form = attempt(request, lambda: _key_code(request, visitor.user, callback_url, challenge))
        if code is not None:
            return _lead_back(callback_url, str(add_params_to_uri(callback_url, [("code", code)])))
    return _show_question(request, visitor, form, callback_url, None, name=shown_host(callback_url), gives_key=True)


def _read_key_request(request: HttpRequest) -> tuple[str, str]:
    """Return the callback URL and the code challenge. Raises Unanswerable."""
    query = request.GET
    check_parameters(query)
    callback_url, challenge = query.get("callback_url", ""), query.get("code_challenge", "")
    if problem := redirect_problem(callback_url):
        raise Unanswerable(
            gettext("The program's address is not valid: {problem}").format(problem=problem), param="callback_url"
        )
    if query.get("code_challenge_method") != S256:
        raise Unanswerable(
            gettext("The program must ask with code_challenge_method S256"), param="code_challenge_method"
        )
    if not is_challenge(challenge):
        raise Unanswerable(
            gettext("The program's code_challenge must be 43 characters of base64url"), param="code_challenge"
        )
    return callback_url, challenge


def _require_short(request: HttpRequest) -> None:
    """Raise Unanswerable for a request that is too long to survive the sign-in."""
    if len(request.get_full_path()) > MAX_NEXT:
        raise Unanswerable(gettext("The program's request is longer than {number} characters").format(number=MAX_NEXT))


def _decision(request: HttpRequest) -> str:
    """Return the chosen answer; a form without a choice counts as refused."""
    return ALLOW if request.POST.get("decision") == ALLOW else REFUSE


def _consent(request: HttpRequest, user: User, asked: AuthorizationRequest) -> Consent:
    fields = _fields_of(request, user)
    return actions.give_consent(user=user, client=asked.client, scopes=asked.scopes, resource=asked.resource, **fields)


def _key_code(request: HttpRequest, user: User, callback_url: str, challenge: str) -> str:
    fields = _fields_of(request, user)
    return actions.issue_key_code(user=user, callback_url=callback_url, code_challenge=challenge, **fields)


def _fields_of(request: HttpRequest, user: User) -> dict[str, Any]:
    """Return the form's values. Raises InvalidFields, and InvalidRequest for a project that it did not offer."""
    fields = read_form(request, ConsentShape)
    if fields["project_id"] not in {identifier for identifier, _ in _projects_of(user)}:
        raise InvalidRequest("Choose one of the projects", param="projectId")
    return fields


def _projects_of(user: User) -> list[tuple[str, str]]:
    """Return the projects that a user may choose from, as ids and names."""
    organizations = organizations_of(user)
    rows = Project.objects.filter(organization__in=organizations, status=Project.Status.ACTIVE)
    rows = rows.select_related("organization").order_by("organization__name", "created_at", "id")
    return [(str(one.id), f"{one.organization.name}: {one.name}") for one in rows]


def _given_before(user: User, client: OAuthClient) -> Consent | None:
    return consents_of(user).filter(client=client).first()


def _show_question(
    request: HttpRequest,
    visitor: BrowserSession,
    form: Form,
    leads_to: str,
    before: Consent | None,
    **context: Any,
) -> HttpResponse:
    key = before.api_key if before else None
    budget = _BUDGET if key is None else key.period_limit if key.period else key.usage_limit
    values = {
        "projectId": str(before.project_id) if before else "",
        "budget": "" if budget is None else plain(budget),
        "period": (key.period or _IN_ALL) if key else ApiKey.Period.MONTH,
        **form.values,
    }
    shown = Form(values, form.errors, form.problem)
    response = show(
        request,
        "consent",
        status=form.status,
        form=shown,
        visitor=visitor.user,
        leads_to=shown_host(leads_to),
        projects=_projects_of(visitor.user),
        periods=PERIODS,
        **context,
    )
    # Browsers apply the form's policy to the redirect, too.
    return _may_lead(response, f"form-action 'self' {form_source(leads_to)}")


def _show_problem(request: HttpRequest, visitor: BrowserSession, error: Unanswerable) -> HttpResponse:
    """Show the problem; if the program has a valid address, offer a link back to it."""
    back = error.return_url
    response = show(
        request,
        "consent_problem",
        status=400,
        visitor=visitor.user,
        problem=error_words(error.message),
        back=back,
        leads_to=shown_host(back) if back else "",
    )
    return _may_lead(response, "form-action 'self'")


def _lead_back(redirect_uri: str, url: str) -> HttpResponse:
    """Redirect to an address that extends the redirect URI's query. Raises Forbidden for another."""
    if not url.startswith(redirect_uri.partition("?")[0]):
        raise Forbidden("This is not the program's address")
    return _may_lead(_Return(url), f"form-action 'self' {form_source(redirect_uri)}")


def _may_lead(response: HttpResponse, form_action: str) -> HttpResponse:
    """Allow the page's form to redirect to these places only."""
    response["Content-Security-Policy"] = POLICY.replace("form-action 'self'", form_action)
    return response


@workspace_page("GET", "POST")
def programs(request: HttpRequest, workspace: Workspace) -> HttpResponse:
    """List the programs that the visitor signed in, or everyone's for admins; revoke one."""
    form = Form()
    if request.method == "POST":
        done, form = attempt(request, lambda: _revoke(request, workspace))
        if done is not None:
            messages.success(request, done)
            return lead_to("programs", workspace.organization.id)
    rows = access_consents(workspace.user, workspace.organization.id)
    context = {"form": form, "programs": rows, "resource": resource_of("/mcp")}
    return show(request, "programs", workspace, entry="programs", status=form.status, **context)


def _revoke(request: HttpRequest, workspace: Workspace) -> str:
    """Revoke a consent and return the message. Raises NotFound."""
    consent = access_consent(workspace.user, request.POST.get("program", ""))
    workspace.require_own(consent.project.organization_id, NO_CONSENT)
    actions.revoke_consent(consent=consent)
    return gettext("{client} was signed out, and its API key was revoked.").format(client=consent.client)


PATHS = [path("o/<str:organization_id>/programs", programs, name="programs")]
