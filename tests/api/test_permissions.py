"""Permissions: every management endpoint, called by every role, for its own organization and for another.

The table has a row for every method of every path that people sign in for; one without a row fails. A refused request
has changed nothing.
"""
# length: a row for every endpoint

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.db import connection
from django.urls import URLPattern, get_resolver

from apps.billing import subscription
from apps.billing.models import Transaction
from apps.guardrails.models import CustomRule
from apps.kernel.ids import new_id
from apps.keys.models import IamRule, ProviderKey
from apps.keys.secrets import encrypt_credential
from apps.limits.models import Limit
from apps.mcp_servers.credentials import Credentials, encrypt_credentials
from apps.mcp_servers.models import McpServer
from apps.organizations.credentials.sessions import MemberEndpoint
from apps.organizations.deletion import request_deletion
from apps.organizations.invitations import invite
from apps.organizations.models import AuditEntry, Membership, Passkey, Plan, Role
from apps.organizations.teams.actions import add_team_member, create_service_account, create_team
from tests.alerts.scenarios import make_destination, make_rule
from tests.log_sinks.sinks import SECRET, make_sink
from tests.support.authenticator import app_code, enrol
from tests.support.cast import PASSWORD, Caller, World, join, make_key, make_management_key, make_user, signed_in
from tests.support.deletions import end_waiting_period
from tests.support.mcp_stand_in import StandIn, _mcp_server, mcp_server
from tests.support.own_servers import VLLM, OwnServer, own_server
from tests.support.payments import add_card
from tests.support.sink_receiver import Receiver, _receiver, receiver
from tests.support.stripe_stub import StripeStub
from tests.support.webauthn_authenticator import Authenticator, registration

__all__ = ["_mcp_server", "_receiver", "mcp_server", "own_server", "receiver"]
OWNER, ADMINS, MEMBERS = {"olivia"}, {"olivia", "adam"}, {"olivia", "adam", "dana"}
EVERYONE = {*MEMBERS, "sam"}
KEY, RULE = "keys/api/<str:key_id>", "keys/api/<str:key_id>/iam/<str:rule_id>"
ORGANIZATION = "organization/<str:organization_id>"
INVITATIONS = f"{ORGANIZATION}/invitations"
INVITATION = f"{INVITATIONS}/<str:invitation_id>"
MEMBER = f"{ORGANIZATION}/members/<str:member_id>"
CARDS, SUBSCRIPTION = f"{ORGANIZATION}/payment-methods", f"{ORGANIZATION}/subscription"
CARD = f"{CARDS}/<str:payment_method_id>"
TEAMS, TEAM = f"{ORGANIZATION}/teams", f"{ORGANIZATION}/teams/<str:team_id>"
TEAM_MEMBER = f"{TEAM}/members/<str:member_id>"
ACCOUNTS, ACCOUNT = f"{ORGANIZATION}/service-accounts", f"{ORGANIZATION}/service-accounts/<str:account_id>"
MANAGEMENT_KEYS = f"{ORGANIZATION}/management-keys"
MANAGEMENT_KEY = f"{MANAGEMENT_KEYS}/<str:key_id>"
GUARDRAILS = "guardrails/config/<str:organization_id>"
GUARDRAIL = "guardrails/rules/<str:organization_id>/<str:rule_id>"
NEW_GUARDRAIL = {"name": "No falcons", "type": "custom_regex", "config": {"pattern": "falcon"}}
NEW_RULE = {"ruleType": "deny_models", "ruleValue": {"models": ["echo"]}}


@dataclass(frozen=True)
class Row:
    """A method of a path, about these things, and who may. Names in `<...>` stand for the ids of things."""

    method: str
    route: str
    may: set[str]
    things: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)
    query: str = ""

    def __str__(self) -> str:
        body = (f"{name}={value}" for name, value in self.body.items())
        return " ".join((self.method, self.route, *self.things.values(), *body, self.query)).strip()

    @property
    def success(self) -> int:
        """The status of the answer to who may: OpenRouter's clients expect 201 for a new key."""
        return 201 if (self.method, self.route) == ("POST", "v1/keys") else 200

    @property
    def members_of_error(self) -> set[str]:
        """The members of an error's body."""
        return {"error", "status", "message"} if self.route.startswith("v1/") else {"message"}


