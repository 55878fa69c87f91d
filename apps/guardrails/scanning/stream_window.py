"""Streaming window: an answer is scanned while it streams, and what rules match never leaves.

The last `HOLDBACK` characters are held back until the text after them is known; so is a word of ASCII letters and signs
that has not ended (a key, a token), and anything that matches already and may go on. The released text is what
masking the whole text would give, for matches of up to `HOLDBACK` characters; the beginning of a longer match may have
been released before it could be recognized. Rules look no further than `CONTEXT` characters around a match.
"""

from __future__ import annotations

from apps.guardrails.findings.redaction import mask, replaced_spans
from apps.guardrails.findings.scan_types import MASKING_ACTIONS, ActiveRule, Finding, Segment, Span, Verdict
from apps.guardrails.scanning.engine import (
    CompiledGuardrails,
    RuleMatch,
    drop_overridden,
    find_allowing_rules,
    find_matches,
    to_finding,
)
from apps.guardrails.text.scanned_text import ScannedText

HOLDBACK = 256
CONTEXT = 256
# Characters that gather before rules look again, and that are held back at most.
_STEP = 64
_MAX_HELD = 8192


class StreamBlocked(Exception):
    """A rule does not let the answer go on; nothing of what it matched has left."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.blocked.rule_name if verdict.blocked else "")
        self.verdict = verdict


class StreamWindow:
    """One text of an answer. Feed it what arrives, pass on what it returns, close it at the end."""

    def __init__(self, compiled: CompiledGuardrails, place: str = "choices[0].message.content") -> None:
        self._compiled = compiled
        self._place = place
        # The scanned text: released up to `_left`, then held back.
        self._buffer = ""
        self._left = 0
        # Where it begins in the whole text, and where in the buffer it was cut before: outside of every match.
        self._base = 0
        self._cuts = [0]
        # How long it must be before looking again can let something through.
        self._enough = HOLDBACK + _STEP
        self._allowed: dict[int, ActiveRule] = {}
        self._found: dict[ActiveRule, list[Span]] = {}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything found in what has left so far; spans count the characters of the answer as the model wrote it."""
        return tuple(to_finding(RuleMatch(rule, 0, tuple(spans))) for rule, spans in sorted(self._found.items()))

    def feed(self, text: str) -> str:
        """Take what arrived and return what may leave, masked. Raises Blocked."""
        self._buffer += text
        if len(self._buffer) < self._enough:
            return ""
        return self._release(final=False)

    def close(self) -> str:
        """Return the held-back text. Raises Blocked."""
        return self._release(final=True)

    def _release(self, *, final: bool) -> str:
        matches = self._find_matches()
        spans = [span for match in matches for span in match.spans]
        cut = len(self._buffer) if final else self._cut_of(spans)
        leaving: list[Span] = []
        for match in matches:
            these = [span for span in match.spans if span.end > self._left and span.start < cut]
            if these:
                self._note(match.rule, these)
            if match.rule.action in MASKING_ACTIONS and not match.rule.observed:
                finding = to_finding(RuleMatch(match.rule, 0, tuple(these)))
                leaving += [self._within(span, cut) for span in replaced_spans(finding, self._segment)]
        masked = mask(self._buffer[self._left : cut], leaving)
        self._forget(cut)
        return masked

    @property
    def _segment(self) -> Segment:
        return Segment(ScannedText(self._buffer), "assistant", self._place)

    def _find_matches(self) -> list[RuleMatch]:
        matches = find_matches(self._compiled, [self._segment], answer=True)
        # A text that was allowed stays so; what comes after it is not known yet.
        self._allowed = find_allowing_rules(
            [*matches, *(RuleMatch(rule, 0, (Span(0, 1, ""),)) for rule in self._allowed.values())]
        )
        matches = drop_overridden(matches, self._allowed)
        for match in matches:
            new = [span for span in match.spans if span.end > self._left]
            if new and match.rule.action == "block" and not match.rule.observed:
                self._note(match.rule, new)
                blocked = to_finding(RuleMatch(match.rule, 0, tuple(self._found[match.rule])))
                raise StreamBlocked(Verdict(blocked=blocked, findings=self.findings))
        return matches

    def _cut_of(self, spans: list[Span]) -> int:
        """Return the end of the text to release: before the held-back text, and not within a word or a match."""
        latest = len(self._buffer) - HOLDBACK
        cut = latest
        while True:
            inside = [span.start for span in spans if span.start < cut < span.end]
            moved = min(inside) if inside else self._word_start(cut)
            if moved == cut:
                break
            cut = moved
        if cut > self._left:
            return cut
        return self._left if len(self._buffer) - self._left < _MAX_HELD else latest

    def _word_start(self, cut: int) -> int:
        """Return where the word begins that `cut` is in; `cut` itself between words, and between other letters."""
        if cut < len(self._buffer) and not "!" <= self._buffer[cut] <= "~":
            return cut
        while cut > self._left and "!" <= self._buffer[cut - 1] <= "~":
            cut -= 1
        return cut

    def _within(self, span: Span, cut: int) -> Span:
        start, end = max(span.start, self._left) - self._left, min(span.end, cut) - self._left
        return Span(start, end, span.pattern, span.label)

    def _note(self, rule: ActiveRule, spans: list[Span]) -> None:
        moved = [Span(span.start + self._base, span.end + self._base, span.pattern, span.label) for span in spans]
        noted = self._found.setdefault(rule, [])
        noted += [span for span in moved if span not in noted[-len(moved) :]]

    def _forget(self, cut: int) -> None:
        """Keep of what has left only the context of what comes."""
        self._left = cut
        self._cuts.append(cut)
        start = max((at for at in self._cuts if at <= cut - CONTEXT), default=0)
        self._buffer = self._buffer[start:]
        self._base += start
        self._left -= start
        self._cuts = [at - start for at in self._cuts if at >= start]
        # Text that is held back for long is scanned less and less often: some ten times in all.
        held = len(self._buffer) - self._left
        self._enough = max(self._left + HOLDBACK, len(self._buffer)) + max(_STEP, (held - HOLDBACK) // 8)
