"""Removal of a home and its folders elsewhere: data that the database's user can reach, and copies of programs.

`gateway remove-home` lists the folders, and `gateway remove-home --yes` removes them. Data elsewhere go before the
home, whose link leads to them, so an interrupted removal can be repeated.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from gateway_project.configuration import data_directory
from gateway_project.configuration.terminal_output import print_line
from gateway_project.embedded import programs

_YES = "--yes"


def main(arguments: Sequence[str]) -> int:
    """Remove the home, or say what would be removed; return the exit code."""
    if list(arguments) not in ([], [_YES]):
        print_line(f"usage: gateway remove-home [{_YES}]")
        return 2
    home = data_directory.path()
    if not (home / "run" / "lock").exists():
        print_line(f"{home} is no home of a server")
        return 1
    try:
        with data_directory.hold_lock(home):
            return _remove(home) if arguments else _tell(home)
    except OSError as error:
        print_line(f"{home} cannot be removed: {error}")
        return 1


def _tell(home: Path) -> int:
    for folder in (home, *_data_elsewhere(home)):
        print_line(f"would remove {folder}")
    print_line(f"nothing was removed; with {_YES} these folders are, the database and all secrets in them")
    return 0


def _remove(home: Path) -> int:
    place = home / "postgres"
    data = place.resolve() / "data" if place.is_symlink() else place
    for folder in _data_elsewhere(home):
        shutil.rmtree(folder)
        print_line(f"removed {folder}")
    for copy in programs.remove_unused_copies(data):
        print_line(f"removed {copy}, which no other data need")
    shutil.rmtree(home)
    print_line(f"removed {home}")
    return 0


def _data_elsewhere(home: Path) -> list[Path]:
    """Return the folder that the home's link leads to, where the product made it and it is there."""
    place = home / "postgres"
    target = place.resolve()
    is_ours = place.is_symlink() and target.parent == programs.ELSEWHERE.resolve() and target.name.startswith("data-")
    return [target] if is_ours and target.exists() else []
