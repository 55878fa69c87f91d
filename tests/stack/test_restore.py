"""Backup and restore to the letter: the commands of docs/operations.md are run as they stand, on a running server."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from shutil import which

import psycopg
import pytest

from tests.stack.product import PROJECT, Product, eventually
from tests.stack.spending_keys import SpendingKey, key_with_credits
from tests.support.documented_examples import operations_commands

# Long: each restore stops and starts the whole product; what notices one is tested by tests/billing as well.
pytestmark = [pytest.mark.stack, pytest.mark.long, pytest.mark.timeout(600)]

ASK = "usage=1000,200"
IN_ORDER = "Every balance equals the sum of its ledger entries.\n"
EPOCHS = "SELECT count(*) FROM billing_ledgerepoch"
COUNTS = (
    "SELECT count(*), sum(cost) FROM request_log",
    "SELECT count(*), sum(credits) FROM billing_ledgerentry",
    "SELECT count(*), sum(credits), sum(credits_version) FROM organizations_organization",
    "SELECT count(*) FROM pg_constraint WHERE connamespace = 'public'::regnamespace",
    "SELECT count(*) FROM pg_indexes WHERE schemaname = 'public'",
    "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal",
    "SELECT count(*) FROM pg_inherits",
)
CHARGE = """
from decimal import Decimal
from uuid import UUID
from apps.billing import balances, ledger
from apps.kernel.ids import new_id
moved = ledger.Charge(UUID("{organization}"), new_id(), new_id(), -Decimal("{amount}"), Decimal(0))
balances.publish_or_raise(ledger.charge([moved]))
"""


@pytest.fixture
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A server of this test's own, whose rates are never reached."""
    product = Product(tmp_path_factory.mktemp("restored home"), RATE_LIMIT_ENTERPRISE="0")
    yield product
    product.stop()


def run(script: str, product: Product, folder: Path) -> str:
    """Run commands where an operator would, but for where the dump lies; return what they say."""
    for name in ("gateway.dump", "gateway.sql"):
        script = script.replace(name, str(folder / name))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=PROJECT,
        env=product.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    # The first to look, one of these commands or the settler, logs that an epoch of the ledger has begun.
    told = ("ledger.epoch_began", "balances.resynced")
    complaints = [line for line in done.stderr.splitlines() if not any(event in line for event in told)]
    assert (done.returncode, complaints) == (0, []), done.stdout + done.stderr
    return done.stdout


def ask_database(product: Product, *questions: str) -> list[tuple[object, ...]]:
    """Return the row that each question finds."""
    url = json.loads((Path(product.environment["GATEWAY_HOME"]) / "run" / "stores.json").read_text())["database_url"]
    with psycopg.connect(url) as connection:
        return [connection.execute(question).fetchone() or () for question in questions]


def take_away(product: Product, spending_key: SpendingKey, amount: Decimal) -> None:
    """Charge an organization, as a settler would."""
    product.manage("shell", "-c", CHARGE.format(organization=spending_key.organization_id, amount=amount))


def spend(spending_key: SpendingKey, times: int) -> None:
    for _ in range(times):
        assert spending_key.ask(ASK) == "answered"


def test_a_backup_is_restored_as_the_document_says(product: Product, tmp_path: Path) -> None:
    rich, poor = key_with_credits(product), key_with_credits(product)
    spend(rich, 3)
    spend(poor, 2)
    eventually(lambda: (len(rich.logs()), len(poor.logs())) == (3, 2))
    cost = (Decimal(1) - rich.credits()) / 3
    take_away(product, poor, poor.credits() - Decimal("0.0001"))
    before = (rich.credits(), poor.credits())
    run(operations_commands("backup"), product, tmp_path)
    saved = ask_database(product, *COUNTS)

    # Since then one has spent all it had, and the other was given much.
    take_away(product, rich, rich.credits())
    assert rich.ask(ASK) == "insufficient_credits"
    product.manage("grant_credits", poor.organization_id, "500")
    spend(poor, 4)
    eventually(lambda: len(poor.logs()) == 6)
    assert ask_database(product, *COUNTS) != saved

    said = run(operations_commands("restore"), product, tmp_path)
    assert ask_database(product, *COUNTS) == saved
    assert "database: up to date" in said
    # Begun by it, or by the settler while it was on its way.
    assert ask_database(product, EPOCHS) == [(2,)]
    assert (rich.credits(), poor.credits()) == before
    # The organization with credits is served, and the one without is not.
    assert poor.ask(ASK) == "insufficient_credits"
    spend(rich, 3)
    eventually(lambda: len(rich.logs()) == 6)
    assert (rich.credits(), poor.credits()) == (before[0] - 3 * cost, before[1])
    assert product.manage("check_ledger") == IN_ORDER
    assert " changed 0, corrected the held amount of 0" in product.manage("resync_balances")


