"""Navigation of the operators' pages by task. The theme's settings (`theme.py`) name its functions."""

from __future__ import annotations

from typing import Any, Final

from django.apps import apps
from django.contrib import admin
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

_ACCOUNT: Final = {"Account and password": "console:account", "Sign-in methods": "admin:organizations_twofactor_mine"}
# By task: the tables, and the icon of each (Material Symbols).
GROUPS: Final[dict[str, dict[str, str]]] = {
    "Monitor": {
        "logs.requestlog": "receipt_long",
        "logs.refusedhour": "block",
        "logs.activityday": "calendar_month",
        "logs.savedview": "bookmark",
        "guardrails.violation": "shield_question",
        "batches.batch": "stacks",
        "responses.backgroundrun": "hourglass_top",
    },
    "Customers": {
        "organizations.organization": "domain",
        "organizations.user": "person",
        "organizations.membership": "group",
        "organizations.invitation": "mail",
        "organizations.team": "groups",
        "organizations.teammember": "person_add",
        "organizations.serviceaccount": "smart_toy",
        "organizations.project": "folder",
        "keys.apikey": "key",
        "organizations.managementkey": "manage_accounts",
        "keys.iamrule": "rule",
        "keys.providerkey": "vpn_key",
        "mcp_servers.mcpserver": "build",
        "limits.limit": "speed",
        "limits.planlimit": "avg_pace",
        "log_sinks.logsink": "outbox",
        "alerts.alert": "notifications",
        "alerts.alertrule": "notification_settings",
        "alerts.alertdestination": "send",
        "oauth.consent": "handshake",
        "guardrails.guardrailconfig": "shield",
        "guardrails.customrule": "policy",
        "organizations.auditentry": "history",
        "organizations.organizationdeletion": "delete_history",
    },
    "Money": {
        "billing.transaction": "payments",
        "billing.invoice": "request_quote",
        "billing.ledgerentry": "account_balance",
        "billing.billingaccount": "account_balance_wallet",
        "billing.paymentmethod": "credit_card",
        "billing.discount": "percent",
        "billing.processorevent": "webhook",
        "gateway.reconciliation": "balance",
        "gateway.difference": "difference",
        "gateway.clearingaccount": "hourglass",
        "gateway.balancesheet": "balance",
        "provider_bills.billcomparison": "compare_arrows",
        "provider_bills.billdifference": "difference",
        "provider_bills.billline": "receipt",
        "provider_bills.billreading": "download",
    },
    "Catalog": {
        "catalog.provider": "cloud",
        "catalog.model": "neurology",
        "catalog.modelprovider": "sell",
        "catalog.pricechange": "price_change",
        "catalog.scheduledpricechange": "schedule",
        "catalog.catalogproposal": "rule_settings",
        "catalog.pricelistreading": "fact_check",
    },
    "System": {
        "auth.group": "badge",
        "admin.logentry": "fact_check",
        "knox.authtoken": "devices",
        "organizations.passkey": "fingerprint",
        "organizations.twofactor": "phonelink_lock",
        "oauth.oauthclient": "extension",
        "oauth.authorizationcode": "pin",
        "oauth.accesstoken": "token",
        "oauth.refreshtoken": "autorenew",
        "oauth.keycode": "pin",
        "logs.logretention": "auto_delete",
        "responses.storedresponse": "chat",
        "responses.conversation": "forum",
        "responses.conversationitem": "chat_bubble",
        "batches.storedfile": "draft",
        "batches.filechunk": "data_array",
        "batches.batchline": "list",
        "batches.nativejob": "cloud_queue",
        "billing.ledgerepoch": "event_repeat",
        "limits.limitcounter": "tag",
        "limits.limitcharge": "checklist",
        "logs.activitydelta": "pending",
        "log_sinks.waitingrow": "schedule_send",
        "alerts.alertdelivery": "forward_to_inbox",
        "alerts.alertreader": "mark_email_read",
        "alerts.alertwatch": "update",
        "logs.trafficslot": "bar_chart",
        "logs.trafficdelta": "pending_actions",
        "logs.performanceslot": "speed",
        "logs.performancedelta": "hourglass_empty",
        "organizations.idempotentanswer": "repeat",
    },
}
# Names shown for tables whose own names are unclear, singular and plural.
PLAIN_NAMES: Final[dict[str, tuple[str, str]]] = {
    "admin.logentry": ("operator action", "operator actions"),
    "alerts.alertdelivery": ("message about an alert", "messages about alerts"),
    "alerts.alertreader": ("choice of an alert reader", "choices of alert readers"),
    "batches.filechunk": ("part of a file", "parts of files"),
    "batches.nativejob": ("batch at a provider", "batches at providers"),
    "billing.ledgerepoch": ("ledger epoch", "ledger epochs"),
    "billing.processorevent": ("Stripe event", "Stripe events"),
    "catalog.catalogproposal": ("proposal from price lists", "proposals from price lists"),
    "catalog.modelprovider": ("offer and price", "offers and prices"),
    "catalog.pricechange": ("price change", "price history"),
    "catalog.scheduledpricechange": ("scheduled price change", "scheduled price changes"),
    "catalog.pricelistreading": ("price list", "price lists"),
    "gateway.balancesheet": ("balance sheet of credits", "balance sheets of credits"),
    "gateway.clearingaccount": ("clearing account", "clearing accounts"),
    "gateway.reconciliation": ("nightly reconciliation", "nightly reconciliations"),
    "gateway.difference": ("difference found by reconciliation", "differences found by reconciliation"),
    "guardrails.guardrailconfig": ("guardrail setting", "guardrail settings"),
    "guardrails.customrule": ("guardrail rule of a customer", "guardrail rules of customers"),
    "guardrails.violation": ("guardrail finding", "guardrail findings"),
    "keys.apikey": ("API key", "API keys"),
    "keys.iamrule": ("access rule", "access rules"),
    "knox.authtoken": ("session", "sessions"),
    "limits.limitcharge": ("request counted by limits", "requests counted by limits"),
    "limits.limitcounter": ("counter of a limit", "counters of limits"),
    "logs.activityday": ("activity by day", "activity by day"),
    "logs.activitydelta": ("activity not yet added up", "activity not yet added up"),
    "logs.performancedelta": ("performance not yet added up", "performance not yet added up"),
    "logs.performanceslot": ("performance of a provider", "performance of providers"),
    "logs.refusedhour": ("refused requests of an hour", "refused requests"),
    "logs.requestlog": ("request", "request log"),
    "logs.savedview": ("saved view of the log", "saved views of the log"),
    "logs.trafficdelta": ("traffic not yet added up", "traffic not yet added up"),
    "logs.trafficslot": ("traffic", "traffic"),
    "log_sinks.waitingrow": ("row in the log sink queue", "log sink queue"),
    "oauth.accesstoken": ("access token", "access tokens"),
    "oauth.authorizationcode": ("authorization code", "authorization codes"),
    "oauth.oauthclient": ("program", "programs that sign in"),
    "oauth.consent": ("signed-in program", "signed-in programs"),
    "oauth.keycode": ("code for an API key", "codes for API keys"),
    "oauth.refreshtoken": ("refresh token", "refresh tokens"),
    "provider_bills.billcomparison": ("day of a provider's bill", "providers' bills by day"),
    "provider_bills.billdifference": ("difference from a provider's bill", "differences from providers' bills"),
    "provider_bills.billline": ("line of a provider's bill", "lines of providers' bills"),
    "provider_bills.billreading": ("reading of a provider's bill", "readings of providers' bills"),
    "organizations.auditentry": ("audit log entry", "audit log"),
    "organizations.organizationdeletion": ("deletion of an organization", "deletions of organizations"),
    "organizations.idempotentanswer": ("kept answer", "answers kept for repeated requests"),
    "organizations.twofactor": ("authenticator app", "authenticator apps"),
    "auth.group": ("group of operators", "groups of operators"),
}


