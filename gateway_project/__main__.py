"""The command `gateway`: `server`, `manage`, `doctor` and `drain`; `python -m gateway_project` in a checkout.

Django is only loaded by the commands that need it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

_USAGE = """usage: gateway COMMAND

  server [reload]   start everything and serve; with `reload`, replace the web process of the server that runs
  manage COMMAND    Django's commands: prepare, demo, create_operator, grant_credits, … (`gateway manage help`)
  doctor [--json]   say what is wrong with this deployment, and what would mend it
  drain [SECONDS]   take this node out of the load balancer (`/readyz`), and wait so long (15)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return its exit code, 2 for an unknown command."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or [""]
    command = _COMMANDS.get(name)
    if command is None:
        asked = name in {"-h", "--help", "help"}
        (sys.stdout if asked else sys.stderr).write(_USAGE)
        return 0 if asked else 2
    return command(rest)


def manage(arguments: Sequence[str]) -> int:
    """Run a command of Django's; return its exit code. Exits with what is wrong, in words, when it cannot run."""
    if arguments[:1] == ["doctor"]:
        # It has to tell of settings with which Django does not even start.
        return _doctor(arguments[1:])
    if arguments[:1] == ["drain"]:
        return _drain(arguments[1:])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
    from django.db.utils import OperationalError

    from gateway_project.data_directory import MANAGE_COMMAND, SERVER_COMMAND
    from gateway_project.settings_problems import require_settings

    try:
        if arguments[:1] not in ([], ["help"], ["--help"]):
            require_settings()
        execute_from_command_line([MANAGE_COMMAND, *arguments])
    except ImproperlyConfigured as error:
        sys.exit(f"{error}")
    except OperationalError as error:
        if "no-database-is-running" not in str(error):
            raise
        sys.exit(f"no database is running: start {SERVER_COMMAND}, or set DATABASE_URL")
    return 0


def _server(arguments: Sequence[str]) -> int:
    from gateway_project import server
    from gateway_project.graceful_reload import request_reload
    from gateway_project.terminal_output import print_line

    return request_reload(print_line) if list(arguments) == ["reload"] else server.main()


def _doctor(arguments: Sequence[str]) -> int:
    from gateway_project import doctor

    return doctor.main(arguments)


def _drain(arguments: Sequence[str]) -> int:
    from gateway_project import draining

    return draining.main(arguments)


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "server": _server,
    "manage": manage,
    "doctor": _doctor,
    "drain": _drain,
}

if __name__ == "__main__":
    sys.exit(main())
