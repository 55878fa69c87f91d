"""`script/clients [--write] [client …]`: every client over a provider of every format, and a table of what worked;
with `--console`, the walk through the console after agents' work instead.

Exit 1 when a test failed, 2 for an unknown client. Starts a product of its own; installs missing clients.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway_project.configuration.data_directory import PROJECT
from tests.clients.gateway import Behind
from tests.clients.matrix import CLIENTS, Cell, Client, clients_of, rows_of, summary_of, table_of, write_table

HERE = Path(__file__).parent
DOCUMENT = PROJECT / "docs" / "clients" / "README.md"


class Watcher:
    """Counts what comes of the tests of each client over each format, and chooses those of some clients."""

    def __init__(self, chosen: list[Client]) -> None:
        self._chosen = chosen
        self.seen: dict[tuple[Client, str], Cell] = {}
        self._cells: dict[str, list[Cell]] = {}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the tests that run over some provider's format and are of the chosen clients."""
        kept = [item for item in items if self._take(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    def _take(self, item: pytest.Item) -> bool:
        params: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
        behind = params.get("behind")
        if not isinstance(behind, Behind):
            return False
        clients = [client for client in clients_of(key_of(item, params)) if client in self._chosen]
        cells = [self.seen.setdefault((client, behind.format), Cell()) for client in clients]
        for cell in cells:
            cell.expected += 1
        self._cells[item.nodeid] = cells
        return bool(clients)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test once: when it has run, or when it could not."""
        for cell in self._cells.get(report.nodeid, ()):
            if report.failed:
                cell.failed += 1
            elif report.skipped:
                cell.skipped += 1
            elif report.passed and report.when == "call":
                cell.passed += 1


def key_of(item: pytest.Item, params: dict[str, Any]) -> str:
    """Return a test's file and name, as the table of clients has them."""
    names = [item.path.name]
    owner = getattr(item, "cls", None)
    if owner is not None:
        names.append(owner.__name__)
    if isinstance(params.get("client"), str):
        # For tests that run for several clients.
        names.append(params["client"])
    return "::".join([*names, item.name])


def main(arguments: list[str]) -> int:
    """Run the tests of clients, print the table, and write it where asked to. Return the exit code."""
    parser = argparse.ArgumentParser(prog="script/clients", description=__doc__)
    names = sorted({client.name for client in CLIENTS})
    parser.add_argument("client", nargs="*", help="the beginnings of clients' names; all clients when there is none")
    parser.add_argument("--write", action="store_true", help=f"put the rows into {DOCUMENT.relative_to(PROJECT)}")
    parser.add_argument("--list", action="store_true", help="name the clients, and run nothing")
    parser.add_argument(
        "--console", action="store_true", help="check the console's pages after three agents' work, alone"
    )
    asked = parser.parse_args(arguments)
    if asked.list:
        print("\n".join(names))
        return 0
    if asked.console:
        return int(pytest.main(["-m", "", "-v", "--no-header", str(HERE / "test_console_walk.py")]) != 0)
    wanted = tuple(name.lower() for name in asked.client)
    chosen = [client for client in CLIENTS if not wanted or client.name.lower().startswith(wanted)]
    if not chosen:
        print(f"no client is called so; there are: {', '.join(names)}", file=sys.stderr)
        return 2
    watcher = Watcher(chosen)
    files = list(dict.fromkeys(str(HERE / test.split("::")[0]) for client in chosen for test in client.tests))
    # The tests of agents over each format are left out of usual runs: an empty expression takes them in.
    code = pytest.main(["-m", "", "-v", "--no-header", *files], plugins=[watcher])
    rows = rows_of(watcher.seen, datetime.now(UTC).date().isoformat())
    print(f"\n{table_of(rows)}\n\n{summary_of(watcher.seen)}")
    if asked.write:
        write_table(DOCUMENT, rows)
    return int(code != 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
