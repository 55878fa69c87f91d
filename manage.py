#!/usr/bin/env python3
"""Django's command line; with any Python at hand, the project's own environment is used."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    """Run the command."""
    own_python = Path(__file__).resolve().parent / ".venv" / "bin" / "python"
    if find_spec("django") is None and own_python.exists() and not os.environ.get("GATEWAY_OWN_PYTHON"):
        os.environ["GATEWAY_OWN_PYTHON"] = "1"  # Once: an environment without Django ends in Django's own message.
        os.execv(own_python, [str(own_python), *sys.argv])  # noqa: S606 - no shell is wanted
    from gateway_project.__main__ import manage

    sys.exit(manage(sys.argv[1:]))


if __name__ == "__main__":
    main()
