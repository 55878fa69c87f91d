"""Guardrails: settings, custom rules, a trial of a text, violations."""

from __future__ import annotations

from apps.console.pages.guardrails import custom_rules, settings, trial, violations

PATHS = [*settings.PATHS, *custom_rules.PATHS, *trial.PATHS, *violations.PATHS]
