"""OAuth clients, consents, codes and tokens in the admin: read-only, with a button to revoke a consent.

The tables hold digests only, which are not shown either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.apps import apps
from django.contrib import admin

from apps.kernel.pages.admin import LongTableAdmin, RecordAdmin
from apps.oauth import actions
from apps.oauth.models import AccessToken, AuthorizationCode, Consent, KeyCode, OAuthClient, RefreshToken
from apps.organizations.operators.admin_buttons import ButtonQuestion, ButtonsAdmin, Done, button
from apps.organizations.operators.organization_tabs import link_to

# The library registers its own admin pages for its tables and their replacements.
_TABLES: list[Any] = [*apps.get_app_config("oauth2_provider").get_models()]
for _model in (*_TABLES, OAuthClient, AuthorizationCode, AccessToken, RefreshToken):
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)


class RevokeConsentQuestion(ButtonQuestion):
    """Asks whether to revoke a consent."""

    text = (
        "{row.client} is signed out of {row.project}: its tokens and its API key end. This cannot be undone. Its "
        "log and costs stay."
    )


def _is_living(row: Consent) -> bool:
    return row.revoked_at is None


@button(
    "Revoke",
    permission="oauth.delete_consent",
    icon="block",
    danger=True,
    question=RevokeConsentQuestion,
    offered=_is_living,
)
def revoke(page: Any, consent: Consent, fields: Mapping[str, Any]) -> Done:
    """Revoke a consent permanently."""
    actions.revoke_consent(consent=consent)
    return Done(f"{consent.client} was signed out")


@admin.register(Consent)
class ConsentAdmin(ButtonsAdmin, RecordAdmin):
    """Programs and the users who signed them in."""

    actions_detail = ("revoke",)
    revoke = revoke
    list_display = ("client", "person", "project_link", "scope", "created_at", "last_used_at", "revoked_at")
    list_select_related = ("client", "user", "project__organization")
    search_fields = ("id__exact", "client__name", "user__email")
    search_help_text = "Part of a program's name or an address; or an exact id"
    sortable_by = ()
    ordering = ("-id",)
    help_texts = {
        "client": "The program.",
        "scope": "The program's permissions.",
        "last_used_at": "When it last received a token (UTC); empty: never.",
        "revoked_at": "When the consent ended (UTC); empty: it is in force.",
    }

    @admin.display(description="Signed in by")
    def person(self, row: Consent) -> str:
        """Return a link to the user."""
        return link_to(row.user)

    @admin.display(description="Project")
    def project_link(self, row: Consent) -> str:
        """Return a link to the project."""
        return link_to(row.project)


@admin.register(OAuthClient)
class ClientAdmin(RecordAdmin):
    """Programs that requested consent or registered."""

    list_display = ("name", "client_id", "registration_source", "created")
    list_filter = ("registration_source",)
    search_fields = ("client_id", "name")
    search_help_text = "Part of a program's name or id"
    fields = ("name", "client_id", "registration_source", "redirect_uris", "cimd_expires_at", "created", "updated")
    sortable_by = ()
    ordering = ("-id",)
    help_texts = {
        "client_id": "The program's id: registered, or the address of its description.",
    }


class _GivenAdmin(LongTableAdmin):
    """Codes and tokens of a consent."""

    exclude = ("code", "code_challenge", "token_checksum")
    list_select_related = ("consent__client",)
    owners = ("consent_id",)

    def _find(self, queryset: Any, identifier: Any) -> Any:
        return queryset.filter(consent_id=identifier)


@admin.register(AuthorizationCode)
class AuthorizationCodeAdmin(_GivenAdmin):
    """Authorization codes."""

    list_display = ("id", "consent", "created", "expires", "used_at")
    help_texts = {
        "application": "The program that receives it.",
        "expires": "When it expires (UTC).",
        "redirect_uri": "Where the browser took it.",
        "scope": "The program's permissions.",
        "code_challenge_method": "How the program proves that it asked for the code (PKCE); always S256.",
        "resource": "The API or the MCP endpoint that its tokens are for.",
        "consent": "The consent that it belongs to.",
        "used_at": "When it was exchanged (UTC); empty: not yet.",
    }


@admin.register(AccessToken)
class AccessTokenAdmin(_GivenAdmin):
    """Access tokens."""

    list_display = ("id", "consent", "resource", "scope", "created", "expires")
    help_texts = {
        "source_refresh_token": "The refresh token that it was exchanged for; empty: a code.",
        "application": "The program that has it.",
        "expires": "When it expires (UTC).",
        "scope": "The program's permissions with it.",
        "resource": "The API or the MCP endpoint that it is for.",
        "consent": "The consent that it belongs to.",
    }


@admin.register(RefreshToken)
class RefreshTokenAdmin(_GivenAdmin):
    """Refresh tokens; used ones are kept for a while."""

    list_display = ("id", "consent", "resource", "created", "revoked")
    help_texts = {
        "application": "The program that has it.",
        "access_token": "The access token that came with it; empty once that is gone.",
        "resource": "The API or the MCP endpoint that its tokens are for.",
        "revoked": "When it was used or revoked (UTC); empty: it is valid.",
        "consent": "The consent that it belongs to.",
    }


@admin.register(KeyCode)
class KeyCodeAdmin(LongTableAdmin):
    """Codes that programs exchange for API keys."""

    exclude = ("code", "code_challenge")
    list_display = ("id", "user", "project", "callback_url", "expires", "used_at")
    list_select_related = ("user", "project__organization")
    owners = ("user_id", "project_id")
    help_texts = {
        "callback_url": "Where the browser brings the code.",
        "usage_limit": "Maximum total spending of the key in USD; empty: no limit but the organization's balance.",
        "period_limit": "Maximum spending of the key in USD per period; empty: no limit.",
        "period": "Period of the limit, in UTC; empty without one.",
        "expires": "When it expires (UTC).",
        "used_at": "When it was exchanged for a key (UTC); empty: not yet.",
        "api_key": "The key that it was exchanged for; empty: none yet.",
    }
