"""Providers of a product under test: sandboxes of their own, whose weather is scripted."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import requests

from tests.stack.product import PROJECT, eventually, free_port


class Upstream:
    """A provider: a sandbox of its own."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "apps.sandbox", "--port", str(self.port)], cwd=PROJECT, stdout=subprocess.DEVNULL
        )
        eventually(self._answers)

    def _answers(self) -> bool:
        try:
            return requests.get(f"{self.url}/healthz", timeout=1).status_code == 200
        except requests.RequestException:
            return False

    def weather(self, script: str) -> None:
        """Let a script hold for every request; an empty one is fair weather."""
        assert requests.put(f"{self.url}/sandbox/weather", data=script, timeout=60).json() == {"weather": script}

    def stop(self) -> None:
        """End it."""
        self.process.terminate()
        self.process.wait(60)

    def kill(self) -> None:
        """Kill it, as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)

    def journal(self) -> list[dict[str, Any]]:
        """Return what it was asked, oldest first."""
        return list(requests.get(f"{self.url}/sandbox/requests", timeout=60).json()["requests"])
