"""Numbers that only the word beside them tells apart: "BSN: 111222333".

Knows how a name and its number stand together. Must never know which names there are.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.regex.re2_patterns import compile_re2

# Between a name and its number: "no. is:", `" : "`, one line's end.
_GAP = r"[^0-9\n]{0,28}?\n?[^0-9A-Za-z\n]{0,8}?"
# The same of a number that its check digits confirm: "PESEL of my client Anna Nowak-Kowalska, as agreed, is …".
WIDE_GAP = r"[^0-9\n]{0,64}?\n?[^0-9A-Za-z\n]{0,8}?"
_NEXT = r"(?:[\s,;/|&]|and|und|et|or|y|e|o)*[\s,;|&]"
# What says that the number is another one after all.
_OTHER = compile_re2(
    r"(?i)\b(?:order|ticket|invoice|version|model|serial|case|price|port|line|build|part|sku|digits?|characters?|"
    r"bestellung|rechnung|commande|facture|pedido|factura)\b"
)


def pattern_after_keyword(
    name: str, label: str, words: str, number: str, check: Check, gap: str = _GAP
) -> CandidatePattern:
    """Return what finds `number` behind one of `words`, `gap` between them (patterns), and the rest of a list."""

    def check_with_name(hit: CandidateMatch) -> CandidateMatch | None:
        if not hit.stands_alone() or _OTHER.search(hit.before(28)):
            return None
        return check(hit)

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
