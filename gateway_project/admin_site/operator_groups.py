"""Groups of operators who are no superusers: support, finance and admin, made once and then the operators' own.

Knows which tables each may see and change. Must never give anybody the power to make operators: superusers alone do.
"""

from __future__ import annotations

from typing import Any, Final

from django.contrib.auth.models import Group, Permission
from django.db.models import Q

_SEEN_BY_ALL: Final = (
    *("logs.trafficslot", "logs.requestlog", "logs.activityday", "organizations.organization", "organizations.project"),
    *("organizations.membership", "organizations.auditentry", "organizations.user", "keys.apikey"),
)
# Table -> what may be done besides looking at it.
_SUPPORT: Final = {
    **dict.fromkeys(_SEEN_BY_ALL, ()),
    **dict.fromkeys(("keys.providerkey", "guardrails.guardrailconfig", "guardrails.violation", "catalog.model"), ()),
    **dict.fromkeys(("catalog.provider", "catalog.modelprovider", "batches.batch", "responses.backgroundrun"), ()),
    "mcp_servers.mcpserver": (),
    "log_sinks.logsink": (),
    **dict.fromkeys(("organizations.passkey", "organizations.twofactor", "billing.transaction"), ()),
    "gateway.reconciliation": (),
    "organizations.project": ("change",),
    # A key is revoked by who may delete it.
    "keys.apikey": ("change", "delete"),
    "keys.iamrule": ("add", "change", "delete"),
    "organizations.invitation": ("delete",),
    "oauth.oauthclient": (),
    # A signed-in program is revoked by who may delete it.
    "oauth.consent": ("delete",),
    "knox.authtoken": ("delete",),
}
_FINANCE: Final = {
    **dict.fromkeys(_SEEN_BY_ALL, ()),
    **dict.fromkeys(("billing.ledgerentry", "billing.billingaccount", "billing.processorevent"), ()),
    **dict.fromkeys(("billing.paymentmethod", "gateway.reconciliation", "gateway.difference"), ()),
    **dict.fromkeys(("catalog.model", "catalog.provider", "catalog.modelprovider"), ()),
    # To add one is to grant credits, to change one to refund it.
    "billing.transaction": ("add", "change"),
    "billing.discount": ("add", "change", "delete"),
}
# Who may change these makes operators, of themselves too: the group of admins only looks at them.
_OF_SUPERUSERS: Final = ("organizations.user", "auth.group", "auth.permission")


def seed_groups(**_: Any) -> None:
    """Make the groups that are missing; those that are there stay as the operators have left them."""
    for name, wanted in (("support", _of(_SUPPORT)), ("finance", _of(_FINANCE)), ("admin", _of_admins())):
        group, made = Group.objects.get_or_create(name=name)
        if made:
            group.permissions.set(Permission.objects.filter(wanted))


def _of(tables: dict[str, tuple[str, ...]]) -> Q:
    wanted = Q(pk__in=[])
    for label, verbs in tables.items():
        app, _, model = label.partition(".")
        names = [f"{verb}_{model}" for verb in ("view", *verbs)]
        wanted |= Q(content_type__app_label=app, codename__in=names)
    return wanted


def _of_admins() -> Q:
    kept = Q(pk__in=[])
    for label in _OF_SUPERUSERS:
        app, _, model = label.partition(".")
        kept |= Q(content_type__app_label=app, content_type__model=model)
    return ~kept | Q(codename__startswith="view_")
