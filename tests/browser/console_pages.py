"""Every page of the console, by its route, in an organization that has something of everything.

The routes are those of the console's table, so that a new page is looked at without being named here; one that answers
no page to GET is named in `NO_PAGE`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from django.urls import URLPattern, reverse

from apps.alerts.evaluation import evaluate, watch
from apps.billing import gifts
from apps.billing.models import Transaction
from apps.console import urls
from apps.guardrails.models import CustomRule
from apps.keys.models import ApiKey, ProviderKey
from apps.keys.secrets import encrypt_credential
from apps.limits.models import Limit
from apps.logs import rollup
from apps.mcp_servers.models import McpServer
from apps.organizations.actions import change_project
from apps.organizations.models import Invitation, Membership, Team, User
from apps.organizations.teams.actions import add_team_member, create_service_account, create_team
from tests.alerts.scenarios import add_resolved_alert, make_destination
from tests.browser.busy_acme import HOSTILE, SESSION, stock_acme
from tests.log_sinks.sinks import make_sink
from tests.logs.entries import ago
from tests.support.cast import World, make_user
from tests.support.console_client import Visitor, page
from tests.support.mcp_stand_in import TOKEN, StandIn
from tests.support.oauth_client import Program
from tests.support.payments import add_card
from tests.support.shipped_catalog import stock
from tests.support.stripe_stub import StripeStub

# Answered with a file, a part of a page, a way elsewhere, or to POST alone.
NO_PAGE: Final = {
    *("home", "enter_playground", "enter_models", "sign_out", "send_verification", "create_first_key", "first_request"),
    *("usage_export", "logs_export", "logs_live", "log_suggestions", "log_views", "log_medium", "playground_ask"),
    *("cancel_deletion", "accept_operator_invitation"),
    *("switch_provider_key", "remove_provider_key", "refresh_provider_models"),
    *("drain_replica", "probe_own_model", "set_own_model"),
    *("send_log_sink_sample", "switch_log_sink", "remove_log_sink"),
    *("read_alerts", "alert_emails", "switch_alert_rule", "remove_alert_rule"),
    *("send_alert_test", "switch_alert_destination", "remove_alert_destination"),
    *("look_at_mcp_server", "accept_mcp_tool", "switch_mcp_server", "remove_mcp_server"),
    *("reset_guardrails", "delete_rule"),
    *("top_up", "automatic_top_up", "billing_details", "subscribe", "unsubscribe"),
    *("confirm_payment", "payment_confirmed", "new_card", "card_entered", "default_card", "remove_card"),
}
# For who is not signed in.
OUTSIDE: Final = ("sign_in", "sign_up", "forgot_password")
LONG_NAME: Final = "Team for the translation of contracts, invoices and customer correspondence (EMEA), production"


def routes() -> list[str]:
    """Return the names of all routes of the console, in the table's order."""
    return [str(one.name) for one in urls.PATTERNS if isinstance(one, URLPattern)]


def pages() -> list[str]:
    """Return the names of the routes that answer a page to who is signed in."""
    return [name for name in routes() if name not in NO_PAGE and name not in OUTSIDE]


def fill(world: World, stripe: StripeStub, mcp_server: StandIn) -> dict[str, Any]:
    """Fill Acme; return what the paths of its pages name, as Olivia opens them."""
    stock()
    User.objects.update(email_verified_at=ago(days=30))
    log_id = stock_acme(world)
    acme, olivia = world.acme, Visitor(world.olivia)
    gifts.give(organization=acme, amount=Decimal("1234.5"), description="Welcome")
    add_card(stripe, acme)
    olivia.send(page(acme, "billing/top-up"), {"amount": "2500"})
    make_user("Nora")
    olivia.send(page(acme, "members"), {"action": "invite", "email": "nora@example.com", "role": "developer"})
    Visitor(world.sam).send(
        page(world.elsewhere, "members"), {"action": "invite", "email": world.olivia.email, "role": "developer"}
    )
    olivia.send(
        page(acme, "provider-keys"),
        {"provider": "openai", "token": "sk-live-of-acme-000000000000", "test": "false", "name": "of our own"},
    )
    box = _add_own_server(world)
    server = {"name": "tickets", "url": mcp_server.url, "token": TOKEN, "everyTool": "true", "everyProject": "true"}
    olivia.send(page(acme, "mcp-servers"), {**server, "timeoutSeconds": "30", "test": "false"})
    olivia.send(
        page(acme, "guardrails/rules/new/blocked_terms"),
        {"name": "House words", "terms": "Project Falcon\nmoonshot", "matchType": "contains", "action": "block"},
    )
    watch(acme.id, ago())
    delivered = {"delivered_rows": 1_234_567, "last_delivered_at": ago(minutes=1)}
    make_sink(world, "webhook", "https://logs.acme.example/in", **delivered)
    make_sink(world, "s3", "https://s3.example", options={"bucket": "acme-logs", "region": "eu-central-1"})
    broken = {"status": "failed", "failures": 12, "failing_since": ago(days=1), "last_error": "It answered 503"}
    make_sink(world, "otlp", "https://langfuse.example", **broken)
    make_destination(
        world, "slack", "https://hooks.slack.example/services/T0/B0/secret", failures=2, last_error=HOSTILE
    )
    make_destination(world, "pagerduty", "https://events.pagerduty.com/v2/enqueue")
    evaluate([acme.id], ago())
    add_resolved_alert(world, "The p95 latency of the model gpt-5-mini is 31.4 s", fired_at=ago(hours=3))
    program = Program()
    program.register(client_name="Claude Code")
    program.allowed_by(world.olivia, world.project)
    key = ApiKey.objects.get(description="Web shop")
    ApiKey.objects.filter(pk=key.id).update(
        description=LONG_NAME, usage_limit=Decimal("12345.5"), period_limit=Decimal(1500), period="month"
    )
    for rule in (
        {"effect": "allow", "kind": "models", "models": "gpt-5\nclaude-sonnet-4-5\nno-such-model"},
        {"effect": "deny", "kind": "pricing", "pricingType": "paid", "maxInputPrice": "1234.5"},
    ):
        olivia.send(page(acme, f"keys/{key.id}"), {"action": "add-rule", **rule})
    rollup.roll_up()
    paid = Transaction.objects.filter(type=Transaction.Type.CREDIT_TOPUP).latest("created_at")
    return {
        "organization_id": acme.id,
        "key_id": key.id,
        "limit_id": _add_limits(world, key).id,
        "project_id": world.project.id,
        "member_id": _add_limit_of(world, world.dana).id,
        "team_id": _add_teams(world, key).id,
        "log_id": log_id,
        "session_id": SESSION,
        "server_id": McpServer.objects.get().id,
        "rule_id": CustomRule.objects.get().id,
        "kind": "custom_regex",
        "model_id": "gpt-5",
        "transaction_id": paid.id,
        "month": f"{datetime.now(UTC):%Y-%m}",
        "only_of": {
            "accept_invitation": {"organization_id": world.elsewhere.id},
            "provider_models": {"key_id": box.id},
            "own_server": {"key_id": box.id},
        },
        "invitation_id": Invitation.objects.get(organization=world.elsewhere).id,
    }


