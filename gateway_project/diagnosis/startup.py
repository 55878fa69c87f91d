"""Settings at start: all problems of the environment, reported at once, before anything is started.

`python -m gateway_project.diagnosis.startup` prints each on a line of its own and exits with 1 when there is one.
Secrets are never printed, and no store is asked.
"""

from __future__ import annotations

import os
import sys

from django.core.exceptions import ImproperlyConfigured

from gateway_project.configuration import env
from gateway_project.configuration.terminal_output import print_line
from gateway_project.diagnosis.check import Diagnosis

# Errors about missing store URLs: a server that starts its own stores sets the URLs afterwards.
_OWN_STORES = frozenset({"gateway.E005", "gateway.E006"})


def find_problems() -> list[Diagnosis]:
    """Return why the server cannot start: unreadable values first, then unsafe ones; without any, the warnings."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")
    with env.collect_problems() as problems:
        from django.conf import settings

        try:
            settings.INSTALLED_APPS  # noqa: B018 - to read one is to read them all
        except ImproperlyConfigured as error:
            return [Diagnosis.error("settings", problem) for problem in (*problems, str(error))]
    found = [*(Diagnosis.error("settings", problem) for problem in problems), *_find_unsafe()]
    return [one for one in found if one.is_error] or found


def require_settings() -> None:
    """Read the settings. Raises ImproperlyConfigured when one cannot be read, with all that is wrong, a line each."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway_project.settings")
    with env.collect_problems() as problems:
        from django.conf import settings

        settings.INSTALLED_APPS  # noqa: B018 - as above
    if problems:
        raise ImproperlyConfigured("\n".join([*problems, *_lines(_find_unsafe())]))


def refuse_unsafe() -> None:
    """Raise ImproperlyConfigured naming every error: for processes that start without Django's own checks."""
    from gateway_project.diagnosis.unsafe_settings import find_unsafe

    errors = [str(one.as_django()) for one in find_unsafe() if one.is_error]
    if errors:
        raise ImproperlyConfigured("\n".join(["These settings are not safe to serve with:", *errors]))


def _find_unsafe() -> list[Diagnosis]:
    """Return the unsafe settings. The placeholder of an unreadable value is safe, and adds no error."""
    from gateway_project.diagnosis.unsafe_settings import find_unsafe

    return [one for one in find_unsafe() if one.code not in _OWN_STORES]


def _lines(found: list[Diagnosis]) -> list[str]:
    return [f"{one.message} {one.fix}".rstrip() for one in found if one.is_error]


def main() -> int:
    """Print the problems; return the exit code."""
    problems = _lines(find_problems())
    for problem in problems:
        print_line(f"- {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
