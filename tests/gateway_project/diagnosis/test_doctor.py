"""The doctor: states, findings and fixes for a deployment, as text and JSON, without a secret."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings as current

from apps.catalog.models import Model
from apps.gateway.settlement import outbox
from apps.kernel.valkey.redis import client
from apps.organizations.models import Organization
from gateway_project.diagnosis import doctor, registry
from gateway_project.diagnosis.check import Check, Diagnosis, Stage, State
from gateway_project.diagnosis.database import compare_clock
from tests.gateway_project.diagnosis.test_unsafe_settings import start
from tests.support.shipped_catalog import stock

SECRET = "hunter2-is-no-password"


def examined() -> dict[str, list[Diagnosis]]:
    """Return the findings, by subject."""
    found: dict[str, list[Diagnosis]] = {}
    for one in registry.examine(Stage.DOCTOR):
        found.setdefault(one.subject, []).append(one)
    return found


def test_a_deployment_that_is_well(db: None) -> None:
    stock()
    found = examined()
    # The tests' own stores need not survive a power cut, and the doctor sees that.
    assert {subject for subject, findings in found.items() if any(one.state is State.ERROR for one in findings)} == {
        "database",
        "valkey",
    }
    assert [one.fix for one in found["database"][1:]] == [
        f"set {name} to on" for name in ("fsync", "synchronous_commit", "full_page_writes")
    ]
    assert found["database"][0].message.startswith("PostgreSQL ")
    assert found["migrations"] == [Diagnosis.ok("migrations", "all are applied")]
    assert found["ledger"] == [Diagnosis.ok("ledger", "every balance is the sum of its entries")]
    assert found["cache"] == [Diagnosis.ok("cache", "answers")]
    assert found["queue"] == [Diagnosis.ok("queue", "no record waits")]
    assert [one.state for one in found["clock"]] == [State.OK, State.OK]
    assert found["telemetry"] == [Diagnosis.ok("telemetry", "off: OTEL_EXPORTER_OTLP_ENDPOINT is not set")]
    assert set(found) >= {"catalog", "credentials", "disk", "valkey", "valkey memory", "tasks", "server"}


def test_what_is_wrong_is_told_with_what_mends_it(db: None, settings: Any) -> None:
    Model.objects.all().update(active=False)
    organization = Organization.objects.create(name="Acme")
    Organization.objects.filter(pk=organization.pk).update(credits=5)
    outbox.prepare()
    client().xadd(outbox.STREAMS[0], {"worker": "w", "record": "{}"}, id="1700000000000-0")
    client().xadd("outbox:broken", {"worker": "w", "record": "nonsense"})
    settings.DISK_FREE_ALARM = 2**62
    found = examined()
    assert found["catalog"] == [Diagnosis.error("catalog", "no model is offered", "gateway manage load_catalog")]
    assert found["ledger"][0].message == "1 balances differ from their entries"
    assert [one.state for one in found["queue"]] == [State.ERROR, State.ERROR]
    assert found["queue"][0].message.startswith("1 records wait, the oldest for ")
    assert found["queue"][1].message == "1 records cannot be read"
    assert found["disk"][0].state is State.ERROR


def test_a_store_that_evicts_is_told_of(db: None) -> None:
    before: Any = client().config_get("maxmemory-policy")
    client().config_set("maxmemory-policy", "allkeys-lru")
    try:
        told = [one for one in examined()["valkey"] if one.state is State.ERROR]
    finally:
        client().config_set("maxmemory-policy", before["maxmemory-policy"])
    assert "evicts (allkeys-lru)" in told[0].message


@pytest.mark.parametrize(("seconds", "state"), [(0, State.OK), (10, State.WARNING), (100, State.ERROR)])
def test_clocks_that_are_apart(seconds: int, state: State) -> None:
    assert compare_clock("clock", "Valkey's", datetime.now(UTC) - timedelta(seconds=seconds)).state is state


def test_what_an_error_says_has_no_password_in_it(settings: Any) -> None:
    settings.DATABASE_URL = f"postgresql://app:{SECRET}@db/gateway"
    assert registry.describe_error(OSError(f"cannot reach postgresql://app:{SECRET}@db\nat all")) == (
        "OSError: cannot reach postgresql://app:***@db at all"
    )


def test_it_is_told_to_people_and_to_programs(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = [
        Diagnosis.ok("disk", "5 MB free"),
        Diagnosis.warning("tasks", "late", "look"),
        Diagnosis.error("queue", "waits", "start a settler"),
    ]
    monkeypatch.setattr(doctor, "examine", lambda: found)
    assert doctor.main([]) == 1
    assert capfd.readouterr().out.splitlines() == [
        "ok      disk   5 MB free",
        "warning tasks  late",
        "               -> look",
        "error   queue  waits",
        "               -> start a settler",
        "errors: 1, warnings: 1, ok: 1",
    ]
    assert doctor.main(["--json"]) == 1
    told = json.loads(capfd.readouterr().out)
    assert told["healthy"] is False
    assert told["findings"][2] == {
        "subject": "queue",
        "state": "error",
        "told": "waits",
        "mend": "start a settler",
    }
    monkeypatch.setattr(doctor, "examine", lambda: found[:2])
    assert doctor.main([]) == 0
    assert doctor.main(["--loud"]) == 2


def test_a_check_that_fails_is_a_finding_and_those_that_need_it_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise OSError("no route")

    def unreachable() -> Any:
        raise AssertionError("A check was made that needs one that failed")

    monkeypatch.setattr(
        registry,
        "CHECKS",
        (
            Check("store", Stage.DOCTOR, fail),
            Check("data", Stage.DOCTOR, unreachable, needs="store"),
            Check("rows", Stage.DOCTOR, unreachable, needs="data"),
            Check("cache", Stage.DOCTOR, fail, optional="answers are not kept"),
            Check("elsewhere", Stage.START, unreachable),
        ),
    )
    assert registry.examine(Stage.DOCTOR) == [
        Diagnosis.error("store", "could not be examined: OSError: no route"),
        Diagnosis.warning("cache", "could not be examined: OSError: no route; answers are not kept"),
    ]


def test_warnings_of_settings_are_reported_beside_the_rest(tmp_path: Any) -> None:
    """The doctor reports the warnings of `manage.py check`."""
    done = start(tmp_path, "manage.py", "doctor", "--json", PUBLIC_URL="http://gateway.example")
    found = [one for one in json.loads(done.stdout)["findings"] if one["subject"] == "settings"]
    assert found == [
        {
            "subject": "settings",
            "state": "warning",
            "told": "PUBLIC_URL is not https: keys, passwords and cookies cross the network in clear.",
            "mend": "Put TLS in front and set PUBLIC_URL=https://…, unless this is a trial or a private network.",
        }
    ]


def test_settings_that_are_wrong_are_told_without_a_secret(tmp_path: Any) -> None:
    """As a process of its own: with such settings Django does not start. Nothing answers at the stores' addresses."""
    wrong_ones = {"SECRET_KEY": "changeme-" + SECRET, "REDIS_URL": f"redis+sentinel://:{SECRET}@one:26379/0"}
    done = start(tmp_path, "manage.py", "doctor", "--json", **wrong_ones)
    assert (done.returncode, done.stderr) == (1, "")
    told = [one["told"] for one in json.loads(done.stdout)["findings"]]
    assert told == [
        "REDIS_URL does not name sentinels: it needs ?service= once, with the sentinels' name of the primary",
        # An unreadable setting does not hide the unsafe ones: the same run reports both.
        told[1],
    ]
    assert told[1].startswith("SECRET_KEY ")
    assert SECRET not in done.stdout


def test_stores_that_are_away_are_told_and_the_rest_is_examined(tmp_path: Any) -> None:
    done = start(tmp_path, "-m", "gateway_project", "doctor", DATABASE_URL=f"postgresql://a:{SECRET}@127.0.0.1:1/x")
    assert done.returncode == 1
    lines = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")}
    assert (lines["settings"], lines["database"], lines["valkey"], lines["server"]) == (
        "ok",
        "error",
        "error",
        "warning",
    )
    assert SECRET not in done.stdout + done.stderr
    assert current.SECRET_KEY not in done.stdout
