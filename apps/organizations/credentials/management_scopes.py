"""Which scope a management key needs for each endpoint; the page docs/management-keys.md has the same table.

Routes are those of `gateway_project/routes.py`. An endpoint without a row needs a person who is signed in: accounts,
sessions, management keys themselves, payments, joining or deleting an organization.
"""
# alone: a table that a reviewer reads by itself

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from apps.organizations.models import ManagementScope

READ, KEYS, LIMITS, SETTINGS, MEMBERS, BILLING, LOGS = ManagementScope
_ORGANIZATION: Final = "organization/<str:organization_id>"
_TEAM: Final = f"{_ORGANIZATION}/teams/<str:team_id>"
# By route and method.
SCOPES: Final[Mapping[str, Mapping[str, ManagementScope]]] = {
    "organization": {"GET": READ},
    _ORGANIZATION: {"PATCH": SETTINGS},
    f"{_ORGANIZATION}/projects": {"GET": READ},
    f"{_ORGANIZATION}/members": {"GET": READ, "POST": MEMBERS},
    f"{_ORGANIZATION}/members/<str:member_id>": {"PATCH": MEMBERS, "DELETE": MEMBERS},
    f"{_ORGANIZATION}/invitations": {"GET": READ, "POST": MEMBERS},
    f"{_ORGANIZATION}/invitations/<str:invitation_id>": {"DELETE": MEMBERS},
    f"{_ORGANIZATION}/teams": {"GET": READ, "POST": MEMBERS},
    _TEAM: {"GET": READ, "PATCH": MEMBERS, "DELETE": MEMBERS},
    f"{_TEAM}/members": {"GET": READ, "POST": MEMBERS},
    f"{_TEAM}/members/<str:member_id>": {"PATCH": MEMBERS, "DELETE": MEMBERS},
    f"{_ORGANIZATION}/service-accounts": {"GET": READ, "POST": MEMBERS},
    f"{_ORGANIZATION}/service-accounts/<str:account_id>": {"PATCH": MEMBERS, "DELETE": MEMBERS},
    f"{_ORGANIZATION}/transactions": {"GET": BILLING},
    f"{_ORGANIZATION}/payment-methods": {"GET": BILLING},
    f"{_ORGANIZATION}/referral-stats": {"GET": BILLING},
    "projects": {"POST": SETTINGS},
    "projects/<str:project_id>": {"GET": READ, "PATCH": SETTINGS, "DELETE": SETTINGS},
    "keys/api": {"GET": READ, "POST": KEYS},
    "keys/api/<str:key_id>": {"PATCH": KEYS, "DELETE": KEYS},
    "keys/api/limit/<str:key_id>": {"PATCH": LIMITS},
    "keys/api/<str:key_id>/rotate": {"POST": KEYS},
    "keys/api/<str:key_id>/iam": {"GET": READ, "POST": KEYS},
    "keys/api/<str:key_id>/iam/<str:rule_id>": {"PATCH": KEYS, "DELETE": KEYS},
    # OpenRouter's paths. PATCH of a limit that never resets needs `limits`, too.
    "v1/keys": {"GET": READ, "POST": KEYS},
    "v1/keys/<str:key_hash>": {"GET": READ, "PATCH": KEYS, "DELETE": KEYS},
    "v1/key": {"GET": READ},
    "v1/credits": {"GET": BILLING},
    "keys/provider": {"GET": READ, "POST": KEYS},
    "keys/provider/<str:key_id>": {"PATCH": KEYS, "DELETE": KEYS},
    "keys/provider/<str:key_id>/models": {"GET": READ, "POST": KEYS, "PATCH": KEYS},
    "keys/provider/<str:key_id>/models/probe": {"POST": KEYS},
    "keys/provider/<str:key_id>/replicas": {"GET": READ, "PUT": KEYS, "PATCH": KEYS},
    "limits": {"GET": READ, "POST": LIMITS},
    "limits/preview": {"POST": READ},
    "limits/<str:limit_id>": {"PATCH": LIMITS, "DELETE": LIMITS},
    "log-sinks": {"GET": READ, "POST": SETTINGS},
    "log-sinks/<str:sink_id>": {"PATCH": SETTINGS, "DELETE": SETTINGS},
    "log-sinks/<str:sink_id>/test": {"POST": SETTINGS},
    "alerts": {"GET": READ},
    "alerts/rules": {"GET": READ, "POST": SETTINGS},
    "alerts/rules/<str:rule_id>": {"PATCH": SETTINGS, "DELETE": SETTINGS},
    "alerts/destinations": {"GET": READ, "POST": SETTINGS},
    "alerts/destinations/<str:destination_id>": {"PATCH": SETTINGS, "DELETE": SETTINGS},
    "alerts/destinations/<str:destination_id>/test": {"POST": SETTINGS},
    "mcp-servers": {"GET": READ, "POST": SETTINGS},
    "mcp-servers/<str:server_id>": {"PATCH": SETTINGS, "DELETE": SETTINGS},
    "mcp-servers/<str:server_id>/tools": {"GET": READ, "POST": SETTINGS},
    "guardrails/system-rules": {"GET": READ},
    "guardrails/config/<str:organization_id>": {"GET": READ, "PUT": SETTINGS},
    "guardrails/config/<str:organization_id>/reset": {"POST": SETTINGS},
    "guardrails/rules/<str:organization_id>": {"GET": READ, "POST": SETTINGS},
    "guardrails/rules/<str:organization_id>/<str:rule_id>": {"PATCH": SETTINGS, "DELETE": SETTINGS},
    "guardrails/violations/<str:organization_id>": {"GET": LOGS},
    "guardrails/stats/<str:organization_id>": {"GET": READ},
    "guardrails/test/<str:organization_id>": {"POST": READ},
    "audit-logs/<str:organization_id>": {"GET": LOGS},
    "activity": {"GET": READ},
    "activity/export": {"GET": READ},
    "logs": {"GET": LOGS},
    "logs/export": {"GET": LOGS},
    "logs/unique-models": {"GET": LOGS},
    "logs/sessions": {"GET": LOGS},
    "logs/sessions/<path:session_id>": {"GET": LOGS},
    "logs/<str:log_id>": {"GET": LOGS},
    "logs/<str:log_id>/media/<int:number>": {"GET": LOGS},
}


def scope_for(route: str, method: str) -> ManagementScope | None:
    """Return the scope that a method of a route needs; None where it needs a person. HEAD is as GET."""
    return SCOPES.get(route, {}).get("GET" if method == "HEAD" else method)
