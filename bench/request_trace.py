"""Counts the files, functions, calls and steps of the product in a warm request, in a process with its settings.

`python -m bench.request_trace` starts the product in a temporary home with a fixed upstream, and a second process that
serves the same requests through its WSGI application under a trace hook. It prints a row for a chat completion, one
for a streamed message and one for a chat completion under ten limits; `--files` lists the files too, `--functions` the
functions with their steps and calls. A step is an instruction of the interpreter's bytecode. A file counts once a
function of it has run, imports aside. `--cpu` prints instead what ten limits cost: processor time of chat completions
with them and without, by turns in one process.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from statistics import median
from types import CodeType, FrameType
from typing import Any, NamedTuple

PROJECT = Path(__file__).resolve().parents[1]
_PRODUCT = tuple(f"{PROJECT / folder}{os.sep}" for folder in ("apps", "gateway_project"))
# Requests of each kind before those that are counted: caches, pools and statistics are filled then.
_WARM_REQUESTS = 5
# Requests of each kind that are counted. The least is the figure: some share their thread with background work.
_COUNTED_REQUESTS = 10


# Blocks of chat completions with limits and without, and the requests in each.
_TURNS, _REQUESTS_IN_A_TURN = 400, 10


class Request(NamedTuple):
    """A request that is counted: its name in the table, its path, the fields of its body, and whether its key has
    limits."""

    name: str
    path: str
    fields: dict[str, Any]
    limited: bool = False


REQUESTS = (
    Request("chat completion", "/v1/chat/completions", {}),
    Request("messages, streamed", "/v1/messages", {"max_tokens": 100, "stream": True}),
    Request("chat completion, ten limits", "/v1/chat/completions", {}, limited=True),
)


class Passed:
    """The functions of the product that ran while it was recording, in all greenlets of its thread, with their calls
    and steps."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.steps: Counter[CodeType] = Counter()

    @property
    def files(self) -> list[str]:
        """The paths of the functions' files below the project, sorted."""
        return sorted({_path_of(code) for code in self.calls})

    @property
    def functions(self) -> list[tuple[str, int, int]]:
        """Each function's place and name, its steps and its calls, most steps first."""
        places = {code: f"{_path_of(code)}:{code.co_firstlineno} {code.co_qualname}" for code in self.calls}
        rows = [(places[code], self.steps[code], calls) for code, calls in self.calls.items()]
        return sorted(rows, key=lambda row: (-row[1], row[0]))

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record until the block ends. Functions of modules and classes, which run on import, do not count."""
        sys.settrace(self._note)
        threading.settrace(self._note)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)

    def _note(self, frame: FrameType, event: str, _argument: object) -> Any:
        code = frame.f_code
        if event == "call":
            if not code.co_filename.startswith(_PRODUCT) or code.co_name == "<module>":
                return None
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
            self.calls[code] += 1
        elif event == "opcode":
            self.steps[code] += 1
        return self._note


def _path_of(code: CodeType) -> str:
    return os.path.relpath(code.co_filename, PROJECT)


def serve(application: Callable[..., Any], request: Request, token: str) -> None:
    """Send one request through a WSGI application and read its answer to the end. Raises AssertionError unless 200."""
    body = json.dumps({"model": "sandbox/echo-fast", "messages": [{"role": "user", "content": "hi"}], **request.fields})
    statuses: list[str] = []
    environ = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": request.path,
        "QUERY_STRING": "",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "HTTP_AUTHORIZATION": f"Bearer {token}",
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "wsgi.input": io.BytesIO(body.encode()),
        "wsgi.errors": sys.stderr,
        "wsgi.url_scheme": "http",
    }
    answer = application(environ, lambda status, headers, *_: statuses.append(status))
    try:
        content = b"".join(answer)
    finally:
        if hasattr(answer, "close"):
            answer.close()
    assert statuses == ["200 OK"], (statuses, content[:500])


def count(token: str) -> list[dict[str, Any]]:
    """Return each request's name, files, functions, calls and steps, counted in this process, whose environment is
    the product's."""
    application, limited = _begin(), create_limited_key(token)
    rows = []
    for request in REQUESTS:
        own = limited if request.limited else token
        for _ in range(_WARM_REQUESTS):
            serve(application, request, own)
        counted = (_record(application, request, own) for _ in range(_COUNTED_REQUESTS))
        passed = min(counted, key=lambda it: (it.calls.total(), it.steps.total()))
        rows.append(
            {
                "name": request.name,
                "files": passed.files,
                "functions": passed.functions,
                "calls": passed.calls.total(),
                "steps": passed.steps.total(),
            }
        )
    return rows


