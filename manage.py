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
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
    from django.db.utils import OperationalError

    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"{error}")
    except OperationalError as error:
        if "no-database-is-running" not in str(error):
            raise
        sys.exit("no database is running: start script/server, or set DATABASE_URL")


if __name__ == "__main__":
    main()
