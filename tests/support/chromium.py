"""A headless Chromium, told what to do over its own protocol (CDP), with an authenticator that it makes up."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.stack.product import eventually

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE = 30.0


class Browser:
    """One page of a browser. `problems` is what it wrote to its console, such as what a policy kept from running."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._numbers = socket, count(1)
        self._session = ""
        self.problems: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return what a command of the protocol answers. Raises RuntimeError."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            told = json.loads(self._socket.recv(timeout=PATIENCE))
            if told.get("method") == "Log.entryAdded":
                self.problems.append(told["params"]["entry"]["text"])
            elif told.get("method") == "Runtime.exceptionThrown":
                self.problems.append(str(told["params"]["exceptionDetails"]))
            elif told.get("method") == "Runtime.consoleAPICalled" and told["params"]["type"] in ("error", "warning"):
                self.problems.append(" ".join(str(one.get("value")) for one in told["params"]["args"]))
            if told.get("id") == number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                return dict(told["result"])

    def run(self, script: str) -> Any:
        """Return what a script's last expression is. Raises RuntimeError."""
        done = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(str(done["exceptionDetails"]))
        return done["result"].get("value")

    def open(self, url: str) -> None:
        """Show a page."""
        self.ask("Page.navigate", url=url)
        self.wait(f"location.href.startsWith({json.dumps(url)}) && document.readyState === 'complete'")

    def wait(self, condition: str) -> None:
        """Wait until a script's expression is true, also while one page follows another. Raises TimeoutError."""
        try:
            eventually(lambda: self._holds(condition), patience=PATIENCE)
        except AssertionError:
            raise TimeoutError(f"{condition}\n{self.run('document.body.innerText')}\n{self.problems}") from None

    def _holds(self, condition: str) -> bool:
        # It fails while a page is being replaced.
        with suppress(RuntimeError):
            return bool(self.run(f"Boolean({condition})"))
        return False

    def fill(self, selector: str, value: str) -> None:
        """Write into a field."""
        self.run(f"document.querySelector({json.dumps(selector)}).value = {json.dumps(value)}")

    def click(self, selector: str) -> None:
        """Click what a selector finds."""
        self.run(f"document.querySelector({json.dumps(selector)}).click()")

    def text(self, selector: str = "body") -> str:
        """Return the visible text of an element."""
        return str(self.run(f"document.querySelector({json.dumps(selector)}).innerText"))

    def plug_in_authenticator(self) -> str:
        """Give the browser an authenticator that verifies any user; return its id."""
        self.ask("WebAuthn.enable")
        options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
        made = self.ask(
            "WebAuthn.addVirtualAuthenticator",
            options={**options, "isUserVerified": True, "automaticPresenceSimulation": True},
        )
        return str(made["authenticatorId"])


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile; end it with all its processes."""
    process = subprocess.Popen(
        [
            *(str(PROGRAM), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--remote-debugging-port=0", f"--user-data-dir={profile}", "about:blank"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with connect(_address(profile), max_size=None) as socket:
            browser = Browser(socket)
            yield browser
            browser._session = ""
            browser.ask("Browser.close")
        process.wait(PATIENCE)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _address(profile: Path) -> str:
    """Return where a browser that just started listens: it writes that down."""
    file = profile / "DevToolsActivePort"
    port, path = eventually(
        lambda: file.exists() and len(lines := file.read_text().splitlines()) == 2 and lines, patience=PATIENCE
    )
    return f"ws://127.0.0.1:{port}{path}"
