"""`script/mcp-conformance`: the Model Context Protocol's own suite against a running gateway, with what it cannot pass.

The suite sends no credential to servers: a relay in front of the gateway adds an API key. Its scenarios for
authorization servers are asked without one. Every failure stands with its reason in `conformance_failures.yaml`; one
that is not there, and one there that has passed, ends the run with 1.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.mcp.conformance_sign_in import run_authorization
from tests.stack.product import PROJECT, Product

# The newest that knows each revision; it needs a newer Node than machines have.
PACKAGES = ("@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22")
# The suite's scenarios for servers: all that each revision asks for.
RUNS: dict[str, tuple[str, ...]] = {
    "2025-06-18": ("--suite", "all", "--spec-version", "2025-06-18"),
    "2025-11-25": ("--requirements", "2025-11-25"),
    "2026-07-28": ("--requirements", "2026-07-28"),
}
# Those of extensions, one by one, and those for authorization servers.
EXTENSIONS, AUTHORIZATION = "extensions", "authorization"
PARTS = (*RUNS, EXTENSIONS, AUTHORIZATION)
_EXTENSION = re.compile(r"- (\S+) \[extension\]")
FAILURES = Path(__file__).parent / "conformance_failures.yaml"
_FOLDER = PROJECT / ".local" / "mcp-conformance"
_RESULTS = _FOLDER / "results"
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
    """Run the suite, print a table, and return 1 unless all is as the list of failures says."""
    parser = argparse.ArgumentParser(prog="script/mcp-conformance", description=__doc__)
    parser.add_argument("--only", choices=PARTS, help="this part alone")
    arguments = parser.parse_args()
    if shutil.which("npm") is None:
        sys.exit("npm is not installed")
    _install()
    shutil.rmtree(_RESULTS, ignore_errors=True)
    parts = [arguments.only] if arguments.only else PARTS
    with tempfile.TemporaryDirectory() as home:
        product = Product(Path(home))
        try:
            Relay.port, Relay.key = product.port, str(product.demo["apiKey"])
            codes = {part: _run(part, product) for part in parts}
        finally:
            product.stop()
    sys.stdout.write(table(_RESULTS, codes) + "\n")
    return int(any(codes.values()))


def table(results: Path, codes: Mapping[str, int]) -> str:
    """Return what came of each part: scenarios that passed, those that failed as expected, and single checks."""
    lines = ["", "| part | scenarios | passed | not, with a reason | checks passed | result |", f"|{'---|' * 6}"]
    for part, code in codes.items():
        scenarios = [json.loads(file.read_text()) for file in sorted((results / part).glob("*/checks.json"))]
        statuses = [[check["status"] for check in checks] for checks in scenarios]
        passed = sum("FAILURE" not in found for found in statuses)
        checks = sum(found.count("SUCCESS") for found in statuses)
        verdict = "as expected" if code == 0 else "NOT as expected"
        lines.append(f"| {part} | {len(statuses)} | {passed} | {len(statuses) - passed} | {checks} | {verdict} |")
    return "\n".join(lines)


def _install() -> None:
    if not (_FOLDER / "done").exists():
        _FOLDER.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(_FOLDER), *PACKAGES]
        subprocess.run(command, check=True, timeout=400)
        (_FOLDER / "done").touch()


def _run(part: str, product: Product) -> int:
    modules, results = _FOLDER / "node_modules", _RESULTS / part
    program = [modules / "node" / "bin" / "node", modules / ".bin" / "conformance"]
    if part == AUTHORIZATION:
        return run_authorization(program, product, results)
    relay = ThreadingHTTPServer(("127.0.0.1", 0), Relay)
    threading.Thread(target=relay.serve_forever, args=(0.05,), daemon=True).start()
    url = ("--url", f"http://127.0.0.1:{relay.server_port}/mcp")
    options = ("--expected-failures", FAILURES, "--output-dir", results)
    asked = [RUNS[part]] if part in RUNS else [("--scenario", one) for one in _extensions(program)]
    try:
        return max(
            subprocess.run([*program, "server", *url, *one, *options], check=False, timeout=600).returncode
            for one in asked
        )
    finally:
        relay.shutdown()
        relay.server_close()


def _extensions(program: list[Path]) -> list[str]:
    """Return the suite's scenarios for servers that belong to extensions."""
    listed = subprocess.run([*program, "list"], check=True, timeout=60, capture_output=True, text=True).stdout
    return _EXTENSION.findall(listed.partition("Client scenarios")[0])


if __name__ == "__main__":
    sys.exit(main())
