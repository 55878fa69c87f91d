"""Clients, consents, codes and tokens in the Django admin: to be looked at; a consent is revoked by its button.

No secret is there to be seen: the tables have digests, which are left out. Must never write: `actions.py` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.apps import apps
from django.contrib import admin

from apps.kernel.admin import LongTableAdmin, RecordAdmin
from apps.oauth import actions
from apps.oauth.models import AccessToken, AuthorizationCode, Consent, KeyCode, OAuthClient, RefreshToken
from apps.organizations.admin_buttons import ButtonQuestion, ButtonsAdmin, Done, button
from apps.organizations.organization_tabs import link_to

# The library registers its tables, and those that stand in their place, under pages of its own.
_TABLES: list[Any] = [*apps.get_app_config("oauth2_provider").get_models()]
for _model in (*_TABLES, OAuthClient, AuthorizationCode, AccessToken, RefreshToken):
    if admin.site.is_registered(_model):
        admin.site.unregister(_model)


class RevokeConsentQuestion(ButtonQuestion):
    """Whether a consent is to end."""

    text = (
        "{row.client} is signed out of {row.project}: its tokens and its API key end. This cannot be undone. Its "
        "log and its costs stay."
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
    """End a consent for good."""
    actions.revoke_consent(consent=consent)
    return Done(f"{consent.client} was signed out")


@admin.register(Consent)
class ConsentAdmin(ButtonsAdmin, RecordAdmin):
    """Which programs may ask in whose name."""

    actions_detail = ("revoke",)
    revoke = revoke
    list_display = ("client", "person", "project_link", "scope", "created_at", "last_used_at", "revoked_at")
    list_select_related = ("client", "user", "project__organization")
    search_fields = ("id__exact", "client__name", "user__email")
    search_help_text = "A part of a program's name or an address; or an exact id"
    sortable_by = ()
    ordering = ("-id",)
    help_texts = {
        "client": "The program.",
        "scope": "What the program may do.",
        "last_used_at": "When it was last given a token (UTC); empty: never.",
        "revoked_at": "When the consent ended (UTC); empty: it stands.",
    }

    @admin.display(description="Signed in by")
    def person(self, row: Consent) -> str:
        """Return a link to who consented."""
        return link_to(row.user)

    @admin.display(description="Project")
    def project_link(self, row: Consent) -> str:
        """Return a link to the project."""
        return link_to(row.project)


@admin.register(OAuthClient)
class ClientAdmin(RecordAdmin):
    """Programs that have asked for consent, or registered to."""

    list_display = ("name", "client_id", "registration_source", "created")
    list_filter = ("registration_source",)
    search_fields = ("client_id", "name")
    search_help_text = "A part of a program's name or id"
    fields = ("name", "client_id", "registration_source", "redirect_uris", "cimd_expires_at", "created", "updated")
    sortable_by = ()
    ordering = ("-id",)
    help_texts = {
        "client_id": "What the program calls itself: an id that it registered, or the address of its description.",
    }


class _GivenAdmin(LongTableAdmin):
    """What was given for a consent."""

    exclude = ("code", "code_challenge", "token_checksum")
    list_select_related = ("consent__client",)
    owners = ("consent_id",)

    def _find(self, queryset: Any, identifier: Any) -> Any:
        return queryset.filter(consent_id=identifier)


@admin.register(AuthorizationCode)
class AuthorizationCodeAdmin(_GivenAdmin):
    """One row a code."""

    list_display = ("id", "consent", "created", "expires", "used_at")
    help_texts = {
        "application": "The program that it is for.",
        "expires": "When it is no longer taken (UTC).",
        "redirect_uri": "Where the browser brought it.",
        "scope": "What the program may do.",
        "code_challenge_method": "How the program proves that it asked for the code (PKCE); always S256.",
        "resource": "What its tokens are for: the API or the MCP endpoint.",
        "consent": "The consent that it was given for.",
        "used_at": "When it was exchanged (UTC); empty: not yet.",
    }


@admin.register(AccessToken)
class AccessTokenAdmin(_GivenAdmin):
    """One row an access token."""

    list_display = ("id", "consent", "resource", "scope", "created", "expires")
    help_texts = {
        "source_refresh_token": "The refresh token that it was given for; empty: a code.",
        "application": "The program that has it.",
        "expires": "When it is no longer taken (UTC).",
        "scope": "What the program may do with it.",
        "resource": "What it is for: the API or the MCP endpoint.",
        "consent": "The consent that it was given for.",
    }


@admin.register(RefreshToken)
class RefreshTokenAdmin(_GivenAdmin):
    """One row a refresh token; those that were used are kept for a while."""

    list_display = ("id", "consent", "resource", "created", "revoked")
    help_texts = {
        "application": "The program that has it.",
        "access_token": "The access token that came with it; empty once that is gone.",
        "resource": "What its tokens are for: the API or the MCP endpoint.",
        "revoked": "When it was used or revoked (UTC); empty: it is good.",
        "consent": "The consent that it was given for.",
    }


@admin.register(KeyCode)
class KeyCodeAdmin(LongTableAdmin):
    """One row a code that a program exchanges for an API key."""

    exclude = ("code", "code_challenge")
    list_display = ("id", "user", "project", "callback_url", "expires", "used_at")
    list_select_related = ("user", "project__organization")
    owners = ("user_id", "project_id")
    help_texts = {
        "callback_url": "Where the browser brings the code.",
        "usage_limit": "USD that the key may spend in all; empty: no limit but the organization's balance.",
        "period_limit": "USD that the key may spend in each period; empty: no such limit.",
        "period": "When the periodic limit starts anew, in UTC; empty without one.",
        "expires": "When it is no longer taken (UTC).",
        "used_at": "When it was exchanged for a key (UTC); empty: not yet.",
        "api_key": "The key that it was exchanged for; empty: none yet.",
    }
