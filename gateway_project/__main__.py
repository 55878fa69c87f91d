"""The command `gateway`; in a checkout `python -m gateway_project`.

Django and the modules of commands are only loaded by the commands that need them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

_USAGE = """usage: gateway COMMAND

  server [reload]   start everything and serve; with `reload`, replace the web process of the running server
  manage COMMAND    Django's commands: prepare, demo, create_operator, grant_credits, … (`gateway manage help`)
  config COMMAND    an organization as a YAML file: export, plan, apply, … (`gateway config --help`)
  bill COMMAND      a provider's own bill: import FILE, read (`gateway bill --help`)
  doctor [--json]   report problems of this deployment and how to fix them
  celery COMMAND    Celery's commands: worker, beat, inspect, … (`gateway celery --help`)
  drain [SECONDS]   take this node out of the load balancer (`/readyz`), and wait (default: 15 seconds)
  remove-home       list the folders of this home; with `--yes`, remove them
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
    """Run a Django command; return its exit code. Exits with an error message when it cannot run."""
    if arguments[:1] == ["doctor"]:
        # It also reports settings with which Django does not start.
        return _doctor(arguments[1:])
    if arguments[:1] == ["drain"]:
        return _drain(arguments[1:])
    if arguments[:1] == ["remove-home"]:
        return _remove_home(arguments[1:])
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")
    import django
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
    from django.db.utils import OperationalError

    from gateway_project.configuration.data_directory import MANAGE_COMMAND, SERVER_COMMAND
    from gateway_project.diagnosis.startup import require_settings
    from gateway_project.processes.start_gate import START, await_start

    try:
        if arguments[:1] not in ([], ["help"], ["--help"]):
            require_settings()
        is_waited_for = START in os.environ
        if is_waited_for:
            # The server starts `prepare` while its stores start: what takes long is loaded meanwhile.
            django.setup()
            await_start()
        execute_from_command_line([MANAGE_COMMAND, *arguments])
        if is_waited_for:
            # To take the interpreter down takes half a second, for which the server would wait.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    except ImproperlyConfigured as error:
        sys.exit(f"{error}")
    except OperationalError as error:
        if "no-database-is-running" not in str(error):
            raise
        sys.exit(f"no database is running: start {SERVER_COMMAND}, or set DATABASE_URL")
    return 0


def _server(arguments: Sequence[str]) -> int:
    from gateway_project.configuration.terminal_output import print_line
    from gateway_project.processes import server
    from gateway_project.processes.graceful_reload import request_reload

    return request_reload(print_line) if list(arguments) == ["reload"] else server.main()


def _config(arguments: Sequence[str]) -> int:
    from gateway_project.config_as_code import command

    return command.main(arguments)


def _bill(arguments: Sequence[str]) -> int:
    return manage(["bill", *arguments])


def _celery(arguments: Sequence[str]) -> int:
    from celery import maybe_patch_concurrency

    sys.argv = ["celery", *arguments]
    maybe_patch_concurrency()
    from gateway_project import celery_program

    celery_program.run()
    return 0


def _doctor(arguments: Sequence[str]) -> int:
    from gateway_project.diagnosis import doctor

    return doctor.main(arguments)


def _drain(arguments: Sequence[str]) -> int:
    from gateway_project.processes import draining

    return draining.main(arguments)


def _remove_home(arguments: Sequence[str]) -> int:
    from gateway_project.processes import home_removal

    return home_removal.main(arguments)


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "server": _server,
    "manage": manage,
    "config": _config,
    "bill": _bill,
    "celery": _celery,
    "doctor": _doctor,
    "drain": _drain,
    "remove-home": _remove_home,
}

if __name__ == "__main__":
    sys.exit(main())
