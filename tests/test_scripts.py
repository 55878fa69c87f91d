"""The scripts: each prints its help, and what it runs can be imported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway_project.configuration.data_directory import PROJECT

SCRIPTS = sorted(path for path in (PROJECT / "script").iterdir() if not path.name.startswith("_"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_is_the_first_comment(script: Path, option: str, tmp_path: Path) -> None:
    comment = [line for line in script.read_text().split("\nset -eu\n")[0].splitlines()[1:] if line.startswith("#")]
    assert comment
    # From anywhere, and without an environment in which anything could be installed.
    done = subprocess.run([script, option], cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [line.removeprefix("#").removeprefix(" ") for line in comment]
    assert list(tmp_path.iterdir()) == []


# Modules of ours that a script runs: suites of their own, which no test imports whole.
MODULES = sorted(
    {name for script in SCRIPTS for name in re.findall(r"-m ((?:tests|bench)\.[a-z_.]+)", script.read_text())}
)


@pytest.mark.parametrize("name", MODULES)
def test_what_a_script_runs_can_be_imported_without_an_environment(name: str) -> None:
    source = f"import importlib, {name} as m; hasattr(m, '__path__') and importlib.import_module('{name}.__main__')"
    done = subprocess.run(
        [sys.executable, "-c", source],
        cwd=PROJECT,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
