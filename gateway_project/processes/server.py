"""The server on one machine: starts stores, set-up and the Procfile's processes in order, supervises and stops them.

Does not import Django. Run as `python -m gateway_project.processes.server`, normally through `script/server`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

from gateway_project import embedded
from gateway_project.configuration import data_directory
from gateway_project.configuration.data_directory import MANAGE_COMMAND
from gateway_project.configuration.server_config import (
    ServerConfig,
    StartError,
    has_terminal,
    is_healthy,
    read_procfile,
    refuse_shared_database,
    reserve_port,
)
from gateway_project.configuration.terminal_output import print_important_line, print_line, print_process_line
from gateway_project.embedded.child_process import spawn
from gateway_project.processes.forked_process import python_arguments
from gateway_project.processes.graceful_reload import (
    DRAIN,
    LISTEN,
    READY,
    Handover,
    Listener,
    WebProcess,
    WebProcesses,
    request_reload,
)
from gateway_project.processes.process_supervisor import (
    ChildProcess,
    ProcessSpec,
    SupervisedProcess,
    forward_output,
    stop_processes,
)
from gateway_project.processes.start_gate import StartGate

# Seconds for the web process to answer.
_READY_PATIENCE = 60.0
_WEB = "web"
# A process that others wait for.
_ANSWERING = frozenset({_WEB, "sandbox"})
_CHECK = (sys.executable, "-m", "gateway_project.diagnosis.startup")
_PREPARE = (sys.executable, "manage.py", "prepare")


class StopRequestedError(Exception):
    """Someone asked the server to stop."""


class Server:
    """One server, from `run` to its end."""

    def __init__(self, config: ServerConfig, listener: Listener, procfile: Path, prepare: Sequence[str]) -> None:
        """Take the processes from `procfile`; `prepare` is run once, to its end, before them."""
        self._listener = listener
        self._config = config
        self._commands = read_procfile(procfile)
        self._prepare_command = prepare
        self._environment = _environment(config)
        self._stores: list[SupervisedProcess] = []
        self._sandbox: list[SupervisedProcess] = []
        self._web: WebProcesses | None = None
        self._processes: list[SupervisedProcess] = []
        self._has_sandbox = config.mode == "development" and not os.environ.get("SANDBOX_BASE_URL")
        # Kept until the end: the port of a sandbox that yet has to start would be taken by any connection.
        self._sandbox_port: socket.socket | None = None
        # The gate of the first web process, until that may serve; later ones need not wait.
        self._web_gate: StartGate | None = None
        self._stop_requests = self._reload_requests = 0

    def run(self) -> int:
        """Serve until asked to stop. Return the exit code: 0 after a clean stop, 1 when the start failed."""
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGUSR2, self._on_reload)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # Which is what nohup asks for.
            # Closing a terminal stops the processes started in it; without a terminal an operator sent the signal.
            signal.signal(signal.SIGHUP, self._on_signal if has_terminal() else self._on_reload)
        try:
            self._start_everything()
            print_line("\n".join([f"ready {self._config.url}", *first_steps(self._config)]))
            while True:
                self._turn(0.2)
                for child in self._children:
                    child.restart_if_ended(print_line)
                self._reload()
        except StopRequestedError:
            return 0
        except StartError as error:
            print_line(f"the server cannot start: {error}")
            return 1
        finally:
            self._stop()

    def _start_everything(self) -> None:
        """Start all in order. The web process loads from the beginning, which takes longest; the stores start while the
        set-up command loads."""
        try:
            stores = self._choose_stores()
            self._load_web()
            self._check_settings()
            self._start_stores(stores)
            self._prepare(stores)
            self._start_processes()
            self._wait_until_ready()
        except OSError as error:
            raise StartError(str(error)) from error

    def _check_settings(self) -> None:
        """Raise StartError when the environment is not fit to serve with; each problem has been printed."""
        with self._running(_CHECK) as check:
            # The web process is not heard meanwhile: it would repeat the problems.
            while check.poll() is None:
                time.sleep(0.02)
                self._heed_signals()
        if check.returncode:
            if self._web is not None:
                self._web.serving.discard()
                self._web = None
            raise StartError("these settings are wrong (above); nothing has been started")

    def _choose_stores(self) -> list[embedded.Store]:
        """Return the embedded stores, and name their addresses to all processes that start later."""
        refuse_shared_database(self._config)
        stores = embedded.choose_stores(self._config.data_directory)
        self._environment |= {store.url_variable: store.url for store in stores}
        return stores

    def _start_stores(self, stores: Sequence[embedded.Store]) -> None:
        """Start the embedded stores; they need not answer yet."""
        for store in stores:
            print_line(f"starting {store.title} …")
            if self._config.data_directory not in store.data.parents:
                print_line(f"its data are in {store.data}, where the user it runs as can reach them")
            role = ProcessSpec(store.name, store.start, store.stop_signal, store.force_signal, embedded.STOP_PATIENCE)
            self._stores.append(self._start(role, shown=False))

    def _wait_for_stores(self, stores: Sequence[embedded.Store]) -> None:
        """Wait until the embedded stores answer, and tell other processes where they are."""
        for store, child in zip(stores, self._stores.copy(), strict=True):
            self._wait(store.answers, child, embedded.START_PATIENCE, f"{store.title} does not answer")
        for flusher in embedded.flushers(stores):
            self._stores.append(self._start(ProcessSpec(flusher.name, flusher.start), shown=False))
        urls = {store.url_variable.lower(): store.url for store in stores}
        data_directory.write_store_urls(self._config.data_directory, {**urls, "server_url": self._config.url})

    def _load_web(self) -> None:
        """Start the web process, which loads the application and then waits for the end of the set-up."""
        metrics = Path(self._environment["PROMETHEUS_MULTIPROC_DIR"])
        shutil.rmtree(metrics, ignore_errors=True)
        metrics.mkdir(mode=0o700)
        if self._has_sandbox:
            self._sandbox_port = reserve_port(self._config.port + 1)
            self._environment["SANDBOX_BASE_URL"] = f"http://127.0.0.1:{self._sandbox_port.getsockname()[1]}/v1"
            # It takes any credential; a provider without one is not routed to.
            self._environment.setdefault("SANDBOX_API_KEY", "sandbox")
        if _WEB in self._commands:
            self._web_gate = StartGate()
            self._web = WebProcesses(partial(self._web_child, self._commands[_WEB]), print_line)
            self._web.serving.child.start()

    def _prepare(self, stores: Sequence[embedded.Store]) -> None:
        """Run the set-up command, which loads while the stores start; its messages go to the terminal as they are."""
        print_line("preparing the database …")
        gate = StartGate()
        with self._running(self._prepare_command, gate) as command:
            gate.started()
            self._wait_for_stores(stores)
            gate.open()
            self._wait_for_end(command)
        if command.returncode:
            raise StartError(f"the set-up failed (exit code {command.returncode}); its words are above")

    @contextmanager
    def _running(self, command: Sequence[str], gate: StartGate | None = None) -> Iterator[subprocess.Popen[bytes]]:
        """Run a command of the product's beside the block, which has to wait for its end."""
        process = spawn(
            command,
            output=sys.stdout.fileno(),
            env={**self._environment, **(gate.variables if gate else {})},
            cwd=data_directory.PROJECT,
            descriptors=gate.descriptors if gate else (),
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def _wait_for_end(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the end of a command while the children are watched."""
        while process.poll() is None:
            self._turn(0.02)
            self._insist_on_all()

    def _start_processes(self) -> None:
        """Start all processes, once the web process has loaded: it forks them, or they would take its share of the
        cores."""
        web, gate = self._web, self._web_gate
        if web is None or gate is None:
            raise StartError("the Procfile names no web process")
        failure = "web has not loaded"
        self._wait(lambda: gate.is_reached or web.serving.ready, web.serving.child, _READY_PATIENCE, failure)
        if self._sandbox_port is not None:
            port = self._sandbox_port.getsockname()[1]
            command = f"python -m apps.sandbox --quiet --port {port} --reuse-port"
            self._sandbox.append(self._start(self._role("sandbox", command)))
        print_line(f"starting {', '.join(self._commands)} …")
        for name, command in self._commands.items():
            if name != _WEB:
                self._processes.append(self._start(self._role(name, command)))
        gate.open()
        self._web_gate = None

    def _web_child(self, command: str, process: WebProcess) -> SupervisedProcess:
        """Return a web process that has yet to be started: it listens on the supervisor's socket."""

        def start(output: int) -> subprocess.Popen[bytes]:
            handover, gate = process.renew(Handover(self._listener)), self._web_gate
            variables, descriptors = handover.variables, handover.descriptors
            if gate is not None:
                variables, descriptors = variables | gate.variables, descriptors + gate.descriptors
            try:
                return self._spawn(_WEB, command, output, variables, descriptors)
            finally:
                handover.started()
                if gate is not None:
                    gate.started()

        return self._child(ProcessSpec(_WEB, start, first_delay=0.0))

    def _reload(self) -> None:
        """Start a requested reload, and continue one in progress."""
        if self._web is None:
            return
        if self._reload_requests:
            self._reload_requests = 0
            self._web.reload()
        self._web.look()

    def _role(self, name: str, command: str) -> ProcessSpec:
        def start(output: int) -> ChildProcess:
            gate = self._web_gate
            arguments = python_arguments(command, self._environment) if gate and gate.forks else None
            if gate is None or arguments is None:
                return self._spawn(name, command, output)
            background = name not in _ANSWERING
            return gate.fork(arguments, output, background=background, without=(LISTEN, READY, DRAIN))

        return ProcessSpec(name, start)

    def _spawn(
        self,
        name: str,
        command: str,
        output: int,
        variables: Mapping[str, str] | None = None,
        descriptors: Sequence[int] = (),
    ) -> subprocess.Popen[bytes]:
        return spawn(
            ["/bin/sh", "-c", f"exec {command}"],
            output=output,
            env={**self._environment, **(variables or {})},
            cwd=data_directory.PROJECT,
            # The web process then ends its own children; others have no one to wait for without the stores.
            orphan_signal=signal.SIGTERM if name == _WEB else signal.SIGKILL,
            background=name not in _ANSWERING,
            descriptors=descriptors,
        )

    def _start(self, role: ProcessSpec, *, shown: bool = True) -> SupervisedProcess:
        child = self._child(role, shown=shown)
        child.start()
        return child

    def _child(self, role: ProcessSpec, *, shown: bool = True) -> SupervisedProcess:
        width = max(map(len, [*self._commands, "sandbox"]))
        tell = print_important_line if self._config.mode == "development" else print_process_line
        show = partial(tell, role.name.ljust(width)) if shown else None
        return SupervisedProcess(role, self._config.data_directory / "logs" / f"{role.name}.log", show)

    def _wait_until_ready(self) -> None:
        web, failure = self._web, f"{self._config.url} does not answer 200"
        if web is None:
            raise StartError("the Procfile names no web process")
        # The socket listens from the start: a request before a worker accepts connections would wait.
        self._wait(lambda: web.serving.ready, web.serving.child, _READY_PATIENCE, failure)
        self._wait(lambda: is_healthy(self._config), web.serving.child, _READY_PATIENCE, failure)

    def _wait(self, condition: Callable[[], bool], blamed: SupervisedProcess, patience: float, failure: str) -> None:
        """Wait until the condition holds. Raises StartError when a child ends, or patience does."""
        deadline = time.monotonic() + patience
        while not condition():
            self._turn(0.02)
            self._insist_on_all()
            if time.monotonic() > deadline:
                raise StartError("\n".join([f"{failure} after {patience:.0f} s", *blamed.last_lines]))

    def _insist_on_all(self) -> None:
        """Raise StartError with its last words when a child has ended: nothing is started again before all is well."""
        for child in self._children:
            if not child.alive:
                child.reap()
                raise StartError("\n".join([f"{child.spec.name} ended ({child.end}):", *child.last_lines]))

    @property
    def _children(self) -> list[SupervisedProcess]:
        web = [self._web.serving.child] if self._web else []
        return [*self._stores, *self._sandbox, *web, *self._processes]

    @property
    def _everyone(self) -> list[SupervisedProcess]:
        """The children, and the web processes that come and go at a reload."""
        return [*self._children, *(self._web.others if self._web else [])]

    def _turn(self, seconds: float) -> None:
        forward_output(self._everyone, seconds)
        self._heed_signals()

    def _heed_signals(self) -> None:
        """Raise StopRequestedError when a signal has asked to stop."""
        if self._stop_requests:
            raise StopRequestedError

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop_requests += 1

    def _on_reload(self, number: int, frame: FrameType | None) -> None:
        self._reload_requests += 1

    def _stop(self) -> None:
        """Stop who takes requests first, then who works on what they left, then what both of them need."""
        if self._children:
            print_line("stopping …")
        web: list[SupervisedProcess] = []
        if self._web is not None:
            self._web.cut_drain_short()
            web = [self._web.serving.child, *self._web.others]
        for children in (web, self._processes, self._sandbox, self._stores):
            stop_processes(children, self._everyone, forced=lambda: self._stop_requests > 1)
        if self._sandbox_port is not None:
            self._sandbox_port.close()
        data_directory.remove_store_urls(self._config.data_directory)


def main(procfile: Path = data_directory.PROJECT / "Procfile", prepare: Sequence[str] = _PREPARE) -> int:
    """Run the server on the environment's home and port. Return the exit code."""
    try:
        config = ServerConfig.from_environment()
        data_directory.create(config.data_directory)
        with data_directory.hold_lock(config.data_directory), closing(Listener(config)) as listener:
            return Server(config, listener, procfile, prepare).run()
    except (StartError, OSError) as error:
        print_line(f"the server cannot start: {error}")
        return 1


def _environment(config: ServerConfig) -> dict[str, str]:
    """Return the environment of every process, without the stores."""
    return {
        # For people, where there is a terminal that they read.
        "REQUEST_LINES": str(config.mode == "development" and sys.stdout.isatty()),
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "PYTHONUNBUFFERED": "1",
        "GATEWAY_HOME": str(config.data_directory),
        "GATEWAY_MODE": config.mode,
        "GATEWAY_HOST": config.host,
        "PORT": str(config.port),
        "PROMETHEUS_MULTIPROC_DIR": str(config.data_directory / "run" / "metrics"),
    }


def first_steps(config: ServerConfig) -> list[str]:
    """Return the last lines in the terminal once the server is ready: addresses, and what `manage.py demo` has kept.

    There are none in production, where addresses and keys are not printed.
    """
    if config.mode != "development":
        return []
    lines = [
        f"  start page  {config.url}/",
        f"  console     {config.url}/app/",
        f"  admin       {config.url}/admin/",
        f"  docs        {config.url}/docs/api",
    ]
    try:
        kept = json.loads((config.data_directory / "demo.json").read_text())
        lines += [
            f"  sign in as  {kept['owner']['email']}  {kept['owner']['password']}",
            f"  operator    {kept['operator']['email']}  {kept['operator']['password']}",
            f"  API key     {kept['apiKey']}",
        ]
    except (OSError, ValueError, KeyError, TypeError):
        lines.append(f"  demo key    {MANAGE_COMMAND} demo --key")
    return lines


if __name__ == "__main__":
    raise SystemExit(request_reload(print_line) if sys.argv[1:] == ["reload"] else main())
