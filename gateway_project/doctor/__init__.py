"""Doctor: `gateway doctor [--json]` (or `manage.py doctor`) says what is wrong with a deployment, and what mends it.

Exits with 1 when anything keeps the product from its work, 0 otherwise, 2 for an option that there is not. Reads only.
Knows the order: settings first, without which nothing else can be asked. Must never print a secret.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from gateway_project.doctor.diagnosis import Diagnosis, State
from gateway_project.settings_problems import find_problems
from gateway_project.terminal_output import print_line


def main(arguments: Sequence[str]) -> int:
    """Examine this deployment, tell what was found, and return the exit code."""
    if set(arguments) - {"--json"}:
        print_line("usage: gateway doctor [--json]")
        return 2
    found = examine()
    print_line(as_json(found) if "--json" in arguments else as_text(found))
    return 1 if any(one.state is State.WRONG for one in found) else 0


def examine() -> list[Diagnosis]:
    """Return what there is to tell of this deployment: of its settings alone, where they are wrong."""
    # A pool would wait for a database that is away, again and again.
    os.environ["DATABASE_POOL_SIZE"] = "0"
    problems = find_problems()
    if problems:
        return [Diagnosis("settings", State.WRONG, problem) for problem in problems]
    import django

    django.setup()
    from gateway_project.doctor import deployment

    return [Diagnosis("settings", State.WELL, "can be read, and none is unsafe"), *deployment.examine()]


def as_text(found: Sequence[Diagnosis]) -> str:
    """Return the findings for people: one a line, what would mend it below."""
    width = max(len(one.subject) for one in found)
    lines = []
    for one in found:
        lines.append(f"{one.state.word:<8}{one.subject:<{width}}  {one.told}")
        if one.mend:
            lines.append(f"{'':<8}{'':<{width}}  -> {one.mend}")
    wrong = sum(one.state is State.WRONG for one in found)
    doubtful = sum(one.state is State.DOUBTFUL for one in found)
    return "\n".join([*lines, f"{wrong} wrong, {doubtful} doubtful, {len(found) - wrong - doubtful} well"])


def as_json(found: Sequence[Diagnosis]) -> str:
    """Return the findings for programs: `healthy`, and `findings` of `subject`, `state`, `told` and `mend`."""
    rows = [{"subject": one.subject, "state": one.state.value, "told": one.told, "mend": one.mend} for one in found]
    return json.dumps({"healthy": all(one.state is not State.WRONG for one in found), "findings": rows}, indent=2)
