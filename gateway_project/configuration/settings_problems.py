"""Settings problems: all problems of the environment, reported at once, before anything is started.

`python -m gateway_project.configuration.settings_problems` prints each on a line of its own and exits with 1 when there
is one.
Secrets are never printed, and no store is needed.
"""

from __future__ import annotations

import os
import sys

from django.core.exceptions import ImproperlyConfigured

from gateway_project.configuration import env
from gateway_project.configuration.terminal_output import print_line

# Errors about missing store URLs: a server that starts its own stores sets the URLs afterwards.
_STORES_OF_ITS_OWN = frozenset({"gateway.E005", "gateway.E006"})


def find_problems() -> list[str]:
    """Return the reasons why the server cannot start: unreadable values first, then unsafe ones."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")
    with env.collect_problems() as problems:
        from django.conf import settings

        try:
            settings.INSTALLED_APPS  # noqa: B018 - to read one is to read them all
        except ImproperlyConfigured as error:
            problems.append(str(error))
            return problems
    return [*problems, *_unsafe()]


def require_settings() -> None:
    """Read the settings. Raises ImproperlyConfigured when one cannot be read, with all that is wrong, a line each."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")
    with env.collect_problems() as problems:
        from django.conf import settings

        settings.INSTALLED_APPS  # noqa: B018 - as above
    if problems:
        raise ImproperlyConfigured("\n".join([*problems, *_unsafe()]))


def _unsafe() -> list[str]:
    """Return the unsafe settings. The placeholder of an unreadable value is safe, and adds no problem."""
    from gateway_project.configuration.checks import check_settings

    found = [one for one in check_settings() if one.is_serious() and one.id not in _STORES_OF_ITS_OWN]
    return [f"{one.msg} {one.hint or ''}".rstrip() for one in found]


def main() -> int:
    """Print the problems; return the exit code."""
    problems = find_problems()
    for problem in problems:
        print_line(f"- {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
