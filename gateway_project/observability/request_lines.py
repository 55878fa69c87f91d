"""Request lines (a terminal's access log): method, path, status, time, model, provider and cost of each request.

For development, where a server was started in a terminal (`REQUEST_LINES`); anywhere else nothing of this runs. Must
never write what a request says, nor a query, which may have a key.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIEnvironment

from apps.gateway import metrics
from apps.kernel.money import ZERO, plain
from apps.logs.entry import Entry
from gateway_project.configuration.terminal_output import print_line

Application = Callable[[WSGIEnvironment, StartResponse], Iterable[bytes]]
# Files that a page loads, and probes.
_LEFT_OUT: Final = ("/static/", "/metrics", "/favicon.ico")
_MAX_NAMED, _MAX_PATH = 1_000, 120


class RequestLines:
    """Serves by an application, and tells the terminal of each request when its answer has ended."""

    def __init__(self, application: Application, write: Callable[[str], None] = print_line) -> None:
        """Take what serves; `write` takes a line."""
        self._application, self._write = application, write
        # By request id, until their answers end.
        self._recorded: OrderedDict[str, Entry] = OrderedDict()
        metrics.tell(self._record)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one HTTP request."""
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path.startswith(_LEFT_OUT):
            return self._application(environ, start_response)
        began = time.monotonic()
        answer = {"status": "", "id": ""}

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            answer["status"] = status.partition(" ")[0]
            answer["id"] = next((value for name, value in headers if name.lower() == "x-request-id"), "")
            return start_response(status, headers, *rest)

        body = self._application(environ, start)

        def finish() -> None:
            spent = round((time.monotonic() - began) * 1000)
            about = self._words_of(answer["id"])
            shown = path[:_MAX_PATH].encode("latin-1", "replace").decode("utf-8", "replace")
            printable = "".join(one if one.isprintable() else "?" for one in shown)
            self._write(" ".join(filter(None, [method, printable, answer["status"], f"{spent} ms", about])))

        return _Watched(body, finish)

    def _record(self, entry: Entry) -> None:
        self._recorded[entry.request_id] = entry
        while len(self._recorded) > _MAX_NAMED:
            self._recorded.popitem(last=False)

    def _words_of(self, request_id: str) -> str:
        entry = self._recorded.pop(request_id, None)
        if entry is None:
            return ""
        provider = f" at {entry.used_provider}" if entry.used_provider else ""
        return f"{entry.used_model}{provider} ${plain(entry.cost or ZERO)}"


class _Watched:
    """An answer's pieces; reports their end once."""

    def __init__(self, body: Iterable[bytes], finish: Callable[[], None]) -> None:
        self._body, self._finish = body, finish

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        try:
            if hasattr(self._body, "close"):
                self._body.close()
        finally:
            self._finish()
