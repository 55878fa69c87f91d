"""The file's shape: refusals with their paths; and that its bounds are those of the API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from apps.alerts.kind_names import KindName
from apps.alerts.models import AlertDestination
from apps.alerts.serializers import (
    AlertDestinationChangesShape,
    AlertRuleChangesShape,
    NewAlertDestinationShape,
    NewAlertRuleShape,
)
from apps.guardrails.models import Action, CustomRule
from apps.guardrails.outside import outside_types
from apps.guardrails.serializers import CustomRuleChangesShape, GuardrailChangesShape
from apps.keys.models import ApiKey, IamRule
from apps.keys.serializers import KeyChangesShape, KeyLimitShape, NewProviderKeyShape, OwnModelChangesShape
from apps.limits.serializers import NewLimitShape
from apps.log_sinks.models import LogSink
from apps.log_sinks.serializers import NewSinkShape
from apps.mcp_servers.serializers import NewServerShape, ServerChangesShape
from apps.organizations.models import Mode, OutagePolicy, RetentionLevel
from apps.organizations.serializers import OrganizationChangesShape, ProjectChangesShape
from apps.organizations.teams.serializers import NewServiceAccountShape, NewTeamMemberShape, NewTeamShape
from gateway_project.config_as_code import document
from gateway_project.config_as_code.document import GUARD_SECRETS, read_document, schema
from gateway_project.config_as_code.yaml_file import ConfigError, read_yaml
from tests.gateway_project.config_as_code.files import WHOLE

PUBLISHED = Path(__file__).parents[3] / "docs" / "configuration-as-code.schema.json"


def test_a_whole_configuration_is_valid_by_the_shape_and_the_published_schema() -> None:
    assert set(read_document(WHOLE.encode())) == {"version", *document.SECTIONS}
    published = PUBLISHED.read_text()
    assert published == schema()
    Draft202012Validator(json.loads(published)).validate(read_yaml(WHOLE.encode()))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "The file must be an object that begins with `version: 1`"),
        ("[]", "The file must be an object that begins with `version: 1`"),
        ("projects: []", "version: Required"),
        ("version: 2", "version: Invalid enum value 2"),
        ("version: 1\nproject: []", "project: Unknown field"),
        ("version: 1\nprojects: {}", "projects: Expected `array`, got `object`"),
        ("version: 1\nprojects: [{mode: credits}]", "projects[0].name: Required"),
        ("version: 1\nprojects: [{name: A}, {name: B, keys: [{description: C, usagelimit: 1}]}]",
         "projects[1].keys[0].usagelimit: Unknown field"),
        ("version: 1\nprojects: [{name: A}, {name: B, keys: [{description: C, usageLimit: much}]}]",
         'projects[1].keys[0].usageLimit: Must be an amount in quotes such as "12.50", at least 0'),
        ("version: 1\nprojects: [{name: A, keys: [{description: C, usageLimit: 1.5}]}]",
         'projects[0].keys[0].usageLimit: Must be an amount in quotes such as "12.50", at least 0'),
        ("version: 1\nprojects: [{name: A, cachingEnabled: on}]", "projects[0].cachingEnabled: Expected `bool`"),
        ("version: 1\nprojects: [{name: A, cacheDurationSeconds: 5}]",
         "projects[0].cacheDurationSeconds: Expected `int` >= 10"),
        ("version: 1\nproviderKeys: [{provider: openai, token: sk-in-clear}]",
         "providerKeys[0].token: Must name an environment variable, as ${NAME}"),
        ("version: 1\nmcpServers: [{name: a, url: 'https://a', headers: {X: clear}}]",
         "mcpServers[0].headers.X: Must name an environment variable"),
        ("version: 1\nguardrails: {rules: [{name: a, type: lakera, config: {apiKey: sk-in-clear}}]}",
         "guardrails.rules[0].config.apiKey: Must name an environment variable"),
        ("version: 1\nlogSinks: [{name: a, kind: ftp, url: 'https://a'}]",
         "logSinks[0].kind: Invalid enum value 'ftp'"),
    ],
    ids=lambda text: text[:60],
)  # fmt: skip
def test_a_file_that_is_wrong_is_refused_with_its_path(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_document(text.encode())
    assert str(refused.value).startswith(words)
    assert "sk-in-clear" not in str(refused.value)


# Fields of a file by the shapes that the API reads them with.
SHAPES: list[tuple[Any, list[Any]]] = [
    (document.OrganizationEntry, [OrganizationChangesShape]),
    (document.TeamEntry, [NewTeamShape]),
    (document.TeamMemberEntry, [NewTeamMemberShape]),
    (document.LimitEntry, [NewLimitShape]),
    (document.ServiceAccountEntry, [NewServiceAccountShape]),
    (document.ProjectEntry, [ProjectChangesShape]),
    (document.ApiKeyEntry, [KeyChangesShape, KeyLimitShape]),
    (document.OwnModelEntry, [OwnModelChangesShape]),
    (document.ProviderKeyEntry, [NewProviderKeyShape]),
    (document.McpServerEntry, [ServerChangesShape, NewServerShape]),
    (document.LogSinkEntry, [NewSinkShape]),
    (document.AlertDestinationEntry, [NewAlertDestinationShape, AlertDestinationChangesShape]),
    (document.AlertRuleEntry, [NewAlertRuleShape, AlertRuleChangesShape]),
    (document.GuardrailConfigEntry, [GuardrailChangesShape]),
    (document.GuardrailRuleEntry, [CustomRuleChangesShape]),
]
# Fields that the API has and a file does not: money, addresses of bills, and ids that a file states by name.
LEFT_OUT = {
    *("billingEmail", "billingCompany", "billingAddress", "billingTaxId"),
    *("autoTopUpEnabled", "autoTopUpThreshold", "autoTopUpAmount"),
    *("organizationId", "projectIds", "acceptedTools", "teamId", "parentId", "serviceAccountId"),
    *("memberId", "scopeId", "raisedAmount", "raisedUntil", "raiseReason", "destinationIds"),
}
OWN = {"keys", "accessRules", "models", "projects", "status", "team", "parent", "serviceAccount"}
OWN |= {"members", "email", "of", "destinations", "webhookUrl"}


@pytest.mark.parametrize(("entry", "shapes"), SHAPES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_file_has_the_fields_of_the_api(entry: Any, shapes: list[Any]) -> None:
    ours = set(entry.__struct_encode_fields__)
    theirs = {name for shape in shapes for name in shape().fields}
    assert theirs - LEFT_OUT - ours == set()
    assert ours - OWN - theirs == set()


def test_a_file_has_the_words_of_the_api() -> None:
    schemas = json.loads(schema())["$defs"]

    def words(entry: str, field: str) -> set[str]:
        shape = schemas[entry]["properties"][field]
        return {word for one in shape.get("anyOf", [shape]) for word in one.get("enum", ()) if word is not None}

    assert words("ProjectEntry", "mode") == set(Mode.values)
    assert words("OrganizationEntry", "retentionLevel") == set(RetentionLevel.values)
    assert words("OrganizationEntry", "outagePolicy") == set(OutagePolicy.values)
    assert words("PeriodLimitEntry", "period") == set(ApiKey.Period.values)
    assert words("AccessRuleEntry", "ruleType") == set(IamRule.Type.values)
    assert words("LogSinkEntry", "kind") == set(LogSink.Kind.values)
    assert words("AlertDestinationEntry", "kind") == set(AlertDestination.Kind.values)
    assert words("AlertRuleEntry", "kind") == set(KindName.values)
    assert words("GuardrailRuleEntry", "type") == set(CustomRule.Type.values)
    assert words("GuardrailRuleEntry", "action") == words("GuardrailConfigEntry", "piiAction") == set(Action.values)


def test_the_secrets_of_guards_are_known() -> None:
    assert {name for one in outside_types().values() for name in one.SECRETS} == GUARD_SECRETS
