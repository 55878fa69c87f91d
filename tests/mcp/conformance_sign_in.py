"""The suite's scenarios for authorization servers, against a running gateway; plays the person's part."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import requests

from tests.stack.product import Product, free_port

_HIDDEN = re.compile(r'name="([^"]+)" value="([^"]*)"')


def run_authorization(program: Sequence[str | Path], product: Product, results: Path) -> int:
    """Run the suite against the gateway's authorization server; return its exit code."""
    port = free_port()
    callback = f"http://127.0.0.1:{port}/callback"
    described = {"client_name": "Conformance", "redirect_uris": [callback], "token_endpoint_auth_method": "none"}
    registered = requests.post(f"{product.url}/oauth/register", json=described, timeout=10)
    registered.raise_for_status()
    command = [
        *(*program, "authorization", "--url", product.url, "--client-id", registered.json()["client_id"]),
        *("--resource", f"{product.url}/mcp", "--port", str(port), "--output-dir", results),
    ]
    asking = f"{product.url}/oauth/authorize?"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as suite:
        assert suite.stdout is not None
        for line in suite.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            if line.startswith(asking):
                _allow(product, line.strip())
        return suite.wait(60)


def _allow(product: Product, address: str) -> None:
    """Allow the program that asks at an address, and follow the way back to it."""
    with requests.Session() as browser:
        browser.cookies.set("gateway-session", product.demo["sessionToken"])
        page = browser.get(address, timeout=10)
        page.raise_for_status()
        fields = {name: html.unescape(value) for name, value in _HIDDEN.findall(page.text)}
        fields |= {"decision": "allow", "projectId": product.demo["projectId"], "budget": "1", "period": "month"}
        origin = {"Origin": product.url, "Referer": f"{product.url}/"}
        answer = browser.post(address, data=fields, headers=origin, allow_redirects=False, timeout=10)
        requests.get(answer.headers["Location"], timeout=10)
