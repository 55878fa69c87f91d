"""Doctor: `gateway doctor [--json]` (or `manage.py doctor`) reports problems of a deployment and how to fix them.

Exits with 1 if there is an error, 0 otherwise, 2 for an unknown option. Reads only.
The settings are checked first, because all other checks need them. Secrets are never printed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from gateway_project.configuration.terminal_output import print_line
from gateway_project.diagnosis.check import Diagnosis, Stage, State
from gateway_project.diagnosis.startup import find_problems


def main(arguments: Sequence[str]) -> int:
    """Check this deployment, print the findings, and return the exit code."""
    if set(arguments) - {"--json"}:
        print_line("usage: gateway doctor [--json]")
        return 2
    found = examine()
    print_line(as_json(found) if "--json" in arguments else as_text(found))
    return 1 if any(one.is_error for one in found) else 0


def examine() -> list[Diagnosis]:
    """Return the findings for this deployment; only those about its settings if these are wrong."""
    # A pool would wait for an unreachable database repeatedly.
    os.environ["DATABASE_POOL_SIZE"] = "0"
    problems = find_problems()
    if any(one.is_error for one in problems):
        return problems
    import django

    django.setup()
    from gateway_project.diagnosis import registry

    problems = problems or [Diagnosis.ok("settings", "can be read, and none is unsafe")]
    return [*problems, *registry.examine(Stage.DOCTOR)]


def as_text(found: Sequence[Diagnosis]) -> str:
    """Return the findings as text: one a line, its fix below."""
    width = max(len(one.subject) for one in found)
    lines = []
    for one in found:
        lines.append(f"{one.state.value:<8}{one.subject:<{width}}  {one.message}")
        if one.fix:
            lines.append(f"{'':<8}{'':<{width}}  -> {one.fix}")
    errors = sum(one.is_error for one in found)
    warnings = sum(one.state is State.WARNING for one in found)
    return "\n".join([*lines, f"errors: {errors}, warnings: {warnings}, ok: {len(found) - errors - warnings}"])


def as_json(found: Sequence[Diagnosis]) -> str:
    """Return the findings for programs: `healthy`, and `findings` of `subject`, `state`, `told` and `mend`."""
    rows = [{"subject": one.subject, "state": one.state.value, "told": one.message, "mend": one.fix} for one in found]
    return json.dumps({"healthy": not any(one.is_error for one in found), "findings": rows}, indent=2)
