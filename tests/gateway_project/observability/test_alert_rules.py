"""Alert rules in Prometheus' own hands, where promtool is installed: rows that make each fire, or stay silent."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
import yaml

from gateway_project.configuration.data_directory import PROJECT

FOLDER = PROJECT / "deploy" / "prometheus"
PROGRAM = shutil.which("promtool")

needs_promtool = pytest.mark.skipif(PROGRAM is None, reason="promtool is not on PATH (Debian: apt install prometheus)")


def ask(*arguments: str) -> str:
    """Return what promtool says of files in the folder of the rules."""
    done = subprocess.run(
        [PROGRAM or "", *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_rules_are_well_formed() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    number = sum(len(group["rules"]) for group in rules["groups"])
    assert re.search(rf"SUCCESS: {number} rules found", ask("check", "rules", "alerts.yaml"))


@needs_promtool
def test_alerts_fire_when_they_should_and_say_what_they_mean() -> None:
    ask("test", "rules", "alerts_test.yaml")


def test_each_alert_is_made_to_fire() -> None:
    rules = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"] if "alert" in rule}
    tried = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())
    fired = {one["alertname"] for test in tried["tests"] for one in test["alert_rule_test"] if one["exp_alerts"]}
    assert fired == alerts