IN_ACME = {"organization_id": "acme"}
MCP_SERVER, ACMES_MCP_SERVER = "mcp-servers/<str:server_id>", {"server_id": "mcp_server"}
LOG_SINK, ACMES_LOG_SINK = "log-sinks/<str:sink_id>", {"sink_id": "log_sink"}
LIMIT, ACMES_LIMIT = "limits/<str:limit_id>", {"limit_id": "limit"}
NEW_LIMIT = {
    "name": "weekly",
    "organizationId": "<acme>",
    "scope": "organization",
    "counts": "usd",
    "window": "week",
    "amount": "10",
}
NEW_LOG_SINK = {
    "name": "archive",
    "kind": "webhook",
    "url": "https://93.184.215.14/hook",
    "organizationId": "<acme>",
    "secret": SECRET,
}
ALERT_RULE, ACMES_ALERT_RULE = "alerts/rules/<str:rule_id>", {"rule_id": "alert_rule"}
ALERT_DESTINATION = "alerts/destinations/<str:destination_id>"
ACMES_ALERT_DESTINATION = {"destination_id": "alert_destination"}
NEW_ALERT_DESTINATION = {
    "name": "on call",
    "kind": "slack",
    "url": "https://93.184.215.14/services/secret",
    "organizationId": "<acme>",
}
NEW_MCP_SERVER = {"name": "wiki", "url": "https://93.184.215.14/mcp", "organizationId": "<acme>"}
DANAS, OLIVIAS = {"key_id": "danas_key"}, {"key_id": "olivias_key"}
DANAS_RULE = {**DANAS, "rule_id": "danas_rule"}
OLIVIAS_RULE = {**OLIVIAS, "rule_id": "olivias_rule"}
MANAGED_KEY = "v1/keys/<str:key_hash>"
DANAS_MANAGED, OLIVIAS_MANAGED = {"key_hash": "danas_key"}, {"key_hash": "olivias_key"}
PROJECT = {"project_id": "project"}
SAMS_INVITATION = {**IN_ACME, "invitation_id": "sams_invitation"}
PROVIDER_KEY = {"key_id": "provider_key"}
PROVIDER_MODELS, OWN_SERVER = "keys/provider/<str:key_id>/models", {"key_id": "own_server"}
REPLICAS = "keys/provider/<str:key_id>/replicas"
ACMES_CARD = {**IN_ACME, "payment_method_id": "other_card"}
PASSKEY, OLIVIAS_PASSKEY = "auth/passkeys/<str:passkey_id>", {"passkey_id": "passkey"}
ACMES_MANAGEMENT_KEY = {**IN_ACME, "key_id": "management_key"}
ACMES_GUARDRAIL = {**IN_ACME, "rule_id": "guardrail"}


ACMES_TEAM = {**IN_ACME, "team_id": "team"}
DANA_IN_TEAM = {**ACMES_TEAM, "member_id": "dana_member"}
ACMES_ACCOUNT = {**IN_ACME, "account_id": "service_account"}


def member(name: str) -> dict[str, str]:
    """Return what names a member of Acme."""
    return {**IN_ACME, "member_id": f"{name}_member"}


