"""The map of the house: every path, written by hand."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.urls import path
from django.views.generic import RedirectView

from apps.billing import payment_views as payments
from apps.billing import views as billing
from apps.billing import webhooks
from apps.catalog import catalog_cache
from apps.catalog import views as catalog
from apps.catalog.offers import CatalogProvider
from apps.gateway.endpoints.chat_completions import chat_completions
from apps.gateway.endpoints.images import images_edits, images_generations
from apps.gateway.endpoints.messages import count_tokens, messages
from apps.gateway.endpoints.public import public_but_for_wrong_keys
from apps.gateway.endpoints.route_explain import route_explain
from apps.gateway.endpoints.serving import view_of
from apps.guardrails import views as guardrails
from apps.keys import provider_views as provider_keys
from apps.keys import views as keys
from apps.logs import views as logs
from apps.organizations import account_views as accounts
from apps.organizations import audit_views as audit_logs
from apps.organizations import two_factor_views as two_factor
from apps.organizations import views as organizations
from gateway_project import health
from gateway_project.openapi import views as openapi


def _find_provider(provider_id: str) -> CatalogProvider | None:
    """Show the keys' app a provider of the catalog, which it cannot see itself."""
    return catalog_cache.current().providers.get(provider_id)


urlpatterns = [
    path("", health.health),
    path("metrics", health.metrics),
    path("openapi.json", openapi.openapi),
    path("docs", openapi.docs),
    path("v1/chat/completions", view_of(chat_completions)),
    path("v1/images/generations", view_of(images_generations)),
    path("v1/images/edits", view_of(images_edits)),
    path("v1/messages", view_of(messages)),
    path("v1/route/explain", view_of(route_explain)),
    path("v1/messages/count_tokens", view_of(count_tokens)),
    path("v1/models", public_but_for_wrong_keys(catalog.list_models)),
    path("v1/models/<path:model_id>", public_but_for_wrong_keys(catalog.read_model)),
    path("auth/sign-up/email", organizations.SignUp.as_view()),
    path("auth/sign-in/email", organizations.SignIn.as_view()),
    path("auth/verify-email", accounts.VerifyEmail.as_view()),
    path("auth/send-verification-email", accounts.SendVerificationEmail.as_view()),
    path("auth/two-factor", two_factor.TwoFactorEndpoint.as_view()),
    path("auth/two-factor/confirm", two_factor.ConfirmTwoFactor.as_view()),
    path("auth/two-factor/disable", two_factor.DisableTwoFactor.as_view()),
    path("auth/sign-out", organizations.SignOut.as_view()),
    path("auth/get-session", organizations.GetSession.as_view()),
    path("organization", organizations.Organizations.as_view()),
    path("organization/<str:organization_id>", organizations.OneOrganization.as_view()),
    path("organization/<str:organization_id>/projects", organizations.OrganizationProjects.as_view()),
    path("organization/<str:organization_id>/members", organizations.Members.as_view()),
    path("organization/<str:organization_id>/members/<str:member_id>", organizations.OneMember.as_view()),
    path("organization/<str:organization_id>/invitations", accounts.Invitations.as_view()),
    path("organization/<str:organization_id>/invitations/<str:invitation_id>", accounts.OneInvitation.as_view()),
    path(
        "organization/<str:organization_id>/invitations/<str:invitation_id>/accept", accounts.AcceptInvitation.as_view()
    ),
    path("organization/<str:organization_id>/transactions", billing.Transactions.as_view()),
    path("organization/<str:organization_id>/payment-methods", payments.PaymentMethods.as_view()),
    path("organization/<str:organization_id>/payment-methods/setup", payments.CardSetup.as_view()),
    path(
        "organization/<str:organization_id>/payment-methods/<str:payment_method_id>",
        payments.OnePaymentMethod.as_view(),
    ),
    path(
        "organization/<str:organization_id>/payment-methods/<str:payment_method_id>/default",
        payments.DefaultPaymentMethod.as_view(),
    ),
    path("organization/<str:organization_id>/top-ups", payments.TopUps.as_view()),
    path("organization/<str:organization_id>/subscription", payments.ProSubscription.as_view()),
    path("organization/<str:organization_id>/referral-stats", organizations.ReferralStats.as_view()),
    path("projects", organizations.Projects.as_view()),
    path("projects/<str:project_id>", organizations.OneProject.as_view()),
    path("keys/api", keys.ApiKeys.as_view()),
    path("keys/api/<str:key_id>", keys.OneApiKey.as_view()),
    path("keys/api/limit/<str:key_id>", keys.ApiKeyLimit.as_view()),
    path("keys/api/<str:key_id>/iam", keys.IamRules.as_view()),
    path("keys/api/<str:key_id>/iam/<str:rule_id>", keys.OneIamRule.as_view()),
    path("keys/provider", provider_keys.ProviderKeys.as_view(find_provider=_find_provider)),
    path("keys/provider/<str:key_id>", provider_keys.OneProviderKey.as_view()),
    path("guardrails/system-rules", guardrails.SystemRules.as_view()),
    path("guardrails/config/<str:organization_id>", guardrails.GuardrailConfiguration.as_view()),
    path("guardrails/config/<str:organization_id>/reset", guardrails.GuardrailReset.as_view()),
    path("guardrails/rules/<str:organization_id>", guardrails.GuardrailRules.as_view()),
    path("guardrails/rules/<str:organization_id>/<str:rule_id>", guardrails.OneGuardrailRule.as_view()),
    path("guardrails/violations/<str:organization_id>", guardrails.GuardrailViolations.as_view()),
    path("guardrails/stats/<str:organization_id>", guardrails.GuardrailStats.as_view()),
    path("guardrails/test/<str:organization_id>", guardrails.GuardrailTest.as_view()),
    path("audit-logs/<str:organization_id>", audit_logs.AuditLogs.as_view()),
    path("logs", logs.Logs.as_view()),
    path("logs/export", logs.LogsExport.as_view()),
    path("logs/unique-models", logs.UniqueModels.as_view()),
    path("logs/<str:log_id>", logs.Log.as_view()),
    path("activity", logs.Activity.as_view()),
    path("activity/export", logs.ActivityExport.as_view()),
    path("admin", RedirectView.as_view(url="/admin/")),
    path("admin/", admin.site.urls),
]
if settings.STRIPE_WEBHOOK_SECRETS:
    # Without a secret nobody could tell the processor's messages from others'.
    urlpatterns.append(path("webhooks/stripe", webhooks.stripe))

handler400 = "apps.kernel.rest.handlers.bad_request"
handler403 = "apps.kernel.rest.handlers.forbidden"
handler404 = "apps.kernel.rest.handlers.not_found"
handler500 = "apps.kernel.rest.handlers.failed"
