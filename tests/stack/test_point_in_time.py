"""Point-in-time recovery to the letter: the commands of docs/operations.md bring a database back to a moment."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from gateway_project.embedded import programs
from tests.stack.product import Product, eventually
from tests.stack.spending_keys import key_with_credits
from tests.stack.test_restore import COUNTS, EPOCHS, IN_ORDER, spend
from tests.support.documented_examples import operations_commands
from tests.support.replicated_postgres import Server

# Long: it makes two servers and recovers one; what a restore does to balances is tested by tests/billing as well.
pytestmark = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the user that root runs PostgreSQL as may pass."""
    path = Path(tempfile.mkdtemp(prefix="recovered-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    """A PostgreSQL that an operator runs."""
    made = Server(folder / "database")
    made.start()
    yield made
    made.kill()


@pytest.fixture
def product(tmp_path: Path, server: Server) -> Iterator[Product]:
    """The gateway on it."""
    made = Product(tmp_path / "home", DATABASE_URL=server.url, RATE_LIMIT_ENTERPRISE="0")
    yield made
    made.stop()


def run(name: str, owner: os.stat_result, **variables: str) -> None:
    """Run the commands that the document gives under a name, as the server's user and with its programs."""
    path = f"{programs.passable_copy(programs.find_postgres(None)).folder}:{os.environ['PATH']}"
    subprocess.run(
        ["bash", "-euo", "pipefail", "-c", operations_commands(name)],
        env={**os.environ, "PATH": path, **variables},
        user=owner.st_uid,
        group=owner.st_gid,
        extra_groups=[],
        cwd="/",
        check=True,
        timeout=120,
    )


def test_a_database_is_brought_back_to_the_moment_before_a_mistake(
    product: Product, server: Server, folder: Path
) -> None:
    owner = server.data.stat()
    for name in ("archive", "copies"):
        (folder / name).mkdir()
        os.chown(folder / name, owner.st_uid, owner.st_gid)
    archive, base = str(folder / "archive"), str(folder / "copies" / "base")
    run("archiving", owner, url=server.url, archive=archive)
    server.kill()
    server.start()
    eventually(lambda: server.run("SHOW archive_mode") == [("on",)])
    spending_key = key_with_credits(product)
    spend(spending_key, 3)
    eventually(lambda: len(spending_key.logs()) == 3)
    run("base backup", owner, url=server.url, base=base)
    spend(spending_key, 2)
    eventually(lambda: len(spending_key.logs()) == 5)

    credits = spending_key.credits()
    kept = [server.run(question) for question in COUNTS]
    epochs = server.run(EPOCHS)
    [(moment,)] = server.run("SELECT clock_timestamp()::text")
    # The mistake, and what came after it.
    server.run("DELETE FROM request_log")
    product.manage("grant_credits", spending_key.organization_id, "500")
    spend(spending_key, 1)
    eventually(lambda: spending_key.credits() > credits + 400)
    [(file,)] = server.run("SELECT pg_walfile_name(pg_current_wal_lsn())")
    server.run("SELECT pg_switch_wal()")
    archived = f"SELECT last_archived_wal >= '{file}' FROM pg_stat_archiver"
    eventually(lambda: server.run(archived) == [(True,)])
    server.kill()

    recovered = Server(folder / "recovered", port=server.port)
    recovered.data.parent.mkdir(parents=True, exist_ok=True)
    os.chown(recovered.data.parent, owner.st_uid, owner.st_gid)
    run("recovery to a moment", owner, base=base, data=str(recovered.data), archive=archive, moment=str(moment))
    recovered.start()
    try:
        eventually(lambda: recovered.run("SELECT pg_is_in_recovery()") == [(False,)], patience=60)
        assert [recovered.run(question) for question in COUNTS] == kept
        product.manage("prepare")
        assert recovered.run(EPOCHS) == [(epochs[0][0] + 1,)]
        assert spending_key.credits() == credits
        cost = (Decimal(1) - credits) / 5
        spend(spending_key, 2)
        eventually(lambda: len(spending_key.logs()) == 7)
        assert spending_key.credits() == credits - 2 * cost
        assert product.manage("check_ledger") == IN_ORDER
    finally:
        recovered.kill()
