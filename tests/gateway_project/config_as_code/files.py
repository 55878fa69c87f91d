"""Files of configurations, and the command as its user runs it against a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gateway_project.__main__ import main

SECRETS = {
    "OWN_TOKEN": "sk-a-secret-of-ours",
    "MCP_TOKEN": "a token for tickets",
    "MCP_HEADER": "a header for tickets",
    "SINK_SECRET": "whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3A=",
    "GUARD_SECRET": "whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3A=",
    "SLACK_URL": "https://93.184.215.14/services/T000/B000/XXXX",
    "PAGERDUTY_KEY": "R0123456789ABCDEFGHIJKLMNOPQRSTU",
}
# One of everything. Addresses are numbers, so that no name is looked up.
WHOLE = """\
version: 1
organization:
  name: Acme
teams:
  - {name: Ranking, parent: Search}
  - name: Search
    members: [{email: Olivia@example.com, isLead: true}]
serviceAccounts:
  - {name: Web shop, team: Search}
projects:
  - name: Default Project
    team: Ranking
    cachingEnabled: true
    cacheDurationSeconds: 600
    keys:
      - description: CI
        team: Search
        serviceAccount: Web shop
        usageLimit: "12.50"
        periodLimit: {amount: 5, period: day}
        requestsPerMinute: 60
        allowedOrigins: ["https://App.example.com"]
        expiresAt: 2099-12-31
        accessRules:
          - {ruleType: allow_models, ruleValue: {models: [gpt-5, echo]}}
          - {ruleType: deny_pricing, ruleValue: {pricingType: paid, maxInputPrice: "2.5"}, status: inactive}
      - description: "off"
        status: inactive
  - name: Old
    status: archived
    mode: credits
    hedgingEnabled: true
    keys:
      - description: still there
providerKeys:
  - provider: custom
    providerName: ours
    baseUrl: https://93.184.215.14
    token: ${OWN_TOKEN}
    replicas: [https://93.184.215.15]
    models:
      - {model: llama, contextLength: 4096, inputPrice: 1, outputPrice: "2.5"}
      - {model: qwen, alias: our-qwen, hourlyPrice: "2.5", tokensPerHour: 5000000, overrides: {vision: false}}
limits:
  - {name: Everything, scope: organization, counts: usd, window: month, timeZone: Europe/Berlin, amount: 500}
  - {name: Daily of Search, scope: team, of: Search, counts: requests, window: day, rolling: 7, amount: 1000}
  - {name: CI, scope: key, of: Default Project/CI, model: "gpt-5*", counts: tokens, window: lifetime, amount: 10000}
  - {name: Shop, scope: member, of: Web shop, counts: usd, window: week, startsOn: 2026-01-07, amount: "9.5"}
  - {name: Cheap, scope: model, model: "echo", counts: usd, window: day, amount: 1}
  - {name: Visitors, scope: end_user, of: Default Project, endUser: bob, counts: requests, window: hour, amount: 5}
mcpServers:
  - name: tickets
    url: https://93.184.215.14/mcp
    status: inactive
    timeoutSeconds: 20
    allowedTools: [search, read]
    projects: [Old]
    token: ${MCP_TOKEN}
    headers: {X-Team: "${MCP_HEADER}"}
logSinks:
  - name: archive
    kind: webhook
    url: https://93.184.215.14/hook
    includeContent: true
    format: json
    secret: ${SINK_SECRET}
alertDestinations:
  - {name: team chat, kind: slack, webhookUrl: "${SLACK_URL}"}
  - {name: on call, kind: pagerduty, url: https://93.184.215.14/v2/enqueue, routingKey: "${PAGERDUTY_KEY}"}
  - {name: hook, kind: webhook, url: https://93.184.215.14/alerts, secret: "${SINK_SECRET}", status: inactive}
alertRules:
  - {kind: balance_low, amount: 5}
  - {kind: limit_share, percent: 80, status: inactive}
  - {kind: limit_share, percent: 100, destinations: [on call]}
  - {kind: integration_off}
  - {kind: payment_failed, destinations: []}
  - {kind: daily_spend, factor: 3, floor: "12.50"}
  - {kind: error_rate, percent: 20, aspect: provider, destinations: [team chat, on call]}
guardrails:
  config:
    enabled: true
    maxFileSizeMb: 2.5
    allowedFileTypes: [Image/PNG]
    piiAction: block
    systemRules:
      prompt_injection: {enabled: true, action: warn, observe: false}
  rules:
    - name: falcons
      type: custom_regex
      config: {pattern: falcon}
      priority: 7
      action: redact
    - name: ours
      type: webhook
      config: {url: "https://93.184.215.14/guard", secret: "${GUARD_SECRET}", timeoutSeconds: 3}
      enabled: false
"""


class Ran(NamedTuple):
    """The output of a command, and its exit code."""

    code: int
    out: str
    err: str


class Terminal:
    """A user with a key, who runs `gateway config` in a folder."""

    def __init__(self, url: str, key: str, folder: Path, capsys: pytest.CaptureFixture[str], environment: Any) -> None:
        self._url, self._key, self.folder, self._capsys, self._environment = url, key, folder, capsys, environment

    def run(self, command: str, *arguments: str | Path) -> Ran:
        """Run a command against the server."""
        self._environment.setenv("GATEWAY_API_KEY", self._key)
        self._capsys.readouterr()
        given = [str(one) for one in arguments]
        try:
            code = main(["config", command, "--base-url", self._url, *given])
        except SystemExit as ended:
            code = int(str(ended.code))
        out, err = self._capsys.readouterr()
        return Ran(code, out, err)

    def write(self, text: str, name: str = "gateway.yaml") -> Path:
        """Write a file in the user's folder."""
        path = self.folder / name
        path.write_text(text)
        return path

    def apply(self, text: str, *arguments: str | Path) -> Ran:
        """Apply a configuration without being asked."""
        return self.run("apply", self.write(text), "--yes", "--no-validate", *arguments)
