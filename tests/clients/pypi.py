"""Programs from PyPI that bring an environment of their own, made once and kept in pytest's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

OPENAI_AGENTS = "openai-agents==0.24.0"
# Its newest release wants an older google-genai than the one that is tested here itself.
LANGCHAIN_GOOGLE = "langchain-google-genai==4.4.2"
AIDER = "aider-chat==0.86.2"
OPENROUTER = "openrouter==1.3.84"
# Without the second it cannot be imported.
LITELLM = "litellm==1.106.2 mcp"
INSTRUCTOR = "instructor==1.17.0"
DSPY = "dspy==3.4.1"
LLM = "llm==0.36"
LLAMA_INDEX_EMBEDDINGS = "llama-index-embeddings-openai-like==0.4.0"
LLAMA_INDEX = "llama-index-llms-openai-like==0.8.1"

_INSTALL_PATIENCE, RUN_PATIENCE = 400, 150


def installed(package: str, config: pytest.Config) -> Path:
    """Return the interpreter of an environment that has the packages (with a blank between them). Skips where the index
    cannot be reached, or has not all that they need."""
    assert config.cache is not None
    folder = config.cache.mkdir("pypi-" + package.replace("=", "-").replace(" ", "-"))
    python, done = folder / "bin" / "python", folder / "done"
    if done.exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", str(folder)], timeout=_INSTALL_PATIENCE, check=True)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *package.split()]
    try:
        subprocess.run(command, timeout=_INSTALL_PATIENCE, check=True, capture_output=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"the package index cannot be reached: {error}")
    done.touch()
    return python


def run(python: Path, program: str, *, home: Path, **environment: str) -> str:
    """Return what a program prints under an environment's interpreter; it sees `home` and these variables."""
    done = subprocess.run(
        [str(python), "-c", program],
        env={"PATH": os.environ["PATH"], "HOME": str(home), **environment},
        capture_output=True,
        text=True,
        timeout=RUN_PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
