"""Groups of operators who are not superusers: support, finance and admin. Created once; operators may change them.

A migration that adds tables adds their permissions to the groups; permissions that operators took away stay away. None
of the groups can create operators; only superusers can.
"""

from __future__ import annotations

from typing import Any, Final

from django.contrib.auth.models import Group, Permission
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models import Q

_SEEN_BY_ALL: Final = (
    *("logs.trafficslot", "logs.requestlog", "logs.activityday", "organizations.organization", "organizations.project"),
    *("organizations.membership", "organizations.auditentry", "organizations.user", "keys.apikey"),
    "organizations.organizationdeletion",
)
# Table -> allowed actions besides viewing.
_SUPPORT: Final = {
    **dict.fromkeys(_SEEN_BY_ALL, ()),
    **dict.fromkeys(("keys.providerkey", "guardrails.guardrailconfig", "guardrails.violation", "catalog.model"), ()),
    **dict.fromkeys(("catalog.provider", "catalog.modelprovider", "batches.batch", "responses.backgroundrun"), ()),
    "mcp_servers.mcpserver": (),
    "log_sinks.logsink": (),
    **dict.fromkeys(("alerts.alert", "alerts.alertdestination", "alerts.alertrule"), ()),
    **dict.fromkeys(("organizations.passkey", "organizations.twofactor", "billing.transaction"), ()),
    "gateway.reconciliation": (),
    "organizations.project": ("change",),
    # Revoking a key needs the delete permission.
    "keys.apikey": ("change", "delete"),
    "keys.iamrule": ("add", "change", "delete"),
    "organizations.invitation": ("delete",),
    "organizations.managementkey": ("change",),
    "oauth.oauthclient": (),
    # Revoking a signed-in program needs the delete permission.
    "oauth.consent": ("delete",),
    "knox.authtoken": ("delete",),
}
_FINANCE: Final = {
    **dict.fromkeys(_SEEN_BY_ALL, ()),
    **dict.fromkeys(("billing.ledgerentry", "billing.billingaccount", "billing.processorevent"), ()),
    **dict.fromkeys(("billing.paymentmethod", "gateway.reconciliation", "gateway.difference"), ()),
    **dict.fromkeys(("gateway.clearingaccount", "gateway.balancesheet"), ()),
    **dict.fromkeys(("provider_bills.billcomparison", "provider_bills.billdifference"), ()),
    **dict.fromkeys(("provider_bills.billline", "provider_bills.billreading"), ()),
    **dict.fromkeys(("catalog.model", "catalog.provider", "catalog.modelprovider"), ()),
    # To add one is to grant credits, to change one to refund it.
    "billing.transaction": ("add", "change"),
    "billing.discount": ("add", "change", "delete"),
}
# Changing these would allow members to make themselves operators; the admin group may only view them.
_OF_SUPERUSERS: Final = ("organizations.user", "auth.group", "auth.permission")


# Permissions that existed before this migration, by database alias.
_known: dict[str, set[int]] = {}


def note_permissions(*, using: str = DEFAULT_DB_ALIAS, **_: Any) -> None:
    """Remember which permissions there are before a migration."""
    tables = connections[using].introspection.table_names()
    permissions = Permission.objects.using(using).values_list("pk", flat=True)
    _known[using] = set(permissions) if Permission._meta.db_table in tables else set()


def seed_groups(*, using: str = DEFAULT_DB_ALIAS, **_: Any) -> None:
    """Make the groups that are missing; the others get the permissions of tables that this migration has added.

    All else stays as the operators have left it.
    """
    known = _known.pop(using, None)
    for name, wanted in (("support", _of(_SUPPORT)), ("finance", _of(_FINANCE)), ("admin", _of_admins())):
        group, made = Group.objects.using(using).get_or_create(name=name)
        permissions = Permission.objects.using(using).filter(wanted)
        if made:
            group.permissions.set(permissions)
        elif known is not None:
            group.permissions.add(*permissions.exclude(pk__in=known))


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