def _add_teams(world: World, key: ApiKey) -> Team:
    """Return one of Acme's teams: with a whole, members, a project, a key and a limit; and add a service account."""
    whole = create_team(organization=world.acme, name="Customers")
    team = create_team(organization=world.acme, name=LONG_NAME[:100], parent_id=str(whole.pk))
    for user, is_lead in ((world.dana, True), (world.adam, False)):
        membership = world.acme.memberships.get(user=user)
        add_team_member(team=team, member_id=str(membership.pk), is_lead=is_lead)
    change_project(project=key.project, changes={"team_id": str(team.pk)})
    create_service_account(organization=world.acme, name=LONG_NAME[:100], team_id=str(team.pk))
    Limit.objects.create(
        organization=world.acme, name="Budget", scope="team", team=team, counts="usd", window="month", amount=1_000
    )
    return team


def _add_limits(world: World, key: ApiKey) -> Limit:
    """Return one of Acme's limits, of which one is used up and another raised."""
    raised = {"raised_amount": Decimal(9_000), "raised_until": ago(days=-3), "raise_reason": "launch week"}
    made = [
        {"name": LONG_NAME[:100], "scope": "key", "api_key": key, "counts": "usd", "window": "month", "amount": 500},
        {"name": "Requests", "scope": "organization", "counts": "requests", "window": "lifetime", "amount": 0},
        {"name": "Free tier", "scope": "end_user", "project": world.project, "counts": "tokens", "window": "day"},
    ]
    found = [Limit.objects.create(organization=world.acme, **{"amount": 5_000, **one}, **raised) for one in made]
    return found[0]


def _add_limit_of(world: World, user: User) -> Membership:
    """Return the membership of a user of Acme, with a limit."""
    Limit.objects.create(
        organization=world.acme, name="Own", scope="member", member=user, counts="usd", window="month", amount=50
    )
    return world.acme.memberships.get(user=user)


def _add_own_server(world: World) -> ProviderKey:
    """Return Acme's key for a server of its own, with models that have a context and prices, and others."""
    models = [
        {"name": "qwen2.5-vl-72b-instruct-awq", "contextLength": 131_072, "capabilities": ["tools", "vision"]},
        {"name": "llama3.2:latest", "contextLength": 8_192, "capabilities": ["tools"]},
        {"name": "hf.co/bartowski/Mistral-Small-24B-Instruct-2501-GGUF:Q4_K_M"},
    ]
    settings = {"llama3.2:latest": {"inputPrice": "0.05", "outputPrice": "0.2"}, "old-model": {"contextLength": 4_096}}
    return ProviderKey.objects.create(
        organization=world.acme,
        provider="custom",
        provider_name="gpu-box",
        base_url="https://models.acme.example/v1",
        server="ollama",
        encrypted_token=encrypt_credential(""),
        found_models=models,
        model_settings=settings,
        models_asked_at=ago(minutes=7),
        models_problem="The server answered 500 at /api/show",
    )


def path_of(name: str, ids: dict[str, Any], **others: Any) -> str:
    """Return the path of a route, with the ids that it asks for. Raises KeyError for one that nothing has."""
    [route] = [one for one in urls.PATTERNS if isinstance(one, URLPattern) and one.name == name]
    given = {**ids, **ids.get("only_of", {}).get(name, {}), **others}
    return reverse(f"console:{name}", kwargs={part: given[part] for part in route.pattern.converters})
