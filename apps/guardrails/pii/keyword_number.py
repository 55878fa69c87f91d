"""Numbers recognized by a keyword beside them: "BSN: 111222333"."""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.regex.re2_patterns import compile_re2

# Between a name and its number: "no. is:", `" : "`, one line's end.
GAP = r"[^0-9\n]{0,28}?\n?[^0-9A-Za-z\n]{0,8}?"
# Between a number and the name behind it: "… is my tax number", "… (mobile)", "… är mitt personnummer".
BEFORE_NAME = (
    r"(?:\)?,? ?(?: (?:is|was|are|ist|lautet|es|est|är|er|é|è|e|jest|je|on|to|adalah)\b|=|:|-| \(|는|은|は)"
    r"[^0-9\n]{0,24}?)"
)
_NEXT = r"(?:[\s,;/|&]|and|und|et|or|y|e|o)*[\s,;|&]"
# Words that tell that the number is of another kind.
_OTHER = compile_re2(
    r"(?i)\b(?:order|ticket|invoice|version|model|serial|case|price|port|line|build|part|sku|digits?|characters?|"
    r"bestellung|rechnung|commande|facture|pedido|factura)\b"
)


def pattern_after_keyword(
    name: str, label: str, words: str, number: str, check: Check, gap: str = GAP
) -> CandidatePattern:
    """Return what finds `number` behind one of `words`, `gap` between them (patterns), and the rest of a list."""

    def check_with_name(candidate: CandidateMatch) -> CandidateMatch | None:
        # Right behind a word may stand a bracket, as in "is(+45)".
        opening = len(candidate.text) - len(candidate.text.lstrip("(+ "))
        if not candidate._replace(start=candidate.start + opening).stands_alone() or _OTHER.search(
            candidate.before(28)
        ):
            return None
        return check(candidate)

    return CandidatePattern(
        name,
        label,
        pattern=rf"(?:{words}){gap}({number})",
        gate=rf"(?:{words})[^0-9\n]*\n?[^0-9\n]*[0-9]",
        check=check_with_name,
        overlapping=True,
        follow=rf"{_NEXT}({number})",
    )


def digits_of(text: str) -> str:
    """Return only the digits of a number as it was written."""
    return "".join(filter(str.isdigit, text))


def pattern_before_keyword(name: str, label: str, words: str, number: str, check: Check) -> CandidatePattern:
    """Return what finds `number` in front of one of `words`: "… is my mobile"."""

    def check_with_name(candidate: CandidateMatch) -> CandidateMatch | None:
        return check(candidate) if candidate.stands_alone() and not _OTHER.search(candidate.before(28)) else None

    return CandidatePattern(name, label, rf"({number}){BEFORE_NAME}(?:{words})", check_with_name, overlapping=True)