ROWS = [
    Row("POST", "auth/sign-out", EVERYONE),
    Row("GET", "auth/get-session", EVERYONE),
    Row("POST", "auth/change-password", EVERYONE, body={"newPassword": "nine blue lanterns", "password": PASSWORD}),
    Row("POST", "auth/change-email", EVERYONE, body={"newEmail": "another@example.com", "password": PASSWORD}),
    Row("POST", "auth/two-factor", EVERYONE, body={"password": PASSWORD}),
    Row("POST", "auth/two-factor/confirm", EVERYONE, body={"code": "<code>"}),
    Row("POST", "auth/two-factor/disable", EVERYONE, body={"password": PASSWORD, "code": "<code>"}),
    Row("GET", "auth/passkeys", EVERYONE),
    Row("POST", "auth/passkeys/options", EVERYONE, body={"password": PASSWORD}),
    Row("POST", "auth/passkeys/proof/options", EVERYONE),
    Row("POST", "auth/passkeys", EVERYONE, body={"name": "<registration>"}),
    Row("PATCH", PASSKEY, {"olivia"}, OLIVIAS_PASSKEY, {"name": "phone"}),
    Row("POST", f"{PASSKEY}/remove", {"olivia"}, OLIVIAS_PASSKEY, {"password": PASSWORD, "code": "<code>"}),
    Row("GET", "organization", EVERYONE),
    Row("POST", "organization", EVERYONE, body={"name": "Another"}),
    Row("PATCH", ORGANIZATION, ADMINS, IN_ACME, {"name": "Acme & Co"}),
    Row("PATCH", ORGANIZATION, OWNER, IN_ACME, {"billingEmail": "books@example.com"}),
    Row("PATCH", ORGANIZATION, OWNER, IN_ACME, {"billingCompany": "Acme"}),
    Row("PATCH", ORGANIZATION, OWNER, IN_ACME, {"billingAddress": "1 Road"}),
    Row("PATCH", ORGANIZATION, OWNER, IN_ACME, {"billingTaxId": "X1"}),
    Row("PATCH", ORGANIZATION, OWNER, IN_ACME, {"retentionLevel": "retain"}),
    Row("PATCH", ORGANIZATION, OWNER, IN_ACME, {"outagePolicy": "closed"}),
    Row("PATCH", ORGANIZATION, OWNER, IN_ACME, {"autoTopUpEnabled": True}),
    Row("POST", f"{ORGANIZATION}/cancel-deletion", OWNER, IN_ACME),
    Row("PATCH", ORGANIZATION, OWNER, IN_ACME, {"autoTopUpThreshold": 5}),
    Row("PATCH", ORGANIZATION, OWNER, IN_ACME, {"autoTopUpAmount": 20, "name": "Acme & Co"}),
    Row("DELETE", ORGANIZATION, OWNER, IN_ACME),
    Row("GET", f"{ORGANIZATION}/projects", MEMBERS, IN_ACME),
    Row("GET", MANAGEMENT_KEYS, ADMINS, IN_ACME),
    Row("POST", MANAGEMENT_KEYS, ADMINS, IN_ACME, {"name": "Terraform", "scopes": ["read", "keys"]}),
    Row("DELETE", MANAGEMENT_KEY, ADMINS, ACMES_MANAGEMENT_KEY),
    Row("POST", f"{MANAGEMENT_KEY}/rotate", ADMINS, ACMES_MANAGEMENT_KEY),
    Row("GET", f"{ORGANIZATION}/transactions", ADMINS, IN_ACME),
    Row("GET", CARDS, ADMINS, IN_ACME),
    Row("POST", CARDS, OWNER, IN_ACME, {"paymentMethodId": "<new_card>"}),
    Row("POST", f"{CARDS}/setup", OWNER, IN_ACME),
    Row("DELETE", CARD, OWNER, ACMES_CARD),
    Row("POST", f"{CARD}/default", OWNER, ACMES_CARD),
    Row("POST", f"{ORGANIZATION}/top-ups", OWNER, IN_ACME, {"amount": 10}),
    Row("GET", SUBSCRIPTION, ADMINS, IN_ACME),
    Row("POST", SUBSCRIPTION, OWNER, IN_ACME),
    Row("DELETE", SUBSCRIPTION, OWNER, IN_ACME),
    Row("GET", f"{ORGANIZATION}/referral-stats", MEMBERS, IN_ACME),
    Row("GET", "audit-logs/<str:organization_id>", ADMINS, IN_ACME),
    Row("GET", "activity", EVERYONE),
    Row("GET", "activity", MEMBERS, query="projectId=<project>"),
    Row("GET", "activity", MEMBERS, query="apiKeyId=<olivias_key>"),
    Row("GET", "activity", MEMBERS, query="orgId=<acme>"),
    Row("GET", "activity/export", MEMBERS, query="orgId=<acme>&format=jsonl"),
    Row("GET", f"{ORGANIZATION}/members", MEMBERS, IN_ACME),
    Row("POST", f"{ORGANIZATION}/members", ADMINS, IN_ACME, {"email": "nora@example.com", "role": "developer"}),
    Row("POST", f"{ORGANIZATION}/members", ADMINS, IN_ACME, {"email": "nora@example.com", "role": "admin"}),
    Row("POST", f"{ORGANIZATION}/members", OWNER, IN_ACME, {"email": "nora@example.com", "role": "owner"}),
    Row("GET", TEAMS, MEMBERS, IN_ACME),
    Row("POST", TEAMS, ADMINS, IN_ACME, {"name": "Search"}),
    Row("GET", TEAM, MEMBERS, ACMES_TEAM),
    Row("PATCH", TEAM, ADMINS, ACMES_TEAM, {"name": "Search"}),
    Row("DELETE", TEAM, ADMINS, ACMES_TEAM),
    Row("GET", f"{TEAM}/members", MEMBERS, ACMES_TEAM),
    Row("POST", f"{TEAM}/members", ADMINS, ACMES_TEAM, {"memberId": "<adam_member>"}),
    Row("PATCH", TEAM_MEMBER, ADMINS, DANA_IN_TEAM, {"isLead": True}),
    Row("DELETE", TEAM_MEMBER, ADMINS, DANA_IN_TEAM),
    Row("GET", ACCOUNTS, ADMINS, IN_ACME),
    Row("POST", ACCOUNTS, ADMINS, IN_ACME, {"name": "CI"}),
    Row("PATCH", ACCOUNT, ADMINS, ACMES_ACCOUNT, {"name": "CI"}),
    Row("DELETE", ACCOUNT, ADMINS, ACMES_ACCOUNT),
    Row("GET", INVITATIONS, ADMINS, IN_ACME),
    Row("POST", INVITATIONS, ADMINS, IN_ACME, {"email": "new@example.com", "role": "developer"}),
    Row("POST", INVITATIONS, ADMINS, IN_ACME, {"email": "new@example.com", "role": "admin"}),
    Row("POST", INVITATIONS, OWNER, IN_ACME, {"email": "new@example.com", "role": "owner"}),
    Row("DELETE", INVITATION, ADMINS, SAMS_INVITATION),
    Row("POST", f"{INVITATION}/accept", {"sam"}, SAMS_INVITATION),
    Row("PATCH", MEMBER, ADMINS, member("dana"), {"role": "admin"}),
    Row("PATCH", MEMBER, OWNER, member("dana"), {"role": "owner"}),
    Row("PATCH", MEMBER, ADMINS, member("adam"), {"role": "developer"}),
    Row("PATCH", MEMBER, OWNER, member("adam"), {"role": "owner"}),
    Row("PATCH", MEMBER, OWNER, member("olga"), {"role": "developer"}),
    Row("DELETE", MEMBER, MEMBERS, member("dana")),
    Row("DELETE", MEMBER, ADMINS, member("adam")),
    Row("DELETE", MEMBER, OWNER, member("olga")),
    Row("POST", "projects", ADMINS, body={"name": "New", "organizationId": "<acme>"}),
    Row("GET", "projects/<str:project_id>", MEMBERS, PROJECT),
    Row("PATCH", "projects/<str:project_id>", ADMINS, PROJECT, {"status": "archived"}),
    Row("DELETE", "projects/<str:project_id>", ADMINS, PROJECT),
    Row("POST", "keys/api", MEMBERS, body={"description": "more", "projectId": "<project>"}),
    Row("GET", "keys/api", EVERYONE),
    Row("GET", "keys/api", MEMBERS, query="projectId=<project>"),
    Row("GET", "keys/api", ADMINS, query="filter=all&projectId=<project>"),
    Row("PATCH", KEY, MEMBERS, DANAS, {"status": "inactive"}),
    Row("PATCH", KEY, ADMINS, OLIVIAS, {"status": "inactive"}),
    Row("DELETE", KEY, MEMBERS, DANAS),
    Row("DELETE", KEY, ADMINS, OLIVIAS),
    Row("POST", f"{KEY}/rotate", MEMBERS, DANAS),
    Row("POST", f"{KEY}/rotate", ADMINS, OLIVIAS, {"overlapHours": 1}),
    Row("PATCH", "keys/api/limit/<str:key_id>", MEMBERS, DANAS, {"usageLimit": "5"}),
    Row("PATCH", "keys/api/limit/<str:key_id>", ADMINS, OLIVIAS, {"usageLimit": None}),
    Row("GET", f"{KEY}/iam", MEMBERS, DANAS),
    Row("GET", f"{KEY}/iam", ADMINS, OLIVIAS),
    Row("POST", f"{KEY}/iam", MEMBERS, DANAS, NEW_RULE),
    Row("POST", f"{KEY}/iam", ADMINS, OLIVIAS, NEW_RULE),
    Row("PATCH", RULE, MEMBERS, DANAS_RULE, {"status": "inactive"}),
    Row("PATCH", RULE, ADMINS, OLIVIAS_RULE, {"status": "inactive"}),
    Row("DELETE", RULE, MEMBERS, DANAS_RULE),
    Row("DELETE", RULE, ADMINS, OLIVIAS_RULE),
    Row("GET", "v1/keys", {"olivia", "olga", "adam", "sam"}),
    Row("GET", "v1/keys", ADMINS, query="workspace_id=<project>"),
    Row("POST", "v1/keys", MEMBERS, body={"name": "more", "workspace_id": "<project>"}),
    Row("GET", MANAGED_KEY, MEMBERS, DANAS_MANAGED),
    Row("GET", MANAGED_KEY, ADMINS, OLIVIAS_MANAGED),
    Row("PATCH", MANAGED_KEY, MEMBERS, DANAS_MANAGED, {"disabled": True}),
    Row("PATCH", MANAGED_KEY, ADMINS, OLIVIAS_MANAGED, {"limit": 5, "limit_reset": "weekly"}),
    Row("DELETE", MANAGED_KEY, MEMBERS, DANAS_MANAGED),
    Row("DELETE", MANAGED_KEY, ADMINS, OLIVIAS_MANAGED),
    Row("GET", "keys/provider", ADMINS, query="organizationId=<acme>"),
    Row(
        "POST",
        "keys/provider",
        ADMINS,
        query="validate=false",
        body={
            "provider": "custom",
            "providerName": "ours",
            "baseUrl": "https://93.184.215.14/v1",
            "token": "a credential",
            "organizationId": "<acme>",
        },
    ),
    Row("PATCH", "keys/provider/<str:key_id>", ADMINS, PROVIDER_KEY, {"status": "inactive"}),
    Row("DELETE", "keys/provider/<str:key_id>", ADMINS, PROVIDER_KEY),
    Row("GET", PROVIDER_MODELS, ADMINS, OWN_SERVER),
    Row("POST", PROVIDER_MODELS, ADMINS, OWN_SERVER),
    Row("PATCH", PROVIDER_MODELS, ADMINS, OWN_SERVER, {"model": "llama3.2", "contextLength": 4096}),
    Row("POST", f"{PROVIDER_MODELS}/probe", ADMINS, OWN_SERVER, {"model": "llama3.2"}),
    Row("GET", REPLICAS, ADMINS, OWN_SERVER),
    Row(
        "PUT",
        REPLICAS,
        ADMINS,
        OWN_SERVER,
        {"replicas": [{"baseUrl": "https://93.184.215.15/v1"}]},
        query="validate=false",
    ),
    Row("PATCH", REPLICAS, ADMINS, OWN_SERVER, {"name": "replica-1", "draining": False}),
    Row("GET", "limits", ADMINS, query="organizationId=<acme>"),
    Row("POST", "limits", ADMINS, body=NEW_LIMIT),
    Row("POST", "limits/preview", ADMINS, body=NEW_LIMIT),
    Row("PATCH", LIMIT, ADMINS, ACMES_LIMIT, {"amount": "5"}),
    Row("DELETE", LIMIT, ADMINS, ACMES_LIMIT),
    Row("GET", "log-sinks", ADMINS, query="organizationId=<acme>"),
    Row("POST", "log-sinks", ADMINS, body=NEW_LOG_SINK),
    Row("PATCH", LOG_SINK, ADMINS, ACMES_LOG_SINK, {"status": "inactive"}),
    Row("DELETE", LOG_SINK, ADMINS, ACMES_LOG_SINK),
    Row("POST", f"{LOG_SINK}/test", ADMINS, ACMES_LOG_SINK),
    Row("GET", "alerts", ADMINS, query="organizationId=<acme>"),
    Row("POST", "alerts/read", ADMINS, body={"organizationId": "<acme>"}),
    Row("GET", "alerts/preferences", ADMINS, query="organizationId=<acme>"),
    Row("PATCH", "alerts/preferences", ADMINS, body={"organizationId": "<acme>", "byEmail": False}),
    Row("GET", "alerts/rules", ADMINS, query="organizationId=<acme>"),
    Row("POST", "alerts/rules", ADMINS, body={"organizationId": "<acme>", "kind": "balance_low", "amount": "25"}),
    Row("PATCH", ALERT_RULE, ADMINS, ACMES_ALERT_RULE, {"status": "inactive"}),
    Row("DELETE", ALERT_RULE, ADMINS, ACMES_ALERT_RULE),
    Row("GET", "alerts/destinations", ADMINS, query="organizationId=<acme>"),
    Row("POST", "alerts/destinations", ADMINS, body=NEW_ALERT_DESTINATION),
    Row("PATCH", ALERT_DESTINATION, ADMINS, ACMES_ALERT_DESTINATION, {"status": "inactive"}),
    Row("DELETE", ALERT_DESTINATION, ADMINS, ACMES_ALERT_DESTINATION),
    Row("POST", f"{ALERT_DESTINATION}/test", ADMINS, ACMES_ALERT_DESTINATION),
    Row("GET", "mcp-servers", ADMINS, query="organizationId=<acme>"),
    Row("POST", "mcp-servers", ADMINS, body=NEW_MCP_SERVER, query="validate=false"),
    Row("PATCH", MCP_SERVER, ADMINS, ACMES_MCP_SERVER, {"status": "inactive"}),
    Row("DELETE", MCP_SERVER, ADMINS, ACMES_MCP_SERVER),
    Row("GET", f"{MCP_SERVER}/tools", ADMINS, ACMES_MCP_SERVER),
    Row("GET", "guardrails/system-rules", EVERYONE),
    Row("GET", GUARDRAILS, ADMINS, IN_ACME),
    Row("PUT", GUARDRAILS, ADMINS, IN_ACME, {"enabled": False}),
    Row("POST", f"{GUARDRAILS}/reset", ADMINS, IN_ACME),
    Row("GET", "guardrails/rules/<str:organization_id>", ADMINS, IN_ACME),
    Row("POST", "guardrails/rules/<str:organization_id>", ADMINS, IN_ACME, NEW_GUARDRAIL),
    Row("PATCH", GUARDRAIL, ADMINS, ACMES_GUARDRAIL, {"enabled": False}),
    Row("DELETE", GUARDRAIL, ADMINS, ACMES_GUARDRAIL),
    Row("GET", "guardrails/violations/<str:organization_id>", ADMINS, IN_ACME),
    Row("GET", "guardrails/stats/<str:organization_id>", ADMINS, IN_ACME),
    Row("POST", "guardrails/test/<str:organization_id>", ADMINS, IN_ACME, {"content": "hello"}),
]


