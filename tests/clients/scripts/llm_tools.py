"""Tools for llm, as its users write them: functions that a model may call."""

import subprocess
from pathlib import Path


def write_file(path: str, content: str) -> str:
    """Write a file."""
    Path(path).write_text(content)
    return "written"


def run_command(command: str) -> str:
    """Run a command of the shell."""
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout or "done"