def groups(request: HttpRequest) -> list[dict[str, Any]]:
    """Return the sidebar: each group of tables that this operator may see, and under System what no group names."""
    registered = {model._meta.label_lower: model for model in admin.site._registry}
    placed = {label for tables in GROUPS.values() for label in tables}
    tables = {title: dict(group) for title, group in GROUPS.items()}
    tables["System"] |= dict.fromkeys(sorted(registered.keys() - placed), "table_rows")
    sidebar = []
    for title, group in tables.items():
        items = [_dashboard()] if title == "Monitor" else []
        for label, icon in group.items():
            if label in registered and admin.site._registry[registered[label]].has_view_permission(request):
                meta = apps.get_model(label)._meta
                items.append(
                    {"title": _capitalized(str(meta.verbose_name_plural)), "icon": icon, "link": _list_of(label)}
                )
        sidebar.append({"title": title, "separator": True, "items": items})
    return sidebar


def account_links(request: HttpRequest) -> list[dict[str, str]]:
    """Return the links of the operator's own account."""
    return [{"title": title, "link": reverse(page)} for title, page in _ACCOUNT.items()]


def name_tables() -> None:
    """Give tables their plain names wherever the admin shows them; the migrations know nothing of it."""
    for label, (one, many) in PLAIN_NAMES.items():
        meta = apps.get_model(label)._meta
        meta.verbose_name, meta.verbose_name_plural = one, many


def _dashboard() -> dict[str, Any]:
    return {"title": "Dashboard", "icon": "monitoring", "link": reverse("admin:index")}


def _list_of(label: str) -> str:
    try:
        return reverse(f"admin:{label.replace('.', '_')}_changelist")
    except NoReverseMatch:
        return ""


def _capitalized(words: str) -> str:
    return words[:1].upper() + words[1:]
