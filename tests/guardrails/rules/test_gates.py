"""Gates of patterns: a text in which a pattern finds something passes its gate."""

from __future__ import annotations

import json
from pathlib import Path

from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.text.scanned_text import ScannedText
from tests.guardrails import corpus
from tests.guardrails.rules.test_patterns_compile import kinds


def test_what_a_pattern_finds_its_gate_lets_through() -> None:
    gated = [(kind.name, compile_re2(kind.pattern), compile_re2(kind.gate)) for kind in kinds() if kind.gate]
    texts = {
        ScannedText(json.loads(line)["text"]).ascii_folded.utf8
        for path in Path(corpus.__file__).parent.glob("*.jsonl")
        for line in path.read_text(encoding="utf-8").splitlines()
    }
    found: set[str] = set()
    refused = []
    for name, pattern, gate in gated:
        for utf8 in texts:
            if pattern.search(utf8) is not None:
                found.add(name)
                if gate.search(utf8) is None:
                    refused.append((name, utf8))
    assert refused == []
    assert len(found) > 60
