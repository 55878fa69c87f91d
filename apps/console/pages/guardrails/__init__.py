"""Guardrails: what is in force, rules of one's own, a text tried out, violations."""

from __future__ import annotations

from apps.console.pages.guardrails import custom_rules, settings, trial, violations

PATHS = [*settings.PATHS, *custom_rules.PATHS, *trial.PATHS, *violations.PATHS]
