"""Doctor: `gateway doctor [--json]` (or `manage.py doctor`) reports problems of a deployment and how to fix them.

Exits with 1 if there is an error, 0 otherwise, 2 for an unknown option. Reads only.
The settings are checked first, because all other checks need them. Secrets are never printed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from gateway_project.configuration.settings_problems import find_problems
from gateway_project.configuration.terminal_output import print_line
from gateway_project.observability.doctor.diagnosis import Diagnosis, State


def main(arguments: Sequence[str]) -> int:
    """Check this deployment, print the findings, and return the exit code."""
    if set(arguments) - {"--json"}:
        print_line("usage: gateway doctor [--json]")
        return 2
    found = examine()
    print_line(as_json(found) if "--json" in arguments else as_text(found))
    return 1 if any(one.state is State.WRONG for one in found) else 0


def examine() -> list[Diagnosis]:
    """Return the findings for this deployment; only those about its settings if these are wrong."""
    # A pool would wait for an unreachable database repeatedly.
    os.environ["DATABASE_POOL_SIZE"] = "0"
    problems = find_problems()
    if problems:
        return [Diagnosis("settings", State.WRONG, problem) for problem in problems]
    import django

    django.setup()
    from gateway_project.observability.doctor import deployment

    return [Diagnosis("settings", State.WELL, "can be read, and none is unsafe"), *deployment.examine()]


def as_text(found: Sequence[Diagnosis]) -> str:
    """Return the findings as text: one a line, its fix below."""
    width = max(len(one.subject) for one in found)
    lines = []
    for one in found:
        lines.append(f"{one.state.value:<8}{one.subject:<{width}}  {one.told}")
        if one.mend:
            lines.append(f"{'':<8}{'':<{width}}  -> {one.mend}")
    wrong = sum(one.state is State.WRONG for one in found)
    doubtful = sum(one.state is State.DOUBTFUL for one in found)
    return "\n".join([*lines, f"errors: {wrong}, warnings: {doubtful}, ok: {len(found) - wrong - doubtful}"])


def as_json(found: Sequence[Diagnosis]) -> str:
    """Return the findings for programs: `healthy`, and `findings` of `subject`, `state`, `told` and `mend`."""
    rows = [{"subject": one.subject, "state": one.state.value, "told": one.told, "mend": one.mend} for one in found]
    return json.dumps({"healthy": all(one.state is not State.WRONG for one in found), "findings": rows}, indent=2)