# Endpoints that change nothing in an organization, and are in no audit log.
OF_NO_ORGANIZATION = {
    *("auth/sign-out", "auth/two-factor", "auth/change-email", "alerts/read"),
}
# POST endpoints that change nothing at all.
QUESTIONS = {
    *(f"{LOG_SINK}/test", f"{ALERT_DESTINATION}/test"),
    *("guardrails/test/<str:organization_id>", "limits/preview", f"{CARDS}/setup"),
    *("auth/passkeys/options", "auth/passkeys/proof/options"),
}


def endpoints() -> Iterator[tuple[str, str]]:
    """Yield method and route of everything that people sign in for."""
    for pattern in get_resolver().url_patterns:
        view = getattr(getattr(pattern, "callback", None), "view_class", None)
        if isinstance(pattern, URLPattern) and view is not None and issubclass(view, MemberEndpoint):
            for method in ("get", "post", "put", "patch", "delete"):
                if hasattr(view, method):
                    yield method.upper(), str(pattern.pattern)


def test_every_endpoint_has_its_rows() -> None:
    assert {(row.method, row.route) for row in ROWS} == set(endpoints())


@pytest.fixture
def cards(world: World, request: pytest.FixtureRequest) -> dict[str, str]:
    """The ids of Acme's second card and of one to be added, for rows about payments; Acme has a subscription then."""
    row = getattr(request.node, "callspec", None) and request.node.callspec.params.get("row")
    if row is None or not row.route.startswith((CARDS, SUBSCRIPTION, f"{ORGANIZATION}/top-ups")):
        return {}
    stripe: StripeStub = request.getfixturevalue("stripe")
    _, other = (add_card(stripe, world.acme) for _ in range(2))
    if (row.method, row.route) != ("POST", SUBSCRIPTION):
        subscription.start(world.acme)
    return {"other_card": str(other.pk), "new_card": stripe.make_card()}


