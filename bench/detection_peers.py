"""Other projects' detectors, where they are installed: detect-secrets, and the expressions of presidio.

Knows how each is asked. Must never know what is measured.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Callable
from typing import Any

Finder = Callable[[str], list[str]]
# What presidio calls names, places and the like needs a language model; these need expressions alone.
_NOT_BY_FORM = (
    "Spacy",
    "Stanza",
    "Transformers",
    "Gliner",
    "GLiNER",
    "Azure",
    "Url",
    "Date",
    "Lang",
    "Medical",
    "Hugging",
)


def peers_of(rule: str) -> dict[str, Finder]:
    """Return the installed peers of a rule, by name."""
    found = {"secrets": ("detect-secrets", _detect_secrets), "pii_detection": ("presidio, expressions", _presidio)}
    name, make = found.get(rule, ("", lambda: None))
    try:
        finder = make()
    except ImportError:
        return {}
    return {name: finder} if finder is not None else {}


def _detect_secrets() -> Finder:
    module: Any = importlib.import_module("detect_secrets")
    settings: Any = importlib.import_module("detect_secrets.settings")
    # It holds for as long as this lives.
    within = settings.default_settings()
    within.__enter__()

    def find(text: str, _within: object = within) -> list[str]:
        # As a file: single lines are scanned without its limits of entropy.
        with tempfile.NamedTemporaryFile("w", suffix=".txt", errors="replace") as file:
            file.write(text)
            file.flush()
            found = module.SecretsCollection()
            found.scan_file(file.name)
            return [str(secret.secret_value) for _, secret in found]

    return find


def _presidio() -> Finder:
    module: Any = importlib.import_module("presidio_analyzer.predefined_recognizers")
    recognizers = []
    for name in dir(module):
        kind = getattr(module, name)
        if isinstance(kind, type) and name.endswith("Recognizer") and not any(part in name for part in _NOT_BY_FORM):
            try:
                recognizers.append(kind())
            except Exception:  # noqa: BLE001 - one that needs more than is installed
                continue

    def find(text: str) -> list[str]:
        # Half is the score below which presidio's own documentation says a finding needs more evidence.
        return [
            text[result.start : result.end]
            for one in recognizers
            for result in one.analyze(text, one.supported_entities, None) or ()
            if result.score >= 0.4
        ]

    return find
