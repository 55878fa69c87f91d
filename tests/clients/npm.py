"""Programs from npm, installed once and kept in pytest's cache."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

CLAUDE_CODE = "@anthropic-ai/claude-code@2.1.330"
OPENCODE = "opencode-ai@1.18.33"
CODEX = "@openai/codex@0.169.0"
QWEN_CODE = "@qwen-code/qwen-code@0.24.4"
# With the program that runs it: the newest SDK needs a newer one than machines have.
AI_SDK = "ai@7.0.173 @ai-sdk/openai@4.0.118 zod@4 node@22"
OPENROUTER_SDK = "@openrouter/sdk@1.3.19"
# The last one whose dependencies are all there.
PI = "@mariozechner/pi-coding-agent@0.73.1"
CLINE = "cline@3.0.65"
CONTINUE = "@continuedev/cli@1.5.47"
OPENAI = "openai@7.57.0"
ANTHROPIC = "@anthropic-ai/sdk@1.12.0"
OLLAMA = "ollama@0.6.4"
GEMINI_CLI = "@google/gemini-cli@0.61.0"
SERVER_EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"
GOOGLE_GENAI = "@google/genai@3.1.0"
AI_SDK_GOOGLE = "@ai-sdk/google@4.0.121 ai@7.0.173 zod@4.1.12"

_LOOK_PATIENCE, _INSTALL_PATIENCE, RUN_PATIENCE = 60, 400, 150


def installed(package: str, config: pytest.Config) -> Path:
    """Return the folder in which packages (with a blank between them) are installed. Skips where there is no npm or no
    registry to ask."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    assert config.cache is not None
    packages = package.split()
    name = "-".join(one.replace("/", "-").replace("@", "-").strip("-") for one in packages)
    folder = config.cache.mkdir(f"npm-{name}")
    done = folder / "done"
    with (folder / "lock").open("w") as lock:
        # Tests that run at the same time share the folder.
        flock(lock, LOCK_EX)
        if done.exists():
            return folder
        try:
            _npm(folder, "view", packages[0], "version", patience=_LOOK_PATIENCE)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"npm's registry cannot be reached: {error}")
        _npm(folder, "install", "--prefix", str(folder), *packages, patience=_INSTALL_PATIENCE)
        done.touch()
    return folder


def _npm(folder: Path, *arguments: str, patience: float) -> None:
    command = ["npm", *arguments, "--no-audit", "--no-fund", "--loglevel=error"]
    subprocess.run(command, cwd=folder, timeout=patience, check=True, capture_output=True)


def run(command: Sequence[str | Path], *, home: Path, folder: Path, said: str = "", **environment: str) -> str:
    """Run a program in `folder` with `said` as its input, and return its output; it sees `home` and these variables."""
    done = subprocess.run(
        command,
        input=said,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=RUN_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