def tools_url(request: pytest.FixtureRequest) -> str:
    """Return the address of Acme's MCP server; one that answers for rows that ask it."""
    row = getattr(request.node, "callspec", None) and request.node.callspec.params.get("row")
    if row is None or row.route != f"{MCP_SERVER}/tools":
        return "https://93.184.215.14/mcp"
    stand_in: StandIn = request.getfixturevalue("mcp_server")
    return stand_in.url


def server_url(request: pytest.FixtureRequest) -> str:
    """Return the address of Acme's own server of models; one that answers for rows that ask it."""
    row = getattr(request.node, "callspec", None) and request.node.callspec.params.get("row")
    if row is None or (row.method, row.route) not in {("POST", PROVIDER_MODELS), ("POST", f"{PROVIDER_MODELS}/probe")}:
        return "https://93.184.215.14/v1"
    server: OwnServer = request.getfixturevalue("own_server")
    server.answers = VLLM
    return f"{server.url}/v1"


def hook_url(request: pytest.FixtureRequest) -> str:
    """Return the address of Acme's log sink and alert destination; one that answers for rows that try it."""
    row = getattr(request.node, "callspec", None) and request.node.callspec.params.get("row")
    if row is None or row.route not in {f"{LOG_SINK}/test", f"{ALERT_DESTINATION}/test"}:
        return "https://93.184.215.14/hook"
    receiver: Receiver = request.getfixturevalue("receiver")
    return f"{receiver.origin}/hook"


