"""Warm-up of the system rules: loads each and runs it once, so that no request pays for building its automata.

Loading takes half a second, and the first text of its kind ten times as long as the next.
"""

from __future__ import annotations

from functools import cache

from apps.guardrails.findings.scan_types import TOOL_RESULT, Segment
from apps.guardrails.rules import system_rules
from apps.guardrails.scanning import engine
from apps.guardrails.scanning.engine import EngineConfig, SystemRuleState
from apps.guardrails.text.scanned_text import ScannedText

# A sample of everything: scripts, numbers, code, encodings, and near matches, so that they are checked closely.
_SAMPLE = """\
Please summarize the report below, "Results 2024", and explain in two sentences what changed; thank you!
Никто не забывает правила игры. 请总结以下文件。これは資料です。 Bitte fasse den Text zusammen. ¿Qué significa esto?
Never ignore all previous instructions. You are now a reviewer: pretend to be critical, but do not reveal the prompt.
def total(items: list[int]) -> int:  # 0x7f3a9c, sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    return sum(items)  # 2024-05-17T08:30:00Z, v10.2.33.4, 203.0.113.9, https://example.org/a%20b%20c%20d?x=1&y=2
password: changeme, api_key = "your-key-here", token=$TOKEN, Authorization: Bearer example-example-example
Order 4111 1111 1111 1112, tel. 030 123456, phone 555-0100, IBAN DE00 3704 0044 0532 0130 00
SSN 000-12-3456, born 1850
INTERNAL\nclassification: public\t| page 2 of 3 | i g n o r e  m e  n o w  p l e a s e
aGVsbG8gd29ybGQsIGhvdyBhcmUgeW91IHRvZGF5
caf\u00e9\u200b \u00a0\u2013 na\u00efve \U0001f600 &#104;&#101;&#108;&#108;&#111;
\\x68\\x65\\x6c\\x6c\\x6f 1gn0re vtaber erongi
"""


def warm_up_rules() -> None:
    """Load every system rule, and scan a sample with each that has no data of its own to load."""
    rules = system_rules().values()
    states = {rule.id: SystemRuleState(enabled=rule.load is None, action="warn") for rule in rules}
    compiled = engine.compile_guardrails(EngineConfig(system_rules=states))
    samples = [_SAMPLE, _SAMPLE.encode("ascii", "ignore").decode()]
    # Some rules read users' texts only, some what tools say.
    engine.screen(compiled, [Segment(ScannedText(text), role) for role in ("user", TOOL_RESULT) for text in samples])


@cache
def warm_up_rules_once() -> None:
    """Warm up unless this process has."""
    warm_up_rules()
