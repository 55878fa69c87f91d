"""Other projects' detectors, where they are installed: those that need neither a language model nor a service.

detect-secrets, alone and with the plugins of llm-guard; the expressions of presidio; the patterns of LiteLLM's content
filter; the secret keys of openai-guardrails.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Finder = Callable[[str], list[str]]
# Marks the replacements of LiteLLM's content filter; no text has it.
_MASK = "\x00"
# The plugins that detect-secrets runs with: its own where it is None.
_in_use: list[dict[str, Any] | None] = []
# Presidio needs a language model for names, places and the like; for these it needs expressions alone.
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
    finders = {}
    for name, make in _PEERS.get(rule, {}).items():
        with suppress(ImportError):
            finders[name] = make()
    return finders


def _detect_secrets(plugins: dict[str, Any] | None = None) -> Finder:
    module: Any = importlib.import_module("detect_secrets")
    settings: Any = importlib.import_module("detect_secrets.settings")
    by_type: Any = importlib.import_module("detect_secrets.core.plugins.util").get_mapping_from_secret_type_to_class

    def find(text: str) -> list[str]:
        if _in_use[:] != [plugins]:
            # They are the whole process's.
            settings.cache_bust()
            own = {"plugins_used": [{"name": kind.__name__} for kind in by_type().values()]}
            settings.configure_settings_from_baseline(plugins or own)
            by_type.cache_clear()
            _in_use[:] = [plugins]
        # As a file: single lines are scanned without its limits of entropy.
        with tempfile.NamedTemporaryFile("w", suffix=".txt", errors="replace") as file:
            file.write(text)
            file.flush()
            found = module.SecretsCollection()
            found.scan_file(file.name)
            return [str(secret.secret_value) for _, secret in found]

    return find


def _llm_guard() -> Finder:
    """Return detect-secrets with llm-guard's plugins: what its `Secrets` runs.

    Its package imports models, so the list is read from the module's text.
    """
    spec = importlib.util.find_spec("llm_guard")
    if spec is None or spec.origin is None:
        raise ImportError("llm-guard is not installed")
    path = Path(spec.origin).parent / "input_scanners" / "secrets.py"
    names = {"_custom_plugins_path": f"file://{path.parent / 'secrets_plugins'}"}
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "_default_detect_secrets_config":
            return _detect_secrets(eval(ast.unparse(statement.value), dict(names)))
    raise ImportError("llm-guard's list of plugins is not where it was")


def _openai_guardrails() -> Finder:
    module: Any = importlib.import_module("guardrails.checks.text.secret_keys")
    balanced = module.CONFIGS["balanced"]

    def find(text: str) -> list[str]:
        info = module._detect_secret_keys(text, balanced).info
        return [str(secret) for secret in info["detected_secrets"]]

    return find


def litellm_filter(**settings: Any) -> Finder:
    """Return LiteLLM's content filter: the words that it masks, or the whole of a text that it blocks.

    Raises ImportError.
    """
    module: Any = importlib.import_module(
        "litellm.proxy.guardrails.guardrail_hooks.litellm_content_filter.content_filter"
    )
    guardrail = module.ContentFilterGuardrail(
        guardrail_name="peer", pattern_redaction_format=f"{_MASK}{{pattern_name}}{_MASK}", **settings
    )

    def find(text: str) -> list[str]:
        try:
            return _masked(text, guardrail._filter_single_text(text))
        except module.HTTPException:
            return [text]

    return find


def _masked(text: str, masked: str) -> list[str]:
    """Return the parts of the text that the other has masked."""
    found, end = [], 0
    for number, kept in enumerate(re.split(f"{_MASK}[^{_MASK}]*{_MASK}", masked)):
        start = text.find(kept, end)
        if number:
            found.append(text[end:start] if kept else text[end:])
        end = start + len(kept)
    return found


def _litellm(*kinds: str) -> Finder:
    """Return LiteLLM's content filter with all its patterns whose category ends with one of these words."""
    module: Any = importlib.import_module("litellm.proxy.guardrails.guardrail_hooks.litellm_content_filter.patterns")
    rows = json.loads(Path(module.__file__).with_name("patterns.json").read_text())["patterns"]
    return litellm_filter(
        patterns=[
            {"pattern_type": "prebuilt", "pattern_name": row["name"], "action": "MASK"}
            for row in rows
            if row["category"].endswith(kinds)
        ]
    )


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


_PEERS: dict[str, dict[str, Callable[[], Finder]]] = {
    "secrets": {
        "detect-secrets": _detect_secrets,
        "llm-guard": _llm_guard,
        "openai-guardrails": _openai_guardrails,
        "LiteLLM's content filter": lambda: _litellm("Credential Patterns"),
    },
    "pii_detection": {
        "presidio, expressions": _presidio,
        "LiteLLM's content filter": lambda: _litellm("PII Patterns", "Payment Card Patterns"),
    },
}
