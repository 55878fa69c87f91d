"""Processes load what they need from the start, and nothing else: each module more is time of the start, and memory of
every process that has it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gateway_project.configuration.data_directory import PROJECT

# Modules that answer requests, show pages and scan.
ANSWERING = r"apps\.(guardrails\.rules\.\w+|console\.pages|\w+\.admin|\w+\.views|gateway\.run|gateway\.access\.policy)"
SCANNING = r"re2|ahocorasick(_rs)?|apps\.guardrails\.(rules|rule_thread|scanning\.engine)"
PAGES = r"gateway_project\.(routes|urls)|webauthn|segno"
# Modules that call providers for batches, which a worker without any does not load.
BATCHES = r"apps\.batches\.(work|line_runs|native\.\w+_api)|apps\.gateway\.(pipeline|tasks|client\.\w+)|json_repair"
# The shell of `celery amqp`, and its terminal library.
SHELL = r"click_repl\..+|prompt_toolkit"
DJANGO = r"django\.(db|urls|core\.checks|http|template|apps)"
HEAVY = f"{ANSWERING}|{SCANNING}|{PAGES}"
CELERY = """
from gateway_project.__main__ import main
try:
    main(["celery", "--quiet", "--app", {app!r}, {command!r}, "--help"])
except SystemExit:
    pass
"""
BEAT = CELERY.format(app="gateway_project.beat", command="beat")
WORKER = CELERY.format(app="gateway_project", command="worker") + (
    "from gateway_project.celery import app\n"
    # It announces itself, and loads the tasks.
    "app.WorkController(pool='gevent')\n"
)
CHECK = "from gateway_project.diagnosis.startup import find_problems\nfind_problems()\n"


def loaded_by(program: str, home: Path, names: str = HEAVY) -> list[str]:
    """Return the modules of such names that a process has loaded when it has begun."""
    settings = "import os; os.environ['DJANGO_SETTINGS_MODULE'] = 'gateway_project.settings'\n"
    loaded = f"\nimport re, sys; print(*sorted(name for name in sys.modules if re.fullmatch({names!r}, name)))"
    done = subprocess.run(
        [sys.executable, "-c", settings + program + loaded],
        cwd=PROJECT,
        env={"GATEWAY_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("command", ["prepare", "settler"])
def test_a_command_loads_no_page_and_no_guardrail(command: str, tmp_path: Path) -> None:
    program = (
        "import django; django.setup()\n"
        f"from apps.gateway.management.commands.{command} import Command\n"
        "command = Command(); command.check(tags=command.requires_system_checks)"
    )
    others = r"requests|zstandard|drf_spectacular\.utils|rest_framework\.fields"
    assert loaded_by(program, tmp_path, f"{HEAVY}|{others}") == []


def test_beat_loads_no_tables_and_no_shell(tmp_path: Path) -> None:
    assert loaded_by(BEAT, tmp_path, rf"{HEAVY}|{SHELL}|{DJANGO}|cryptography\.fernet|gevent") == []


def test_a_worker_loads_what_answers_requests_with_its_first_batch(tmp_path: Path) -> None:
    assert loaded_by(WORKER, tmp_path, rf"{HEAVY}|{SHELL}|{BATCHES}") == []
    asked = WORKER + "from apps.kernel.rest.routes import route_table; route_table()\n"
    assert loaded_by(asked, tmp_path, PAGES) == ["gateway_project.routes", "segno", "webauthn"]


def test_the_web_process_has_scanned_before_its_workers_begin(tmp_path: Path) -> None:
    """They share what the first scans add."""
    program = (
        "from gevent import monkey; monkey.patch_all()\n"
        "import gateway_project.wsgi\n"
        "from apps.guardrails.configuration.compiled_cache import warm_up_rules_once as warm\n"
        "assert warm.cache_info().currsize == 1\n"
    )
    assert loaded_by(program, tmp_path, SHELL) == []


def test_the_check_of_the_settings_loads_no_cryptography_and_no_tables(tmp_path: Path) -> None:
    assert loaded_by(CHECK, tmp_path, rf"{HEAVY}|{DJANGO}|cryptography\.fernet") == []


def test_the_checks_of_the_code_load_the_pages(tmp_path: Path) -> None:
    program = "import django; django.setup()\nfrom django.core.checks import run_checks; assert run_checks() == []"
    assert {"apps.catalog.admin", "apps.organizations.admin"} < set(loaded_by(program, tmp_path))
