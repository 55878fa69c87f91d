"""Accessibility as axe-core judges it: `assert_accessible` looks at the page that is shown, light and dark, wide and
narrow.

`axe.min.js` beside this file is axe-core 4.14.1 by Deque Systems, unchanged, for tests alone: Mozilla Public License
2.0, source at https://github.com/dequelabs/axe-core.
"""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.support.chromium import Browser

_AXE = (Path(__file__).parent / "axe.min.js").read_text()
WIDE, NARROW = (1440, 900), (375, 812)
ALL_LOOKS = tuple((scheme, size) for scheme in ("light", "dark") for size in (WIDE, NARROW))
# Each colour scheme and each width once; with `AXE_LOOKS=all` in the environment, every pair of them.
LOOKS = ALL_LOOKS if os.environ.get("AXE_LOOKS") == "all" else (("light", WIDE), ("dark", NARROW))
# The admin's theme looks at the colour scheme but once, when a page is loaded.
_THEME = "document.documentElement.matches('[x-data^=theme]') && document.documentElement.classList.toggle('dark', %s)"
# Every rule that is no experiment: WCAG 2.0 to 2.2 A and AA, and best practice (landmarks, headings).
_RUN = """
    (async () => {
        document.getAnimations().forEach((one) => { try { one.finish() } catch { one.cancel() } });
        const found = await axe.run(document, {resultTypes: ['violations'], elementRef: false});
        const said = (node) => (node.any[0] || node.all[0] || node.none[0] || {message: ''}).message;
        return found.violations.flatMap((rule) => rule.nodes.map((node) => `${rule.id} (${rule.impact}) `
            + `${node.target.join(' ')}: ${said(node) || rule.help}\\n        ${node.html.slice(0, 200)}`));
    })()
"""


def look(browser: Browser, scheme: str, size: tuple[int, int]) -> None:
    """Show pages from now on in a colour scheme (`light`, `dark`) and a size in pixels (`WIDE`, `NARROW`)."""
    browser.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    width, height = size
    browser.ask(
        "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=size[0] < 500
    )
    browser.run(_THEME % ("true" if scheme == "dark" else "false"))
    # Wait until scripts and transitions have drawn the change.
    browser.run("new Promise((done) => setTimeout(done, 200))")


def violations(browser: Browser, looks: Iterable[tuple[str, tuple[int, int]]] = LOOKS) -> dict[str, list[str]]:
    """Return what axe finds on the page that is shown, by look: `rule (impact) selector: what is wrong`."""
    if not browser.run("'axe' in window"):
        browser.run(f"{_AXE};0")
    found: dict[str, list[str]] = {}
    for scheme, size in looks:
        look(browser, scheme, size)
        complaints: list[Any] = browser.run(_RUN)
        if complaints:
            found[f"{scheme}, {size[0]} px"] = complaints
    return found


def assert_accessible(browser: Browser, looks: Iterable[tuple[str, tuple[int, int]]] = LOOKS) -> None:
    """Assert that axe has nothing to say about the page that is shown. Costs about a second."""
    found = violations(browser, looks)
    listed = "\n".join(f"{seen}\n    " + "\n    ".join(complaints) for seen, complaints in found.items())
    assert not found, f"{browser.run('location.pathname')}\n{listed}"


def screenshot(browser: Browser, path: Path, *, full: bool = False) -> None:
    """Write the visible part, or with `full` the whole page, to a PNG file."""
    picture = browser.ask("Page.captureScreenshot", format="png", captureBeyondViewport=full)
    path.write_bytes(b64decode(picture["data"]))
