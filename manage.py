#!/usr/bin/env python3
"""Django's command line; with any Python at hand, the project's own environment is used."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command."""
    own_python = Path(__file__).resolve().parent / ".venv" / "bin" / "python"
    # A virtual environment was chosen by the user; the machine's Python may have another Django, or none.
    if sys.prefix == sys.base_prefix and own_python.exists():
        os.execv(own_python, [str(own_python), *sys.argv])  # noqa: S606 - no shell is wanted
    from gateway_project.__main__ import manage

    sys.exit(manage(sys.argv[1:]))


if __name__ == "__main__":
    main()
