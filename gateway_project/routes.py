"""The route table: one row an endpoint, for the URL map, hot routes, error envelopes and rate limits.

`apps.kernel.rest.routes` looks routes up.
"""

from __future__ import annotations

from functools import partial

from django.conf import settings
from django.templatetags.static import static
from django.views.generic import RedirectView

from apps.alerts import views as alerts
from apps.batches import batch_endpoints as batches
from apps.batches import file_endpoints as files
from apps.batches import message_batch_endpoints as message_batches
from apps.batches.kept_pictures import read_picture
from apps.billing import views as billing
from apps.billing import views as payments
from apps.billing import webhooks
from apps.catalog import views as catalog
from apps.console import urls as console
from apps.console.pages import models as model_pages
from apps.console.pages import programs
from apps.gateway.dialects.chat.bedrock.wire import ERRORS as BEDROCK
from apps.gateway.dialects.chat.ollama.wire import ERRORS as OLLAMA
from apps.gateway.endpoints import account, key_management, models, ollama
from apps.gateway.endpoints.chat_completions import (
    chat_completions,
    cohere_chat,
    completions,
    converse,
    converse_stream,
)
from apps.gateway.endpoints.generate_content import MODEL_METHODS, model_method
from apps.gateway.endpoints.messages import count_tokens, messages
from apps.gateway.endpoints.models import public_but_for_wrong_keys, public_with_own_models, read_endpoints, read_model
from apps.gateway.endpoints.responses import count_input_tokens, create_response
from apps.gateway.endpoints.route_explain import route_explain
from apps.gateway.endpoints.specialists import (
    audio_speech,
    audio_transcriptions,
    audio_translations,
    embed,
    embeddings,
    images_edits,
    images_generations,
    moderations,
    rerank,
)
from apps.guardrails import views as guardrails
from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.routes import Route, RouteTable, put_in_force
from apps.keys import provider_views as provider_keys
from apps.keys import views as keys
from apps.limits import views as limits
from apps.log_sinks import views as log_sinks
from apps.logs import views as logs
from apps.mcp import endpoints as mcp
from apps.mcp_servers import views as mcp_servers
from apps.oauth import views as oauth
from apps.organizations import views as organizations
from apps.organizations.accounts import account_views as accounts
from apps.organizations.accounts import mail_pages
from apps.organizations.teams import views as teams
from apps.responses import conversation_endpoints as conversations
from apps.responses.response_endpoints import (
    cancel_response,
    compact_response,
    delete_response,
    list_input_items,
    retrieve_response,
)
from gateway_project.admin_site.pages import admin_urls
from gateway_project.observability import health
from gateway_project.observability.health import front_door, metrics
from gateway_project.openapi import views as openapi

_management = partial(Route, family=Family.MANAGEMENT)
_logs = partial(Route, family=Family.LOGS)
_oauth = partial(Route, family=Family.OAUTH)