@pytest.fixture
def things(world: World, cards: dict[str, str], request: pytest.FixtureRequest) -> dict[str, str]:
    """The ids of Acme's things by name; it has a second owner, Olga, and is on the plan enterprise.

    But where the plan pro is to begin, it is on the plan free.
    """
    row = getattr(request.node, "callspec", None) and request.node.callspec.params.get("row")
    if row is None or (row.method, row.route) != ("POST", SUBSCRIPTION):
        world.acme.plan = Plan.ENTERPRISE
        world.acme.save()
    join(world.acme, make_user("Olga"), Role.OWNER)
    make_user("Nora")
    found: dict[str, Any] = {"acme": world.acme, "project": world.project}
    for one in Membership.objects.filter(organization=world.acme).select_related("user"):
        found[f"{one.user.name.lower()}_member"] = one
    for name, user in (("danas", world.dana), ("olivias", world.olivia)):
        found[f"{name}_key"] = key = make_key(user, world.project).key
        found[f"{name}_rule"] = IamRule.objects.create(
            api_key=key, rule_type="allow_models", rule_value={"models": ["echo"]}
        )
    found["team"] = create_team(organization=world.acme, name="Support")
    add_team_member(team=found["team"], member_id=str(found["dana_member"].pk))
    found["service_account"] = create_service_account(organization=world.acme, name="Web shop")
    found["provider_key"] = ProviderKey.objects.create(
        organization=world.acme, provider="openai", encrypted_token=encrypt_credential("secret"), last_four="cret"
    )
    found["own_server"] = ProviderKey.objects.create(
        organization=world.acme,
        provider="custom",
        provider_name="box",
        base_url=server_url(request),
        encrypted_token=encrypt_credential(""),
    )
    found["mcp_server"] = McpServer.objects.create(
        organization=world.acme,
        name="tickets",
        url=tools_url(request),
        encrypted_credentials=encrypt_credentials(Credentials()),
    )
    found["limit"] = Limit.objects.create(
        organization=world.acme, name="daily", scope="organization", counts="requests", window="day", amount=10
    )
    found["log_sink"] = make_sink(world, "webhook", hook_url(request))
    found["alert_rule"] = make_rule(world, "price_change")
    found["alert_destination"] = make_destination(world, "webhook", hook_url(request))
    found["sams_invitation"] = invite(email=world.sam.email, organization=world.acme)
    found["guardrail"] = CustomRule.objects.create(
        organization=world.acme, name="No tickets", type="custom_regex", config={"pattern": "ticket"}
    )
    found["management_key"] = make_management_key(world.olivia, world.acme, "read").key
    Transaction.objects.create(organization=world.acme, type="credit_topup", amount=10)
    if row is not None and row.route.startswith("auth/two-factor/"):
        for user in (world.olivia, world.adam, world.dana, world.sam):
            enrol(user, confirmed=row.route.endswith("disable"))
        cards = {"code": app_code()}
    if row is not None and row.route.startswith(PASSKEY):
        key = Passkey(user=world.olivia, name="laptop", credential_id=b"id", public_key=b"key")
        key.save()
        found["passkey"] = key
        enrol(world.olivia)
        cards = {"code": app_code()}
    if row is not None and row.route.endswith("cancel-deletion"):
        request_deletion(organization=world.acme)
    return {name: str(thing.pk) for name, thing in found.items()} | cards


