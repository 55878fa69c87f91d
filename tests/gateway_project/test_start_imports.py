"""Processes that answer no requests load neither guardrails nor pages: that takes more than a second of a processor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway_project.configuration.data_directory import PROJECT

HEAVY = r"apps\.(guardrails\.rules\.\w+|console\.pages|\w+\.admin|\w+\.views|gateway\.run)"
LOADED = f"""
import re, sys
print(*sorted(name for name in sys.modules if re.fullmatch({HEAVY!r}, name)))
"""


def loaded_by(program: str, home: Path) -> list[str]:
    """Return the heavy modules that a process has loaded when it has begun."""
    settings = "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'gateway_project.settings'\n"
    done = subprocess.run(
        [sys.executable, "-c", settings + program + LOADED],
        cwd=PROJECT,
        env={"GATEWAY_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize("command", ["prepare", "settler"])
def test_a_command_loads_no_page_and_no_guardrail(command: str, tmp_path: Path) -> None:
    program = (
        "import django; django.setup()\n"
        f"from apps.gateway.management.commands.{command} import Command\n"
        "command = Command(); command.check(tags=command.requires_system_checks)"
    )
    assert loaded_by(program, tmp_path) == []


def test_the_checks_of_the_code_load_the_pages(tmp_path: Path) -> None:
    program = "import django; django.setup()\nfrom django.core.checks import run_checks; assert run_checks() == []"
    assert {"apps.catalog.admin", "apps.organizations.admin"} < set(loaded_by(program, tmp_path))
