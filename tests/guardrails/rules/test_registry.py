"""The house rules of system rules: found by looking, described in full, and each with its table of texts."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import get_args

import pytest

from apps.guardrails import custom, outside, rules
from apps.guardrails.custom import custom_types
from apps.guardrails.findings.scan_types import RuleAction, RuleSettings, ScannedFile, Span
from apps.guardrails.models import CustomRule, default_system_rules
from apps.guardrails.outside import outside_types
from apps.guardrails.rules import system_rules
from apps.guardrails.text.scanned_text import ScannedText
from gateway_project.configuration.data_directory import PROJECT
from gateway_project.openapi.document import document
from tests.support.guardrails_in_force import SPECIFIED_RULES

CORPUS = Path(__file__).parents[1] / "corpus"
CATEGORIES = {"injection", "jailbreak", "pii", "secrets", "files", "document_leakage", "tool_calls"}
RULES = sorted(system_rules())


def test_the_rules_are_those_of_the_specification() -> None:
    described = {
        rule.id: (rule.default_enabled, rule.default_action, rule.default_observe) for rule in system_rules().values()
    }
    assert described == {
        name: (rule["enabled"], rule["action"], rule.get("observe", False))
        for name, rule in default_system_rules().items()
    }
    assert {rule.category for rule in system_rules().values()} == CATEGORIES
    specified = {name: system_rules()[name] for name in SPECIFIED_RULES}
    assert {
        name: (rule.category, rule.default_enabled, rule.default_action) for name, rule in specified.items()
    } == SPECIFIED_RULES


def test_every_rule_says_in_a_line_what_it_finds() -> None:
    for rule in system_rules().values():
        assert re.fullmatch(r"[A-Z][^\n]{20,110}[^.\s]", rule.summary), rule.id


def test_the_description_of_the_api_names_every_rule() -> None:
    schemas = document()["components"]["schemas"]
    assert schemas["SystemRuleStates"]["required"] == RULES
    changes = schemas["GuardrailChangesRequest"]["properties"]["systemRules"]
    assert (list(changes["properties"]), changes["additionalProperties"]) == (RULES, False)


def test_the_names_of_rules_stand_nowhere_else() -> None:
    """A list of rules that is kept by hand is one more file to change for the next rule."""
    kept = [PROJECT / "gateway_project", PROJECT / "tests" / "bench", PROJECT / "apps"]
    own = (PROJECT / "apps" / "guardrails" / "rules", PROJECT / "apps" / "guardrails" / "migrations")
    listing = [
        path.relative_to(PROJECT)
        for folder in kept
        for path in folder.rglob("*.*")
        if path.suffix in (".py", ".yaml", ".toml") and not path.is_relative_to(own[0]) and path.parent != own[1]
        if sum(f'"{name}"' in (text := path.read_text()) or f"{name}:" in text for name in SPECIFIED_RULES) > 2
    ]
    assert listing == []


def test_every_file_is_a_rule() -> None:
    assert [module.name for module in pkgutil.iter_modules(rules.__path__)] == RULES


@pytest.mark.parametrize("name", RULES)
def test_a_rule_has_a_table_of_texts(name: str) -> None:
    """One that looks at files or calls only has tests of its own, for these are made and not written down."""
    if system_rules()[name].find is None:
        assert (Path(__file__).parent / f"test_{name}.py").is_file()
    else:
        assert [path.suffix for path in CORPUS.glob(f"{name}.*") if path.suffix in (".py", ".jsonl")]


@pytest.mark.parametrize("name", RULES)
def test_a_rule_describes_itself(name: str) -> None:
    module = importlib.import_module(f"apps.guardrails.rules.{name}")
    rule = system_rules()[name]
    assert (module.ID, rule.rule_id) == (name, f"system:{name}")
    assert rule.name
    assert rule.default_action in get_args(RuleAction)
    assert rule.find or rule.find_in_file or rule.find_in_calls


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("raw", ["", " ", "\u200b", "a", "\x00", "\U0010ffff", "中", "e\u0301" * 50])
def test_a_rule_takes_any_text(name: str, raw: str) -> None:
    rule = system_rules()[name]
    if rule.find is not None:
        for span in rule.find(ScannedText(raw), RuleSettings()):
            assert isinstance(span, Span)
            assert 0 <= span.start < span.end <= len(raw)
    if rule.find_in_file is not None:
        rule.find_in_file(ScannedFile(name=raw, declared_type=raw, data=raw.encode("utf-8", "replace")), RuleSettings())


def test_every_file_is_a_custom_type() -> None:
    assert [module.name for module in pkgutil.iter_modules(custom.__path__)] == sorted(custom_types())
    assert [module.name for module in pkgutil.iter_modules(outside.__path__)] == sorted(outside_types())
    assert set(custom_types()) | set(outside_types()) == set(CustomRule.Type.values)
