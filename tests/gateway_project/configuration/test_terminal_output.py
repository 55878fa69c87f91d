"""Which lines of processes the terminal gets."""

from __future__ import annotations

import pytest

from gateway_project.configuration.terminal_output import print_important_line


@pytest.mark.parametrize(
    ("line", "is_printed"),
    [
        ("2026-11-28T07:22:55.638849Z [info     ] settler.started                [apps.x] reader=vm:1", False),
        ("2026-11-28T07:22:55.638849Z [debug    ] settler.looked                 [apps.x]", False),
        ("2026-11-28T07:22:55.638849Z [warning  ] message.not_sent               [apps.x] error=OSError", True),
        ("2026-11-28T07:22:55.638849Z [error    ] settler.failed                 [apps.x]", True),
        ("POST /v1/chat/completions 200 12 ms", True),
        ("Subject: [info     ] Choose another password", True),
    ],
)
def test_in_development_lines_that_say_that_all_goes_well_are_for_the_log_file(
    capfd: pytest.CaptureFixture[str], line: str, is_printed: bool
) -> None:
    print_important_line("settler", line)
    assert capfd.readouterr().out == (f"settler | {line}\n" if is_printed else "")