_MESSAGE_BATCH = "v1/messages/batches/<str:batch_id>"
_CONVERSATION = "v1/conversations/<str:conversation_id>"
_MODEL_ROUTES = [
    # Path, endpoint, family of errors, family of rate limits, method.
    Route("v1/chat/completions", chat_completions, Family.OPENAI, "chat", "POST"),
    Route("v1/completions", completions, Family.OPENAI, "chat", "POST"),
    Route("v1/embeddings", embeddings, Family.OPENAI, "embeddings", "POST"),
    Route("v2/chat", cohere_chat, Family.OPENAI, "chat", "POST"),
    Route("v2/embed", embed, Family.OPENAI, "embeddings", "POST"),
    Route("v1/rerank", rerank, Family.OPENAI, "rerank", "POST"),
    # Where Cohere's clients ask.
    Route("v2/rerank", rerank, Family.OPENAI, "rerank", "POST"),
    Route("v1/moderations", moderations, Family.OPENAI, "moderations", "POST"),
    Route("v1/images/generations", images_generations, Family.OPENAI, "images", "POST"),
    Route("v1/images/edits", images_edits, Family.OPENAI, "images", "POST"),
    Route("v1/images/files/<str:file_id>", read_picture, Family.OPENAI, method="GET"),
    Route("v1/audio/speech", audio_speech, Family.OPENAI, "audio", "POST"),
    Route("v1/audio/transcriptions", audio_transcriptions, Family.OPENAI, "audio", "POST"),
    Route("v1/audio/translations", audio_translations, Family.OPENAI, "audio", "POST"),
    Route("v1/messages", messages, Family.ANTHROPIC, "messages", "POST"),
    Route("v1/responses", create_response, Family.OPENAI, "chat", "POST"),
    Route("v1/responses/input_tokens", count_input_tokens, Family.OPENAI, method="POST"),
    Route("v1/route/explain", route_explain, Family.OPENAI, method="POST"),
    Route("v1/messages/count_tokens", count_tokens, Family.ANTHROPIC, method="POST"),
    Route("v1/responses/compact", compact_response, Family.OPENAI, "chat", "POST"),
    Route("v1/responses/<str:response_id>", retrieve_response, Family.OPENAI, method="GET"),
    Route("v1/responses/<str:response_id>", delete_response, Family.OPENAI, method="DELETE"),
    Route("v1/responses/<str:response_id>/cancel", cancel_response, Family.OPENAI, method="POST"),
    Route("v1/responses/<str:response_id>/input_items", list_input_items, Family.OPENAI, method="GET"),
    Route("v1/conversations", conversations.create_conversation, Family.OPENAI, method="POST"),
    Route(_CONVERSATION, conversations.retrieve_conversation, Family.OPENAI, method="GET"),
    Route(_CONVERSATION, conversations.update_conversation, Family.OPENAI, method="POST"),
    Route(_CONVERSATION, conversations.delete_conversation, Family.OPENAI, method="DELETE"),
    Route(f"{_CONVERSATION}/items", conversations.list_items, Family.OPENAI, method="GET"),
    Route(f"{_CONVERSATION}/items", conversations.create_items, Family.OPENAI, method="POST"),
    Route(f"{_CONVERSATION}/items/<str:item_id>", conversations.retrieve_item, Family.OPENAI, method="GET"),
    Route(f"{_CONVERSATION}/items/<str:item_id>", conversations.delete_item, Family.OPENAI, method="DELETE"),
    Route("v1/files", files.create_file, Family.OPENAI, method="POST"),
    Route("v1/files", files.list_files, Family.OPENAI, method="GET"),
    Route("v1/files/<str:file_id>", files.retrieve_file, Family.OPENAI, method="GET"),
    Route("v1/files/<str:file_id>", files.delete_file, Family.OPENAI, method="DELETE"),
    Route("v1/files/<str:file_id>/content", files.read_file_content, Family.OPENAI, method="GET"),
    Route("v1/uploads", files.create_upload, Family.OPENAI, method="POST"),
    Route("v1/uploads/<str:upload_id>/parts", files.add_part, Family.OPENAI, method="POST"),
    Route("v1/uploads/<str:upload_id>/complete", files.complete_upload, Family.OPENAI, method="POST"),
    Route("v1/uploads/<str:upload_id>/cancel", files.cancel_upload, Family.OPENAI, method="POST"),
    Route("v1/batches", batches.create_batch, Family.OPENAI, method="POST"),
    Route("v1/batches", batches.list_batches, Family.OPENAI, method="GET"),
    Route("v1/batches/<str:batch_id>", batches.retrieve_batch, Family.OPENAI, method="GET"),
    Route("v1/batches/<str:batch_id>/cancel", batches.cancel_batch, Family.OPENAI, method="POST"),
    Route("v1/messages/batches", message_batches.create_message_batch, Family.ANTHROPIC, method="POST"),
    Route("v1/messages/batches", message_batches.list_message_batches, Family.ANTHROPIC, method="GET"),
    Route(_MESSAGE_BATCH, message_batches.retrieve_message_batch, Family.ANTHROPIC, method="GET"),
    Route(_MESSAGE_BATCH, message_batches.delete_message_batch, Family.ANTHROPIC, method="DELETE"),
    Route(f"{_MESSAGE_BATCH}/cancel", message_batches.cancel_message_batch, Family.ANTHROPIC, method="POST"),
    Route(f"{_MESSAGE_BATCH}/results", message_batches.read_message_batch_results, Family.ANTHROPIC, method="GET"),
    Route("v1/model/info", public_but_for_wrong_keys(catalog.model_info), Family.OPENAI),
    Route("model/info", public_but_for_wrong_keys(catalog.model_info), Family.OPENAI),
    # A management key manages API keys, at OpenRouter's paths.
    Route("v1/keys", key_management.ManagedKeys.as_view(), Family.OPENAI),
    Route("v1/keys/<str:key_hash>", key_management.OneManagedKey.as_view(), Family.OPENAI),
    Route("v1/key", account.current_key, Family.OPENAI),
    Route("v1/credits", account.credits_left, Family.OPENAI),
    Route("v1/generation", account.generation, Family.OPENAI),
    Route("v1beta/models", models.list_google_model_pages, Family.GOOGLE, method="GET"),
    Route("v1beta/models/<path:name>", models.read_google_model, Family.GOOGLE, method="GET"),
    *(
        Route(path, model_method, Family.GOOGLE, "generate_content", "POST")
        for path in (
            "v1beta/models/<path:name>",
            # Some clients write no `models/` before names with a slash; what else they ask for there is nowhere.
            *(f"v1beta/<path:name>:{method}" for method in MODEL_METHODS),
            # Here other clients read models by names that may have a colon.
            *(f"v1/models/<path:name>:{method}" for method in MODEL_METHODS),
            *(
                f"{version}{place}/publishers/<str:publisher>/models/<path:name>"
                for version in ("v1", "v1beta1")
                for place in ("", "/projects/<str:project>/locations/<str:location>")
            ),
        )
    ),
    Route("api/chat", ollama.chat, OLLAMA, "chat", "POST"),
    Route("api/generate", ollama.generate, OLLAMA, "chat", "POST"),
    Route("api/embed", ollama.embed, OLLAMA, "embeddings", "POST"),
    Route("api/embeddings", ollama.embeddings, OLLAMA, "embeddings", "POST"),
    Route("api/tags", ollama.tags, OLLAMA, method="GET"),
    Route("api/show", ollama.show, OLLAMA, method="POST"),
    Route("api/ps", ollama.running, OLLAMA, method="GET"),
    Route("api/version", ollama.version, OLLAMA, method="GET"),
    Route("model/<path:model_id>/converse", converse, BEDROCK, "chat", "POST"),
    Route("model/<path:model_id>/converse-stream", converse_stream, BEDROCK, "chat", "POST"),
    Route(
        "v1/models",
        models.unless_google(public_with_own_models(catalog.list_models), models.list_google_model_pages),
        Family.OPENAI,
    ),
    Route("v1/models/<path:model_id>/endpoints", read_endpoints, Family.OPENAI, method="GET"),
    Route("v1/models/<path:model_id>", read_model, Family.OPENAI, method="GET"),
    Route("mcp", mcp.post_message, Family.MCP, method="POST"),
    Route("mcp", mcp.resume_stream, Family.MCP, method="GET"),
    Route("mcp", mcp.end_session, Family.MCP, method="DELETE"),
    Route("mcp/<str:server>", mcp.post_to_server, Family.MCP, method="POST"),
    Route("mcp/<str:server>", mcp.resume_stream_of_server, Family.MCP, method="GET"),
    Route("mcp/<str:server>", mcp.end_session_of_server, Family.MCP, method="DELETE"),
]
_MANAGEMENT_ROUTES = [
    _management("auth/sign-up/email", organizations.SignUp.as_view()),
    _management("auth/sign-in/email", organizations.SignIn.as_view()),
    _management("auth/verify-email", accounts.VerifyEmail.as_view()),
    _management("auth/request-password-reset", accounts.RequestPasswordReset.as_view()),
    _management("auth/reset-password", accounts.ResetPassword.as_view()),
    _management("auth/send-verification-email", accounts.SendVerificationEmail.as_view()),
    _management("auth/change-password", accounts.ChangePassword.as_view()),
    _management("auth/change-email", accounts.ChangeEmail.as_view()),
    _management("auth/change-email/confirm", accounts.ConfirmEmailChange.as_view()),
    _management("auth/two-factor", accounts.TwoFactorEndpoint.as_view()),
    _management("auth/two-factor/confirm", accounts.ConfirmTwoFactor.as_view()),
    _management("auth/two-factor/disable", accounts.DisableTwoFactor.as_view()),
    _management("auth/sign-in/passkey/options", accounts.PasskeySignInOptions.as_view()),
    _management("auth/sign-in/passkey", accounts.PasskeySignIn.as_view()),
    _management("auth/passkeys", accounts.Passkeys.as_view()),
    _management("auth/passkeys/options", accounts.PasskeyOptions.as_view()),
    _management("auth/passkeys/proof/options", accounts.PasskeyProofOptions.as_view()),
    _management("auth/passkeys/<str:passkey_id>", accounts.OnePasskey.as_view()),
    _management("auth/passkeys/<str:passkey_id>/remove", accounts.RemovePasskey.as_view()),
    _management("auth/sign-out", organizations.SignOut.as_view()),
    _management("auth/get-session", organizations.GetSession.as_view()),
    _management("organization", organizations.Organizations.as_view()),
    _management("organization/<str:organization_id>", organizations.OneOrganization.as_view()),
    _management("organization/<str:organization_id>/cancel-deletion", organizations.CancelDeletion.as_view()),
    _management("organization/<str:organization_id>/projects", organizations.OrganizationProjects.as_view()),
    _management("organization/<str:organization_id>/members", organizations.Members.as_view()),
    _management("organization/<str:organization_id>/members/<str:member_id>", organizations.OneMember.as_view()),
    _management("organization/<str:organization_id>/teams", teams.Teams.as_view()),
    _management("organization/<str:organization_id>/teams/<str:team_id>", teams.OneTeam.as_view()),
    _management("organization/<str:organization_id>/teams/<str:team_id>/members", teams.TeamMembers.as_view()),
    _management(
        "organization/<str:organization_id>/teams/<str:team_id>/members/<str:member_id>", teams.OneTeamMember.as_view()
    ),
    _management("organization/<str:organization_id>/service-accounts", teams.ServiceAccounts.as_view()),
    _management(
        "organization/<str:organization_id>/service-accounts/<str:account_id>", teams.OneServiceAccount.as_view()
    ),
    _management("organization/<str:organization_id>/invitations", accounts.Invitations.as_view()),
    _management("organization/<str:organization_id>/invitations/<str:invitation_id>", accounts.OneInvitation.as_view()),
    _management(
        "organization/<str:organization_id>/invitations/<str:invitation_id>/accept", accounts.AcceptInvitation.as_view()
    ),
    _management("organization/<str:organization_id>/management-keys", organizations.ManagementKeys.as_view()),
    _management(
        "organization/<str:organization_id>/management-keys/<str:key_id>", organizations.OneManagementKey.as_view()
    ),
    _management(
        "organization/<str:organization_id>/management-keys/<str:key_id>/rotate",
        organizations.RotateManagementKey.as_view(),
    ),
    _management("organization/<str:organization_id>/transactions", billing.Transactions.as_view()),
    _management("organization/<str:organization_id>/payment-methods", payments.PaymentMethods.as_view()),
    _management("organization/<str:organization_id>/payment-methods/setup", payments.CardSetup.as_view()),
    _management(
        "organization/<str:organization_id>/payment-methods/<str:payment_method_id>",
        payments.OnePaymentMethod.as_view(),
    ),
    _management(
        "organization/<str:organization_id>/payment-methods/<str:payment_method_id>/default",
        payments.DefaultPaymentMethod.as_view(),
    ),
    _management("organization/<str:organization_id>/top-ups", payments.TopUps.as_view()),
    _management("organization/<str:organization_id>/subscription", payments.ProSubscription.as_view()),
    _management("organization/<str:organization_id>/referral-stats", organizations.ReferralStats.as_view()),
    _management("projects", organizations.Projects.as_view()),
    _management("projects/<str:project_id>", organizations.OneProject.as_view()),
    _management("keys/api", keys.ApiKeys.as_view()),
    _management("keys/api/<str:key_id>", keys.OneApiKey.as_view()),
    _management("keys/api/limit/<str:key_id>", keys.ApiKeyLimit.as_view()),
    _management("keys/api/<str:key_id>/rotate", keys.RotateApiKey.as_view()),
    _management("keys/api/<str:key_id>/iam", keys.IamRules.as_view()),
    _management("keys/api/<str:key_id>/iam/<str:rule_id>", keys.OneIamRule.as_view()),
    _management("keys/provider", provider_keys.ProviderKeys.as_view()),
    _management("keys/provider/<str:key_id>", provider_keys.OneProviderKey.as_view()),
    _management("keys/provider/<str:key_id>/models", provider_keys.ProviderKeyModels.as_view()),
    _management("keys/provider/<str:key_id>/models/probe", provider_keys.ProviderKeyProbe.as_view()),
    _management("keys/provider/<str:key_id>/replicas", provider_keys.ProviderKeyReplicas.as_view()),
    _management("limits", limits.Limits.as_view()),
    _management("limits/preview", limits.LimitPreviews.as_view()),
    _management("limits/<str:limit_id>", limits.OneLimit.as_view()),
    _management("log-sinks", log_sinks.LogSinks.as_view()),
    _management("log-sinks/<str:sink_id>", log_sinks.OneLogSink.as_view()),
    _management("log-sinks/<str:sink_id>/test", log_sinks.LogSinkTest.as_view()),
    _management("alerts", alerts.Alerts.as_view()),
    _management("alerts/read", alerts.AlertsRead.as_view()),
    _management("alerts/preferences", alerts.AlertPreferences.as_view()),
    _management("alerts/rules", alerts.AlertRules.as_view()),
    _management("alerts/rules/<str:rule_id>", alerts.OneAlertRule.as_view()),
    _management("alerts/destinations", alerts.AlertDestinations.as_view()),
    _management("alerts/destinations/<str:destination_id>", alerts.OneAlertDestination.as_view()),
    _management("alerts/destinations/<str:destination_id>/test", alerts.AlertDestinationTest.as_view()),
    _management("mcp-servers", mcp_servers.McpServers.as_view()),
    _management("mcp-servers/<str:server_id>", mcp_servers.OneMcpServer.as_view()),
    _management("mcp-servers/<str:server_id>/tools", mcp_servers.McpServerTools.as_view()),
    _management("guardrails/system-rules", guardrails.SystemRules.as_view()),
    _management("guardrails/config/<str:organization_id>", guardrails.GuardrailConfiguration.as_view()),
    _management("guardrails/config/<str:organization_id>/reset", guardrails.GuardrailReset.as_view()),
    _management("guardrails/rules/<str:organization_id>", guardrails.GuardrailRules.as_view()),
    _management("guardrails/rules/<str:organization_id>/<str:rule_id>", guardrails.OneGuardrailRule.as_view()),
    _management("guardrails/violations/<str:organization_id>", guardrails.GuardrailViolations.as_view()),
    _management("guardrails/stats/<str:organization_id>", guardrails.GuardrailStats.as_view()),
    _management("guardrails/test/<str:organization_id>", guardrails.GuardrailTest.as_view()),
    _management("audit-logs/<str:organization_id>", organizations.AuditLogs.as_view()),
    _management("activity", logs.Activity.as_view()),
    _management("activity/export", logs.ActivityExport.as_view()),
]
_LOG_ROUTES = [
    _logs("", front_door),
    _logs("favicon.ico", RedirectView.as_view(url=static("console/icon.svg"))),
    _logs("livez", health.livez),
    _logs("readyz", health.readyz),
    _logs("metrics", metrics),
    _logs("openapi.json", openapi.openapi),
    _logs("docs", RedirectView.as_view(url="/docs/api")),
    _logs("docs/api", openapi.docs),
    _logs("docs/api/<str:section>", openapi.docs_section),
    _logs("verify-email", mail_pages.verify_email),
    _logs("reset-password", mail_pages.reset_password),
    _logs("change-email", mail_pages.change_email),
    _logs("logs", logs.Logs.as_view()),
    _logs("logs/export", logs.LogsExport.as_view()),
    _logs("logs/unique-models", logs.UniqueModels.as_view()),
    _logs("logs/sessions", logs.Sessions.as_view()),
    _logs("logs/sessions/<path:session_id>", logs.OneSession.as_view()),
    _logs("logs/<str:log_id>", logs.Log.as_view()),
    _logs("logs/<str:log_id>/media/<int:number>", logs.LogMedium.as_view()),
    # For browsers; programs that ask here mean `/v1/models`.
    Route("models", model_pages.models, Family.PAGES),
    Route("models/compare", model_pages.compare, Family.PAGES),
    Route("models/<path:model_id>", model_pages.model, Family.PAGES),
    Route("app", RedirectView.as_view(url="/app/"), Family.PAGES),
    Route("app/", (console.PATTERNS, "console", "console"), Family.PAGES),
    _logs("admin", RedirectView.as_view(url="/admin/")),
    _logs("admin/", admin_urls()),
]
_OAUTH_ROUTES = [
    _oauth(".well-known/oauth-authorization-server", oauth.server_metadata),
    _oauth(".well-known/oauth-authorization-server/<path:path>", oauth.server_metadata),
    _oauth(".well-known/oauth-protected-resource", oauth.resource_metadata),
    _oauth(".well-known/oauth-protected-resource/<path:path>", oauth.resource_metadata),
    _oauth("oauth/register", oauth.register),
    _oauth("oauth/token", oauth.token),
    _oauth("oauth/revoke", oauth.revoke),
    Route("oauth/authorize", programs.authorize, Family.PAGES),
    # A program is given a key, at OpenRouter's paths.
    Route("oauth/key", programs.authorize_key, Family.PAGES),
    Route("auth", RedirectView.as_view(url="/oauth/key", query_string=True), Family.PAGES),
    Route("v1/auth/keys", oauth.exchange_key, Family.OPENAI),
]
if settings.STRIPE_WEBHOOK_SECRETS:
    # Without a secret the processor's messages could not be verified.
    _LOG_ROUTES.append(_logs("webhooks/stripe", webhooks.stripe))

TABLE = put_in_force(
    RouteTable(
        [*_MODEL_ROUTES, *_MANAGEMENT_ROUTES, *_LOG_ROUTES, *_OAUTH_ROUTES],
        # For unknown paths: clients of these APIs may ask for endpoints that do not exist here.
        unknown={
            **dict.fromkeys(("v1", "v2", "openai", "v1beta/openai", "api/v1"), Family.OPENAI),
            **dict.fromkeys(("v1beta", "v1beta1"), Family.GOOGLE),
            # One page, in the midst of management.
            "auth": Family.MANAGEMENT,
        },
        otherwise=Family.LOGS,
    )
)
