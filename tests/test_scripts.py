"""The scripts: each tells what it is for, and does nothing else then."""

from __future__ import annotations

import subprocess
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
    done = subprocess.run([script, option], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [line.removeprefix("#").removeprefix(" ") for line in comment]
    assert list(tmp_path.iterdir()) == []
