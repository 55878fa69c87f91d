"""`script/mcp-conformance`: the Model Context Protocol's own suite against a running gateway, with what it cannot pass.

The suite sends no credential: a relay in front of the gateway adds an API key. Every failure stands with its reason in
`conformance_failures.yaml`; one that is not there, and one there that has passed, ends the run with 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.stack.product import PROJECT, Product

# The newest that knows each revision; it needs a newer Node than machines have.
PACKAGES = ("@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22")
REVISIONS = ("2025-11-25", "2026-07-28")
FAILURES = Path(__file__).parent / "conformance_failures.yaml"
_FOLDER = PROJECT / ".local" / "mcp-conformance"
_PIECE = 65_536
_NOT_PASSED_ON = {"connection", "transfer-encoding", "keep-alive"}


class Relay(BaseHTTPRequestHandler):
    """Passes requests on to the gateway, with a key."""

    protocol_version = "HTTP/1.1"
    port = 0
    key = ""

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        gateway = HTTPConnection("127.0.0.1", self.port, timeout=60)
        # The suite takes the relay for the server: what it says of the one is meant of the other.
        relay, own = f"127.0.0.1:{self.server.server_address[1]}", f"127.0.0.1:{self.port}"
        sent = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_PASSED_ON}
        headers = {name: value.replace(relay, own) for name, value in sent.items()}
        gateway.request(self.command, self.path, body, {**headers, "Authorization": f"Bearer {self.key}"})
        answer = gateway.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _NOT_PASSED_ON:
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            while piece := answer.read1(_PIECE):
                self.wfile.write(piece)
                self.wfile.flush()
        except OSError:
            # The suite has hung up, and the gateway must see it.
            pass
        finally:
            gateway.close()

    do_GET = do_POST = do_DELETE = _pass_on  # noqa: N815 - what the base class calls

    def log_message(self, *_words: object) -> None:
        """Say nothing."""


def main() -> int:
    """Run the suite for each revision, and return 1 unless all is as the list of failures says."""
    parser = argparse.ArgumentParser(prog="script/mcp-conformance", description=__doc__)
    parser.add_argument("--revision", choices=REVISIONS, help="this revision alone")
    parser.add_argument("--port", type=int, help="of a gateway that runs already; MCP_KEY is its key")
    arguments = parser.parse_args()
    if shutil.which("npm") is None:
        sys.exit("npm is not installed")
    _install()
    with tempfile.TemporaryDirectory() as home:
        product = None if arguments.port else Product(Path(home))
        try:
            Relay.port = arguments.port or product.port  # type: ignore[union-attr] # one of the two is there
            Relay.key = os.environ["MCP_KEY"] if product is None else str(product.demo["apiKey"])
            return max([_run(revision) for revision in ([arguments.revision] if arguments.revision else REVISIONS)])
        finally:
            if product is not None:
                product.stop()


def _install() -> None:
    if not (_FOLDER / "done").exists():
        _FOLDER.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(_FOLDER), *PACKAGES]
        subprocess.run(command, check=True, timeout=400)
        (_FOLDER / "done").touch()


def _run(revision: str) -> int:
    relay = ThreadingHTTPServer(("127.0.0.1", 0), Relay)
    threading.Thread(target=relay.serve_forever, args=(0.05,), daemon=True).start()
    modules = _FOLDER / "node_modules"
    results = _FOLDER / "results"
    shutil.rmtree(results, ignore_errors=True)
    try:
        return subprocess.run(
            [
                *(modules / "node" / "bin" / "node", modules / ".bin" / "conformance", "server"),
                *("--url", f"http://127.0.0.1:{relay.server_port}/mcp", "--requirements", revision),
                *("--expected-failures", FAILURES, "--output-dir", results),
            ],
            check=False,
            timeout=600,
        ).returncode
    finally:
        relay.shutdown()
        relay.server_close()


if __name__ == "__main__":
    sys.exit(main())
