"""The supervisor: order of start and stop, restarts, clear refusals, nothing left behind.

The processes are small programs of this file, so that the tests see the supervisor and not the product.
"""
# length: one supervisor, one pair of small programs, and all that may happen to them

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from redis import Redis

from gateway_project.configuration import data_directory
from tests.stack.product import eventually, free_port

WEB = """
import http.server, os, signal, socket, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *words): pass
def stop(*_):
    print('web stopped')
    sys.exit()
if gate := os.environ.get('GATEWAY_START_FD'):
    with open(sys.argv[1], 'w'):
        os.write(int(gate), b'l')
        if not os.read(int(gate), 1):
            sys.exit()
signal.signal(signal.SIGTERM, stop)
print(f'web started as {os.getpid()}')
server = http.server.HTTPServer(('127.0.0.1', 0), Handler, bind_and_activate=False)
server.socket = socket.socket(fileno=int(os.environ['GATEWAY_LISTEN_FD']))
time.sleep(int(os.environ.get('WEB_WAITS', '0')))
os.write(int(os.environ['GATEWAY_READY_FD']), b'1 ')
server.serve_forever()
"""
WORKER = """
import os, signal, sys, time
def stop(*_):
    print('settler stopped')
    sys.exit()
signal.signal(signal.SIGTERM, {stop})
print('settler knows', *(name for name in ('DATABASE_URL', 'REDIS_URL', 'GATEWAY_HOME') if os.environ.get(name)))
time.sleep(60)
"""