def test_a_restore_that_nobody_told_the_gateway_of_is_noticed(product: Product, tmp_path: Path) -> None:
    """Without the last command: the database is another, behind the same address."""
    spending_key = key_with_credits(product)
    spend(spending_key, 1)
    eventually(lambda: len(spending_key.logs()) == 1)
    run(operations_commands("backup"), product, tmp_path)
    product.manage("grant_credits", spending_key.organization_id, "500")
    spend(spending_key, 1)
    eventually(lambda: len(spending_key.logs()) == 2)
    tell = ".venv/bin/python manage.py prepare\n"
    assert tell in operations_commands("restore")
    (before,) = ask_database(product, EPOCHS)
    run(operations_commands("restore").replace(tell, ""), product, tmp_path)
    assert len(spending_key.logs()) == 1
    eventually(lambda: ask_database(product, EPOCHS) != [before])
    take_away(product, spending_key, spending_key.credits() - Decimal("0.0001"))
    assert spending_key.ask(ASK) == "insufficient_credits"
    assert " changed 0, corrected the held amount of 0" in product.manage("resync_balances")


@pytest.mark.skipif(which("gpg") is None, reason="there is no gpg")
def test_an_encrypted_backup_is_restored_as_the_document_says(product: Product, tmp_path: Path) -> None:
    spending_key = key_with_credits(product)
    spend(spending_key, 1)
    eventually(lambda: len(spending_key.logs()) == 1)
    keyring, secret = tmp_path / "gnupg", tmp_path / "passphrase"
    keyring.mkdir(mode=0o700)
    secret.write_text("k7-QvXw2mPz9sLc4")
    begin = f"export GNUPGHOME={keyring}; trap 'gpgconf --kill gpg-agent' EXIT; passphrase={secret}\n"
    run(begin + operations_commands("encrypted backup"), product, tmp_path)
    encrypted = tmp_path / "gateway.dump.gpg"
    assert [path.name for path in tmp_path.glob("gateway.*")] == ["gateway.dump.gpg"]
    assert b"PGDMP" not in encrypted.read_bytes()
    saved = ask_database(product, *COUNTS)
    product.manage("grant_credits", spending_key.organization_id, "500")

    # Neither another passphrase nor a changed file is restored.
    whole = encrypted.read_bytes()
    encrypted.write_bytes(whole[:-40] + bytes(40))
    with pytest.raises(AssertionError, match="gpg: "):
        run(begin + operations_commands("decryption"), product, tmp_path)
    encrypted.write_bytes(whole)
    (tmp_path / "gateway.dump").unlink(missing_ok=True)
    secret.write_text("another")
    with pytest.raises(AssertionError, match="gpg: decryption failed"):
        run(begin + operations_commands("decryption"), product, tmp_path)
    assert not (tmp_path / "gateway.dump").exists()
    secret.write_text("k7-QvXw2mPz9sLc4")

    run(begin + operations_commands("decryption"), product, tmp_path)
    assert (tmp_path / "gateway.dump").stat().st_mode & 0o077 == 0
    assert ask_database(product, *COUNTS) != saved
    run(operations_commands("restore"), product, tmp_path)
    assert ask_database(product, *COUNTS) == saved


def test_a_dump_that_is_cut_short_changes_nothing(product: Product, tmp_path: Path) -> None:
    run(operations_commands("backup"), product, tmp_path)
    before = ask_database(product, *COUNTS)
    dump = tmp_path / "gateway.dump"
    dump.write_bytes(dump.read_bytes()[: dump.stat().st_size // 2])
    with pytest.raises(AssertionError, match="pg_restore"):
        run(operations_commands("restore"), product, tmp_path)
    assert ask_database(product, *COUNTS) == before
    assert product.chat("hi").status_code == 200
