"""`gateway config` over HTTP, against a server: export, plan, apply, and what happens when things change or fail."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from apps.alerts.evaluation import watch
from apps.alerts.models import AlertDestination, AlertRule
from apps.guardrails.models import CustomRule, GuardrailConfig
from apps.keys.models import ApiKey, IamRule, ProviderKey
from apps.limits.models import Limit
from apps.log_sinks.models import LogSink
from apps.mcp_servers.models import McpServer
from apps.organizations.models import AuditEntry, ManagementScope, Organization, Plan, Project, ServiceAccount
from gateway_project.configuration.data_directory import PROJECT
from tests.gateway_project.config_as_code.files import SECRETS, WHOLE, Terminal
from tests.support.cast import Caller, World, make_key, make_management_key, make_organization, world

__all__ = ["world"]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def acme(
    world: World,
    live_server: LiveServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Terminal:
    """An admin's terminal for Acme, which is on the plan enterprise; the secrets of the files are set."""
    Organization.objects.update(plan=Plan.ENTERPRISE)
    # Its first rules are there, as after its first minute.
    watch(world.acme.id, timezone.now())
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    key = make_management_key(world.olivia, world.acme, *ManagementScope).token
    return Terminal(live_server.url, key, tmp_path, capsys, monkeypatch)


def rows() -> list[int]:
    """Return how many things there are, and changes in the audit log."""
    kinds = (Project, ApiKey, IamRule, ProviderKey, McpServer, LogSink, GuardrailConfig, CustomRule, AuditEntry)
    kinds += (AlertDestination, AlertRule)
    return [kind._default_manager.count() for kind in kinds]