def state() -> dict[str, list[str]]:
    """Return every row of every table that a management endpoint could write."""
    prefixes = ("organizations_", "keys_", "billing_", "guardrails_", "knox_", "mcp_servers_", "limits_", "log_sinks_")
    prefixes += ("alerts_",)
    tables = [name for name in connection.introspection.table_names() if name.startswith(prefixes)]
    rows = {}
    with connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"SELECT row_to_json({table})::text FROM {table} ORDER BY 1")
            rows[table] = [text for (text,) in cursor.fetchall()]
    return rows


def send(caller: Caller, row: Row, things: dict[str, str]) -> Any:
    """Ask what the row says."""
    path, query, body = f"/{row.route}", row.query, dict(row.body)
    for placeholder, name in row.things.items():
        path = path.replace(f"<str:{placeholder}>", things[name])
    if body.get("name") == "<registration>":
        body = registration(caller, Authenticator()) if caller.headers else {"name": "laptop"}
    for name, identifier in things.items():
        query = query.replace(f"<{name}>", identifier)
        body = {key: identifier if value == f"<{name}>" else value for key, value in body.items()}
    return caller.send(row.method, f"{path}?{query}" if query else path, body)


def caller_named(name: str, world: World) -> Caller:
    """Return the caller of the table."""
    return Caller() if name == "nobody" else signed_in(getattr(world, name))