def measure_cpu(token: str) -> list[dict[str, Any]]:
    """Return the processor time of a chat completion in milliseconds, without limits and under ten, and the median of
    their ratios, measured by turns in this process, whose environment is the product's."""
    application, limited = _begin(), create_limited_key(token)
    times: dict[str, list[float]] = {token: [], limited: []}
    for turn in range(_TURNS + 1):
        for own, known in times.items():
            begun_at = time.process_time()
            for _ in range(_REQUESTS_IN_A_TURN):
                serve(application, REQUESTS[0], own)
            # The first is to get warm.
            known += [(time.process_time() - begun_at) / _REQUESTS_IN_A_TURN * 1000] if turn else []
    ratios = [more / less for less, more in zip(times[token], times[limited], strict=True)]
    return [{"without": median(times[token]), "limited": median(times[limited]), "ratio": median(ratios)}]


def _begin() -> Any:
    """Return the product's WSGI application, ready to serve."""
    from gateway_project.wsgi import application

    application.begin()  # type: ignore[attr-defined] # set in gateway_project/wsgi.py
    return application


def create_limited_key(token: str) -> str:
    """Create a key with ten limits in the project of another key, and return its token."""
    from apps.keys.actions import create_api_key
    from apps.keys.authenticate import find_api_key
    from apps.limits.actions import create_limit

    key = find_api_key(token)
    assert key is not None
    made = create_api_key(user=key.created_by, project_id=key.project_id, description="With ten limits")
    for window in ("day", "month"):
        for counts in ("usd", "requests", "tokens", "input_tokens", "output_tokens"):
            fields = {"scope": "key", "scope_id": str(made.key.id), "counts": counts, "window": window}
            amount = Decimal(1_000_000 if counts == "usd" else 100_000_000)
            fields |= {"name": f"{counts} a {window}", "amount": amount}
            create_limit(organization=key.project.organization, fields=fields)
    return made.token


def _record(application: Callable[..., Any], request: Request, token: str) -> Passed:
    """Serve one request, and return what it passed through."""
    passed = Passed()
    with passed.recording():
        serve(application, request, token)
    return passed


def trace(work: str = "--count") -> list[dict[str, Any]]:
    """Return the rows of `count`, or with `--measure` of `measure_cpu`, from a process beside a product that runs in a
    temporary home."""
    from bench.subjects import gateway, upstream

    with tempfile.TemporaryDirectory() as home, upstream() as fixed, gateway(fixed.port, Path(home)) as subject:
        assert subject.product is not None
        done = subprocess.run(
            [sys.executable, "-m", "bench.request_trace", work, subject.product.demo["apiKey"]],
            cwd=PROJECT,
            env=subject.product.environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=300,
            check=True,
        )
    rows: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


def main() -> None:
    """Print the table."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--files", action="store_true", help="list the files of each request")
    words.add_argument("--functions", action="store_true", help="list the functions of each request, by their steps")
    words.add_argument("--cpu", action="store_true", help="measure what ten limits cost instead")
    words.add_argument("--count", metavar="KEY", help=argparse.SUPPRESS)
    words.add_argument("--measure", metavar="KEY", help=argparse.SUPPRESS)
    chosen = words.parse_args()
    if chosen.count or chosen.measure:
        print(json.dumps(count(chosen.count) if chosen.count else measure_cpu(chosen.measure)))
        return
    if chosen.cpu:
        [row] = trace("--measure")
        print(f"{row['without']:.3f} ms, under ten limits {row['limited']:.3f} ms, {row['ratio']:.3f} times as much")
        return
    print("| request | files | functions | calls | steps |\n|---|---|---|---|---|")
    for row in trace():
        print(f"| {row['name']} | {len(row['files'])} | {len(row['functions'])} | {row['calls']} | {row['steps']} |")
        if chosen.files:
            print(*(f"    {path}" for path in row["files"]), sep="\n")
        if chosen.functions:
            print(*(f"    {steps:6} {calls:5} {place}" for place, steps, calls in row["functions"]), sep="\n")


if __name__ == "__main__":
    from gevent import monkey

    monkey.patch_all()
    main()