def test_an_exported_organization_makes_an_empty_one_the_same(
    acme: Terminal, world: World, live_server: LiveServer, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied = acme.apply(WHOLE)
    assert (applied.err, applied.code) == ("", 0)
    exported = acme.run("export")
    assert (exported.err, exported.code) == ("", 0)
    document = yaml.safe_load(exported.out)
    [default, old] = document["projects"]
    assert (default["keys"][0]["usageLimit"], default["keys"][0]["periodLimit"]) == (
        "12.5",
        {"amount": "5", "period": "day"},
    )
    assert [key["status"] for key in default["keys"]] == ["active", "inactive"]
    assert document["teams"] == [
        {"name": "Search", "parent": None, "members": [{"email": "olivia@example.com", "isLead": True}]},
        {"name": "Ranking", "parent": "Search", "members": []},
    ]
    assert document["serviceAccounts"] == [{"name": "Web shop", "team": "Search"}]
    assert [(one["team"], one["serviceAccount"]) for one in default["keys"]] == [("Search", "Web shop"), (None, None)]
    assert (default["team"], old["team"]) == ("Ranking", None)
    assert (old["status"], old["keys"][0]["description"]) == ("archived", "still there")
    limits = {one["name"]: one for one in document["limits"]}
    assert {name: one.get("of") for name, one in limits.items()} == {
        "CI": "Default Project/CI",
        "Cheap": None,
        "Daily of Search": "Search",
        "Everything": None,
        "Shop": "Web shop",
        "Visitors": "Default Project",
    }
    assert limits["Shop"] == {
        "name": "Shop",
        "scope": "member",
        "of": "Web shop",
        "counts": "usd",
        "window": "week",
        "startsOn": "2026-01-07",
        "timeZone": "UTC",
        "amount": "9.5",
        "action": "refuse",
    }
    assert document["mcpServers"][0]["projects"] == ["Old"]
    assert document["logSinks"][0]["secret"] == "${LOG_SINK_ARCHIVE_SECRET}"
    assert document["alertDestinations"] == [
        {"name": "hook", "kind": "webhook", "url": "https://93.184.215.14/alerts", "status": "inactive"}
        | {"secret": "${ALERT_DESTINATION_HOOK_SECRET}"},
        {"name": "on call", "kind": "pagerduty", "url": "https://93.184.215.14/v2/enqueue", "status": "active"}
        | {"routingKey": "${ALERT_DESTINATION_ON_CALL_ROUTING_KEY}"},
        {"name": "team chat", "kind": "slack", "status": "active"}
        | {"webhookUrl": "${ALERT_DESTINATION_TEAM_CHAT_WEBHOOK_URL}"},
    ]
    assert [(one["kind"], one["status"], one["destinations"]) for one in document["alertRules"]] == [
        ("balance_low", "active", None),
        ("limit_share", "inactive", None),
        ("limit_share", "active", ["on call"]),
        ("integration_off", "active", None),
        ("payment_failed", "active", []),
        ("daily_spend", "active", None),
        ("error_rate", "active", ["team chat", "on call"]),
    ]
    assert document["alertRules"][5]["floor"] == "12.5"
    # In the order in which they run.
    assert [rule["name"] for rule in document["guardrails"]["rules"]] == ["ours", "falcons"]
    assert document["guardrails"]["rules"][0]["config"]["secret"] == "${GUARDRAIL_OURS_SECRET}"
    # Into an organization that has nothing but its first project.
    empty = make_organization(owner=world.olivia, name="Empty", plan=Plan.ENTERPRISE)
    key = make_management_key(world.olivia, empty, *ManagementScope).token
    other = Terminal(live_server.url, key, acme.folder, capsys, monkeypatch)
    for name, value in {
        "PROVIDER_KEY_CUSTOM_OURS_TOKEN": SECRETS["OWN_TOKEN"],
        "MCP_SERVER_TICKETS_TOKEN": SECRETS["MCP_TOKEN"],
        "MCP_SERVER_TICKETS_X_TEAM": SECRETS["MCP_HEADER"],
        "LOG_SINK_ARCHIVE_SECRET": SECRETS["SINK_SECRET"],
        "GUARDRAIL_OURS_SECRET": SECRETS["GUARD_SECRET"],
        "ALERT_DESTINATION_HOOK_SECRET": SECRETS["SINK_SECRET"],
        "ALERT_DESTINATION_ON_CALL_ROUTING_KEY": SECRETS["PAGERDUTY_KEY"],
        "ALERT_DESTINATION_TEAM_CHAT_WEBHOOK_URL": SECRETS["SLACK_URL"],
    }.items():
        monkeypatch.setenv(name, value)
    assert other.apply(exported.out).code == 0
    assert other.run("export").out == exported.out
    for secret in SECRETS.values():
        assert secret not in applied.out + exported.out


def test_applying_again_changes_nothing(acme: Terminal) -> None:
    assert acme.apply(WHOLE).code == 0
    before = rows()
    again = acme.apply(WHOLE, "--prune")
    assert (again.code, again.err) == (0, "")
    assert again.out.endswith("No changes.\n")
    assert acme.run("plan", acme.folder / "gateway.yaml").code == 0
    assert rows() == before


def test_a_plan_shows_what_would_change_and_exits_with_2(acme: Terminal) -> None:
    acme.apply(WHOLE)
    before = rows()
    text = WHOLE.replace('usageLimit: "12.50"', "usageLimit: null")
    text = text.replace("requestsPerMinute: 60", "requestsPerMinute: 90")
    text = text.replace("action: warn", "action: block").replace("[gpt-5, echo]", "[gpt-5]")
    text = text.replace("  - name: Old\n", "  - name: New\n    mode: hybrid\n  - name: Old\n")
    shown = acme.run("plan", acme.write(text))
    assert (shown.code, shown.err) == (2, "")
    assert shown.out.splitlines()[2:] == [
        '~ API key "CI" in project "Default Project"',
        '    usageLimit: "12.5" -> null',
        "    requestsPerMinute: 60 -> 90",
        '~ access rule allow_models in API key "CI" in project "Default Project"',
        '    ruleValue.models: ["gpt-5", "echo"] -> ["gpt-5"]',
        '+ project "New"',
        '    name: "New"',
        '    mode: "hybrid"',
        "~ guardrail configuration",
        '    systemRules.prompt_injection.action: "warn" -> "block"',
        "",
        "1 to create, 3 to update, 0 to delete.",
    ]
    assert rows() == before
    assert acme.apply(text).code == 0
    assert acme.run("plan", acme.write(text)).code == 0


def test_drift_since_a_plan_is_refused_and_nothing_changes(acme: Terminal, world: World) -> None:
    acme.apply(WHOLE)
    changed = acme.write(WHOLE.replace("requestsPerMinute: 60", "requestsPerMinute: 90"))
    plan = acme.folder / "plan.json"
    assert acme.run("plan", changed, "--out", plan).code == 2
    kept = plan.read_text()
    assert not [secret for secret in SECRETS.values() if secret in kept]
    ApiKey.objects.filter(description="CI").update(requests_per_minute=70)
    before = rows()
    refused = acme.run("apply", plan, "--yes")
    assert refused.code == 1
    assert "The organization has changed since this plan was made; nothing was changed" in refused.err
    assert "    requestsPerMinute: 70 -> 90" in refused.out
    assert rows() == before
    assert ApiKey.objects.get(description="CI").requests_per_minute == 70
    ApiKey.objects.filter(description="CI").update(requests_per_minute=60)
    # A change of what the file does not describe is no drift.
    make_key(world.dana, world.project, "a person's")
    assert acme.run("apply", plan, "--yes").code == 0
    assert ApiKey.objects.get(description="CI").requests_per_minute == 90


def test_a_plan_of_another_organization_is_refused(acme: Terminal) -> None:
    plan = acme.folder / "plan.json"
    acme.run("plan", acme.write("version: 1\nprojects: [{name: New}]"), "--out", plan)
    kept = json.loads(plan.read_text())
    plan.write_text(json.dumps({**kept, "organizationId": "0"}, separators=(",", ":")))
    refused = acme.run("apply", plan, "--yes")
    assert (refused.code, Project.objects.filter(name="New").exists()) == (1, False)
    assert "The plan is for the organization 0" in refused.err


def test_only_prune_deletes(acme: Terminal, world: World) -> None:
    acme.apply(WHOLE)
    made = make_key(world.dana, world.project, "by hand").key
    text = "version: 1\nprojects: [{name: Default Project, keys: []}]\nlogSinks: []\n"
    kept = acme.apply(text)
    assert kept.code == 0
    assert (
        '  API key "by hand" in project "Default Project" is not in the file and stays; --prune deletes it' in kept.out
    )
    assert kept.out.endswith("No changes.\n")
    assert LogSink.objects.filter(status="active").count() == 1
    pruned = acme.apply(text, "--prune")
    assert pruned.code == 0
    assert "deleted log sink" in pruned.out
    made.refresh_from_db()
    assert (made.status, LogSink.objects.exclude(status="deleted").exists()) == ("deleted", False)
    # Sections that the file does not have are not managed.
    assert (McpServer.objects.get().status, CustomRule.objects.count()) == ("inactive", 2)
    assert [one.name for one in Project.objects.exclude(status="deleted").filter(organization=world.acme)] == [
        "Default Project"
    ]


def test_the_first_error_stops_and_says_what_was_made(acme: Terminal) -> None:
    text = """\
version: 1
projects:
  - name: First
  - name: Second
    keys:
      - {description: fine}
      - {description: wrong, allowedOrigins: [nonsense]}
      - {description: after}
"""
    failed = acme.apply(text)
    assert failed.code == 1
    assert [line for line in failed.out.splitlines() if line.startswith("created")] == [
        'created project "First"',
        'created project "Second"',
        'created API key "fine" in project "Second"',
    ]
    lines = failed.err.splitlines()
    assert lines[0].startswith("projects[1].keys[1].allowedOrigins")
    assert lines[1:] == [
        "Stopped: 3 of 5 changes were made. Not made:",
        '  create API key "wrong" in project "Second"',
        '  create API key "after" in project "Second"',
        "Correct the cause and apply again; no change is made twice.",
    ]
    assert set(ApiKey.objects.values_list("description", flat=True)) == {"fine"}
    assert acme.apply(text.replace("nonsense", '"https://a.example.com"')).code == 0
    assert sorted(ApiKey.objects.values_list("description", flat=True)) == ["after", "fine", "wrong"]


def test_an_apply_that_was_killed_goes_on(acme: Terminal, live_server: LiveServer) -> None:
    names = [f"key {number}" for number in range(8)]
    text = "version: 1\nprojects:\n  - name: New\n    keys:\n" + "".join(
        f"      - description: {one}\n" for one in names
    )
    command = [sys.executable, "-m", "gateway_project", "config", "apply", str(acme.write(text)), "--yes"]
    with subprocess.Popen(
        [*command, "--base-url", live_server.url],
        cwd=PROJECT,
        env={**os.environ, "GATEWAY_API_KEY": acme._key},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith('created API key "key 2"'):
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert 3 <= ApiKey.objects.count() < 8
    assert acme.apply(text).code == 0
    assert sorted(ApiKey.objects.values_list("description", flat=True)) == names
    assert Project.objects.filter(name="New").count() == 1


def test_tokens_go_to_a_file_that_only_its_owner_reads(acme: Terminal) -> None:
    text = "version: 1\nprojects: [{name: Default Project, keys: [{description: CI}]}]\n"
    tokens = acme.folder / "tokens"
    tokens.write_text("")
    tokens.chmod(0o644)
    refused = acme.apply(text, "--tokens", tokens)
    assert (refused.code, ApiKey.objects.count()) == (1, 0)
    assert "others can read" in refused.err
    tokens.unlink()
    applied = acme.apply(text, "--tokens", tokens)
    assert applied.code == 0
    assert stat.S_IMODE(tokens.stat().st_mode) == 0o600
    kept = json.loads(tokens.read_text())
    assert kept["key"] == 'API key "CI" in project "Default Project"'
    assert kept["token"] not in applied.out
    assert Caller(kept["token"]).get("/v1/key").status_code == 200


def test_a_new_key_s_token_is_printed_once(acme: Terminal) -> None:
    text = "version: 1\nprojects: [{name: Default Project, keys: [{description: CI}]}]\n"
    [line] = [one for one in acme.apply(text).out.splitlines() if one.startswith("token of")]
    token = line.rpartition(" ")[2]
    assert Caller(token).get("/v1/key").status_code == 200
    assert token not in acme.apply(text).out + acme.run("export").out


def test_a_secret_that_is_not_set_is_refused_before_anything_is_sent(
    acme: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SINK_SECRET")
    before = rows()
    assert acme.run("plan", acme.write(WHOLE)).code == 2
    refused = acme.apply(WHOLE)
    assert refused.code == 1
    assert "logSinks[0].secret: The environment variable SINK_SECRET is not set; nothing was changed" in refused.err
    assert rows() == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version: 1\nprojects: [{name: A}, {name: A}]", "projects[1].name: projects[0] has the same name"),
        ("version: 1\nmcpServers: [{name: a, url: 'https://93.184.215.14', projects: [None such]}]",
         "mcpServers[0].projects[0]: There is no project of this name"),
        ("version: 1\nguardrails: {rules: [{name: a, type: lakera, config: {apiKey: in-clear}}]}",
         "guardrails.rules[0].config.apiKey: Must name an environment variable"),
        ("version: 1\nprojects: [{name: A, keys: [{description: b, usageLimit: -1}]}]",
         "projects[0].keys[0].usageLimit: "),
        ("version: 1\nteams: [{name: A, parent: B}]", "teams[0].parent: There is no team of this name"),
        ("version: 1\nteams: [{name: A, parent: A}]", "teams[0].parent: Must be a team that is part"),
        ("version: 1\nprojects: [{name: A, team: B}]", "projects[0].team: There is no team of this name"),
        (
            "version: 1\nlimits: [{name: A, scope: team, of: B, counts: usd, window: day, amount: 1}]",
            "limits[0].of: There is no team of this name",
        ),
        (
            "version: 1\nlimits: [{name: A, scope: team, counts: usd, window: day, amount: 1}]",
            "limits[0].of: Required",
        ),
        (
            "version: 1\nlimits: [{name: A, scope: organization, of: B, counts: usd, window: day, amount: 1}]",
            "limits[0].of: Not a field of the scope organization",
        ),
        (
            "version: 1\nteams: [{name: A, members: [{email: x@example.com}]}]",
            "teams[0].members[0].email: No member of the organization has this address",
        ),
        ("version: 1\nprojects: [{name: A, keys: [{description: b, serviceAccount: C}]}]",
         "projects[0].keys[0].serviceAccount: There is no service account of this name"),
        ("version: 1\nalertRules: [{kind: latency, milliseconds: 9, aspect: model, destinations: [none]}]",
         "alertRules[0].destinations[0]: There is no alert destination of this name"),
        ("version: 1\nalertRules: [{kind: error_rate, percent: 5, aspect: model, name: ''}, "
         "{kind: error_rate, percent: 5, aspect: model, minRequests: 20}]",
         "alertRules[1].kind: alertRules[0] has the same name"),
        ("version: 1\nalertDestinations: [{name: a, kind: slack, webhookUrl: 'https://hooks.slack.com/services/T0'}]",
         "alertDestinations[0].webhookUrl: Must name an environment variable"),
        ("version: 1\na: &a [*a]", "a: Anchors"),
    ],
    ids=lambda text: text[:50],
)  # fmt: skip
def test_a_wrong_file_changes_nothing(acme: Terminal, text: str, words: str) -> None:
    before = rows()
    refused = acme.apply(text)
    assert (refused.code, refused.out) == (1, "")
    assert words in refused.err
    assert rows() == before


def test_a_service_account_named_like_a_member_is_another_owner(acme: Terminal, world: World) -> None:
    address = world.olivia.email
    text = f"""\
version: 1
serviceAccounts: [{{name: {address}}}]
limits:
  - {{name: Hers, scope: member, of: {address}, counts: requests, window: day, amount: 1}}
  - {{name: The account's, scope: member, of: service-account/{address}, counts: requests, window: day, amount: 2}}
"""
    applied = acme.apply(text)
    assert (applied.err, applied.code) == ("", 0)
    account = ServiceAccount.objects.get()
    assert dict(Limit.objects.values_list("name", "member_id")) == {
        "Hers": world.olivia.pk,
        "The account's": account.account_id,
    }
    document = yaml.safe_load(acme.run("export").out)
    owners = {one["name"]: one["of"] for one in document["limits"]}
    assert owners == {"Hers": address, "The account's": f"service-account/{address}"}
    assert acme.apply(text, "--prune").out.endswith("No changes.\n")


def test_two_things_of_one_name_are_refused_by_name(acme: Terminal, world: World) -> None:
    for _ in range(2):
        make_key(world.dana, world.project, "twice")
    exported = acme.run("export")
    assert (exported.code, exported.out) == (1, "")
    assert 'At the gateway, keys of project "Default Project": Two have the name API key "twice"' in exported.err
    assert acme.run("export", "--section", "mcpServers").code == 0
    refused = acme.apply("version: 1\nprojects: [{name: Default Project, keys: [{description: twice}]}]")
    assert (refused.code, ApiKey.objects.count()) == (1, 2)


def test_a_fixed_field_is_refused_with_what_the_gateway_has(acme: Terminal) -> None:
    acme.apply(WHOLE)
    before = rows()
    refused = acme.apply(WHOLE.replace("https://93.184.215.14/hook", "https://93.184.215.15/hook"))
    assert refused.code == 1
    assert 'logSinks[0].url: Cannot be changed: the gateway has "https://93.184.215.14/hook"' in refused.err
    assert rows() == before


def test_what_the_key_may_not_change_is_refused_by_the_gateway(acme: Terminal, world: World) -> None:
    refused = acme.apply("version: 1\norganization: {retentionLevel: retain}\n")
    assert refused.code == 1
    assert "organization: This needs the role owner in the organization; yours is admin" in refused.err
    world.acme.refresh_from_db()
    assert world.acme.retention_level == "none"


def test_an_export_leaves_out_what_the_plan_does_not_have(acme: Terminal) -> None:
    Organization.objects.update(plan=Plan.FREE)
    exported = acme.run("export")
    assert exported.code == 0
    assert exported.err.startswith("guardrails is left out: ")
    assert "guardrails" not in yaml.safe_load(exported.out)


def test_without_a_terminal_apply_needs_yes(acme: Terminal) -> None:
    refused = acme.run("apply", acme.write("version: 1\nprojects: [{name: New}]"))
    assert refused.code == 1
    assert "Nothing was changed: without a terminal, --yes is needed" in refused.err
    assert not Project.objects.filter(name="New").exists()


def test_control_characters_of_names_do_not_reach_the_terminal(acme: Terminal, world: World) -> None:
    Project.objects.create(organization=world.acme, name="a\x1b[2Jb\u202ec")
    shown = acme.run("plan", acme.write("version: 1\nprojects: [{name: Default Project}]"))
    assert shown.code == 0
    assert 'project "a\\x1b[2Jb\\u202ec" is not in the file' in shown.out


def test_errors_of_usage_and_of_the_gateway_exit_with_1(acme: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    assert acme.run("plan").code == 1
    assert acme.run("plan", acme.folder / "none.yaml").err.endswith(
        "none.yaml cannot be read: No such file or directory\n"
    )
    acme._key = "gw_mgmt_" + "0" * 40
    answer = acme.run("export")
    assert answer.code == 1
    assert "GET /organization was refused (401)" in answer.err
    acme._key = ""
    assert "Set GATEWAY_API_KEY to a management key" in acme.run("export").err