def changes(row: Row) -> bool:
    """Tell whether who may do what the row says changes something by it."""
    return row.method != "GET" and row.route not in QUESTIONS


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_who_may_not_changes_nothing_and_nobody_does_by_asking(world: World, things: dict[str, str], row: Row) -> None:
    for name in ("olivia", "adam", "dana", "sam", "nobody"):
        allowed = name in row.may
        if allowed and changes(row):
            continue
        caller = caller_named(name, world)
        before = state()
        recorded = AuditEntry.objects.count()
        response = send(caller, row, things)
        expected = row.success if allowed else 401 if name == "nobody" else 403
        assert response.status_code == expected, (name, response.content)
        assert state() == before, name
        assert AuditEntry.objects.count() == recorded, name
        if not allowed:
            assert set(response.json()) == row.members_of_error


@pytest.mark.parametrize(
    ("row", "name"),
    [(row, name) for row in ROWS if changes(row) for name in sorted(row.may)],
    ids=str,
)
def test_who_may_changes_something_and_is_named_in_the_audit_log(
    world: World, things: dict[str, str], row: Row, name: str
) -> None:
    caller = caller_named(name, world)
    before = state()
    recorded = AuditEntry.objects.count()
    response = send(caller, row, things)
    assert response.status_code == row.success, response.content
    assert state() != before
    newest = AuditEntry.objects.order_by("-id").first()
    if row.route in OF_NO_ORGANIZATION:
        assert AuditEntry.objects.count() == recorded
    else:
        assert newest is not None
        assert (newest.actor_type, newest.actor_email) == ("session", getattr(world, name).email)
        assert AuditEntry.objects.count() > recorded


@pytest.mark.parametrize("row", [row for row in ROWS if row.things], ids=str)
def test_what_does_not_exist_is_404(world: World, things: dict[str, str], row: Row) -> None:
    caller = signed_in(world.olivia)
    before = state()
    for identifier in (str(new_id()), "nonsense"):
        for placeholder in row.things:
            other = Row(row.method, row.route, row.may, {**row.things, placeholder: "unknown"}, row.body, row.query)
            response = send(caller, other, {**things, "unknown": identifier})
            assert response.status_code == 404, response.content
            assert set(response.json()) == row.members_of_error
    assert state() == before


def test_a_rule_of_another_key_is_404(world: World, things: dict[str, str]) -> None:
    caller = signed_in(world.olivia)
    before = state()
    path = f"/keys/api/{things['olivias_key']}/iam/{things['danas_rule']}"
    for method in ("PATCH", "DELETE"):
        response = caller.send(method, path, {"status": "inactive"})
        assert (response.status_code, response.json()) == (404, {"message": "IAM rule not found"})
    assert state() == before


def test_a_member_of_another_organization_is_404(world: World, things: dict[str, str]) -> None:
    join(world.elsewhere, world.olivia, Role.OWNER)
    caller = signed_in(world.olivia)
    before = state()
    for method in ("PATCH", "DELETE"):
        response = caller.send(
            method, f"/organization/{world.elsewhere.id}/members/{things['dana_member']}", {"role": "admin"}
        )
        assert (response.status_code, response.json()) == (404, {"message": "Member not found"})
    assert state() == before


@pytest.mark.parametrize(
    "row",
    [
        row
        for row in ROWS
        if (row.things or row.query or "<acme>" in row.body.values()) and row.things != OLIVIAS_PASSKEY
    ],
    ids=str,
)
def test_of_a_deleted_organization_nothing_is_left(world: World, things: dict[str, str], row: Row) -> None:
    if not row.route.endswith("cancel-deletion"):
        assert signed_in(world.olivia).send("DELETE", f"/organization/{world.acme.id}", {}).status_code == 200
    assert end_waiting_period() == [world.acme.id]
    caller = signed_in(world.olivia)
    before = state()
    assert send(caller, row, things).status_code == 404
    assert state() == before