class Server:
    """A supervisor of the given Procfile, run as a process of its own."""

    def __init__(self, folder: Path, procfile: str, prepare: list[str], environment: dict[str, str]) -> None:
        (folder / "Procfile").write_text(procfile)
        self.home = folder / "home"
        self.lines: list[str] = []
        self.port = int(environment["PORT"])
        # The shell that started the tests may make them ignore a closed terminal, and the server would inherit that.
        program = (
            "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
            "import sys; from pathlib import Path; from gateway_project.processes.server import main\n"
            "raise SystemExit(main(Path(sys.argv[1]), sys.argv[2:]))"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, folder / "Procfile", *prepare],
            stdout=subprocess.PIPE,
            text=True,
            cwd=data_directory.PROJECT,
            env=environment,
        )

    def wait_until_ready(self) -> int:
        """Return the id of the web process; whether it or the supervisor is the first to be read is chance."""
        lines = [self.read_until("web started as", "ready http"), self.read_until("web started as", "ready http")]
        (started,) = [line for line in lines if "web started as" in line]
        return int(started.split()[-1])

    def read_until(self, *words: str) -> str:
        """Return the first new line with one of the words; fails at the end of the output."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if any(one in line for one in words):
                return self.lines[-1]
        raise AssertionError("\n".join([f"never said {words!r}:", *self.lines]))

    def end(self) -> int:
        """Read to the end and return the exit code."""
        assert self.process.stdout
        self.lines += self.process.stdout.read().splitlines()
        return self.process.wait(60)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Server]]:
    """Start servers on one home and one port, whose Procfile has `web` and a `settler`."""
    folder = Path(tempfile.mkdtemp(prefix="a server "))
    folder.chmod(0o711)
    (folder / "web.py").write_text(WEB)
    (folder / "settler.py").write_text(WORKER.replace("{stop}", "stop"))
    (folder / "stubborn.py").write_text(WORKER.replace("{stop}", "signal.SIG_IGN"))
    monkeypatch.setenv("GATEWAY_HOME", str(folder / "home"))
    port = str(free_port())
    started: list[Server] = []

    def start_one(
        settler: str = "settler.py", prepare: list[str] | None = None, *, stores: bool = False, **variables: str
    ) -> Server:
        """`stores`: embedded ones; else those of the test run, which start nothing."""
        environment = {**os.environ, "PORT": port, "SANDBOX_BASE_URL": "http://127.0.0.1:9/v1", **variables}
        if stores:
            del environment["DATABASE_URL"], environment["REDIS_URL"], environment["CACHE_URL"]
        procfile = f"web: python '{folder}/web.py' '{folder}/loaded'\nsettler: python '{folder}/{settler}'\n"
        started.append(Server(folder, procfile, prepare or ["/bin/echo", "set up"], environment))
        return started[-1]

    yield start_one
    for server in started:
        server.process.kill()
        server.process.wait()
        if server.process.stdout:
            server.process.stdout.close()
    eventually(lambda: processes_on(folder) == [])
    shutil.rmtree(folder)


def processes_on(folder: Path) -> list[psutil.Process]:
    """The processes whose command line names the folder."""
    everyone = psutil.process_iter(["cmdline"])
    return [process for process in everyone if str(folder) in " ".join(process.info["cmdline"] or [])]


def test_starts_in_order_says_ready_and_stops_in_order(start: Callable[..., Server]) -> None:
    server = start(stores=True)
    assert server.read_until("ready") == f"ready http://127.0.0.1:{server.port}"
    told = [line for line in server.lines if "|" not in line]
    assert told == [
        "starting Valkey …",
        "starting the cache …",
        "starting PostgreSQL …",
        "preparing the database …",
        "set up",
        "starting web, settler …",
        f"ready http://127.0.0.1:{server.port}",
    ]
    said = "settler | settler knows DATABASE_URL REDIS_URL GATEWAY_HOME"
    assert said in server.lines or server.read_until("settler knows") == said
    assert set(json.loads((server.home / "run" / "stores.json").read_text())) == {
        "server_url",
        "database_url",
        "redis_url",
        "cache_url",
        "pid",
    }

    server.process.send_signal(signal.SIGTERM)
    assert server.end() == 0
    assert server.lines[-3:] == ["stopping …", "web     | web stopped", "settler | settler stopped"]
    assert "database system is shut down" in (server.home / "logs" / "postgres.log").read_text()
    assert "ready to exit" in (server.home / "logs" / "valkey.log").read_text()
    assert (server.home / "logs" / "settler.log").read_text().splitlines()[-1] == "settler stopped"
    assert not (server.home / "run" / "stores.json").exists()
    assert processes_on(server.home.parent) == []


def test_who_dies_is_started_again_and_stores_keep_their_data(start: Callable[..., Server]) -> None:
    server = start(stores=True)
    first = server.wait_until_ready()
    urls = data_directory.read_store_urls()
    Redis.from_url(urls["redis_url"]).set("kept", 1)
    with psycopg.connect(urls["database_url"]) as connection:
        connection.execute("CREATE TABLE kept ()")

    os.kill(first, signal.SIGKILL)
    assert server.read_until("web ended") == "web ended (signal 9); starting it again at once"
    second = int(server.read_until("web started as").split()[-1])
    assert second != first
    for store in (process for process in processes_on(server.home) if process.ppid() == server.process.pid):
        store.kill()

    def kept() -> bool:
        try:
            with psycopg.connect(urls["database_url"]) as connection:
                connection.execute("TABLE kept")
            return Redis.from_url(urls["redis_url"]).get("kept") == b"1"
        except (psycopg.OperationalError, OSError, ConnectionError):
            return False

    server.read_until("ended (signal 9)")
    server.read_until("ended (signal 9)")
    eventually(kept)
    assert psutil.pid_exists(second)


def test_a_killed_server_leaves_nothing_behind_and_the_next_one_starts(start: Callable[..., Server]) -> None:
    server = start(stores=True)
    server.read_until("ready")
    assert len(processes_on(server.home.parent)) > 4
    server.process.kill()
    server.process.wait()
    eventually(lambda: processes_on(server.home.parent) == [])

    again = start(stores=True)
    again.read_until("ready")
    again.process.send_signal(signal.SIGINT)
    assert again.end() == 0


def test_connections_wait_while_the_web_process_is_away(start: Callable[..., Server]) -> None:
    """None is refused, from its death to the first answer of the next."""
    server = start()
    first = server.wait_until_ready()
    os.kill(first, signal.SIGSTOP)
    waiting = [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(3)]
    os.kill(first, signal.SIGKILL)
    waiting += [socket.create_connection(("127.0.0.1", server.port), timeout=30) for _ in range(3)]
    server.read_until("web started as")
    for client in waiting:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.0 200")
        client.close()


@pytest.mark.parametrize("way", [signal.SIGUSR2, signal.SIGHUP, "command"])
def test_a_reload_starts_the_next_web_process_before_it_stops_the_last(
    start: Callable[..., Server], way: signal.Signals | str
) -> None:
    server = start()
    first = server.wait_until_ready()
    if isinstance(way, str):
        environment = {**os.environ, "GATEWAY_HOME": str(server.home)}
        done = subprocess.run(
            [sys.executable, "-m", "gateway_project.processes.server", "reload"],
            cwd=data_directory.PROJECT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stdout) == (
            0,
            f"asked the server (process {server.process.pid}) to reload; it says how that goes\n",
        )
    else:
        server.process.send_signal(way)
    server.read_until("reloading web")
    second = int(server.read_until("web started as").split()[-1])
    assert server.read_until("reloaded") == f"reloaded web: process {second} serves, process {first} finishes"
    assert "web     | web stopped" not in server.lines
    assert server.read_until("has finished") == f"web process {first} has finished"
    assert "web     | web stopped" in server.lines
    server.process.send_signal(signal.SIGTERM)
    assert server.end() == 0
    assert server.lines[-3:] == ["stopping …", "web     | web stopped", "settler | settler stopped"]


def test_a_reload_that_fails_leaves_the_last_web_process_serving(start: Callable[..., Server]) -> None:
    server = start()
    first = server.wait_until_ready()
    program = server.home.parent / "web.py"
    program.write_text("print('I am broken'); raise SystemExit(3)")
    server.process.send_signal(signal.SIGUSR2)
    server.read_until("web was not reloaded: the new process ended (exit code 3)")
    assert psutil.pid_exists(first)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.0 200")
    # A later reload works.
    program.write_text(WEB)
    server.process.send_signal(signal.SIGUSR2)
    server.read_until("reloaded web")


def test_there_is_nothing_to_reload_without_a_server(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway_project.processes.server", "reload"],
        cwd=data_directory.PROJECT,
        env={**os.environ, "GATEWAY_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, f"no server runs on {tmp_path}\n")


def test_a_second_signal_does_not_wait(start: Callable[..., Server]) -> None:
    server = start("stubborn.py")
    server.read_until("ready")
    server.process.send_signal(signal.SIGINT)
    server.read_until("web stopped")
    asked = time.monotonic()
    server.process.send_signal(signal.SIGINT)
    assert server.end() == 0
    assert time.monotonic() - asked < 5


def test_a_process_that_cannot_start_ends_the_start_with_its_last_words(start: Callable[..., Server]) -> None:
    # The web process is not ready before the settler has ended, however busy the machine is.
    server = start("missing.py", WEB_WAITS="100")
    assert server.end() == 1
    assert any(line.startswith("the server cannot start: settler ended (exit code 2):") for line in server.lines)
    assert "can't open file" in "\n".join(server.lines)
    assert processes_on(server.home.parent) == []


def test_a_set_up_that_fails_ends_the_start(start: Callable[..., Server]) -> None:
    server = start(prepare=["/bin/sh", "-c", "echo no such table; exit 3"])
    assert server.end() == 1
    assert server.lines == [
        "preparing the database …",
        "no such table",
        "the server cannot start: the set-up failed (exit code 3); its words are above",
        "stopping …",
    ]


def test_the_web_process_loads_during_the_set_up_and_serves_after_it(start: Callable[..., Server]) -> None:
    wait_for_web = "until [ -e loaded ]; do sleep 0.05; done; echo set up"
    folder = Path(os.environ["GATEWAY_HOME"]).parent
    server = start(prepare=["/bin/sh", "-c", f"cd '{folder}'; {wait_for_web}"])
    server.wait_until_ready()
    assert next(line for line in server.lines if "set up" in line or "web started" in line) == "set up"


def test_the_set_up_waits_for_the_stores_where_it_wants_to(start: Callable[..., Server]) -> None:
    """By the gate; the store has its socket when the gate opens."""
    program = (
        "import os, sys; from urllib.parse import parse_qs, urlsplit\n"
        "from gateway_project.processes.start_gate import await_start\n"
        "await_start()\n"
        "from redis import Redis; print('the store says', Redis.from_url(os.environ['REDIS_URL']).ping(), flush=True)"
    )
    server = start(prepare=[sys.executable, "-c", program], stores=True)
    server.read_until("ready")
    assert "the store says True" in server.lines


def test_a_taken_port_is_named(start: Callable[..., Server]) -> None:
    server = start()
    server.read_until("ready")
    other = start(GATEWAY_HOME=str(server.home.with_name("other")))
    assert other.end() == 1
    assert other.lines == [
        f"the server cannot start: port {server.port} on 127.0.0.1 is taken: set PORT to another one"
    ]
    assert server.process.poll() is None


def test_a_second_server_on_one_home_is_refused(start: Callable[..., Server]) -> None:
    server = start()
    server.read_until("ready")
    other = start(PORT=str(free_port()))
    assert other.end() == 1
    assert other.lines == [
        f"the server cannot start: a server (process {server.process.pid}) already runs on {server.home}: "
        "stop it, or set GATEWAY_HOME to another folder"
    ]
    assert server.process.poll() is None


def test_a_port_that_is_no_number_is_refused(start: Callable[..., Server]) -> None:
    server = start(PORT="70000")
    assert server.end() == 1
    assert server.lines == ["the server cannot start: PORT must be a number between 1 and 65535; it is '70000'"]


def test_settings_that_are_wrong_are_told_together_before_anything_starts(start: Callable[..., Server]) -> None:
    wrong = {"UPSTREAM_CONNECT_TIMEOUT": "soon", "BODY_LIMIT": "1", "PASSKEY_RP_ID": "https://here"}
    server = start(stores=True, **wrong)
    assert server.end() == 1
    assert server.lines == [
        "- PASSKEY_RP_ID must be a domain such as example.com, without scheme and port; it is 'https://here'",
        "- BODY_LIMIT must be between 1,024 and 1,073,741,824; it is 1",
        "- UPSTREAM_CONNECT_TIMEOUT must be a number; it is 'soon'",
        "the server cannot start: these settings are wrong (above); nothing has been started",
    ]
    assert not (server.home / "logs" / "valkey.log").exists()
