"""Addresses of crypto wallets: Bitcoin by its checksums, Ethereum and others beside a word that says so.

It verifies Base58Check and bech32 (by python-stdnum) and the lengths of other addresses.
"""

from __future__ import annotations

from stdnum import bitcoin

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.matching.text_checks import text_check
from apps.guardrails.pii.keyword_number import pattern_after_keyword
from apps.guardrails.regex.re2_patterns import compile_re2

_LABEL = "CRYPTO_WALLET"
_NAMES = (
    r"(?i:\b(?:wallets?|crypto address|ethereum|eth|erc-?20|usdt|usdc|trc-?20|tron|solana|sol|litecoin|ltc|"
    r"doge(?:coin)?|monero|xmr|"
    r"ripple|xrp|cardano|polygon|bnb|send (?:it |them )?to)\b)"
)
_OTHERS = (
    r"0x[0-9a-fA-F]{40}|T[1-9A-HJ-NP-Za-km-z]{33}|[LM][1-9A-HJ-NP-Za-km-z]{26,33}|ltc1[02-9ac-hj-np-z]{39}|"
    r"D[5-9A-HJ-NP-U][1-9A-HJ-NP-Za-km-z]{32}|[48][1-9A-HJ-NP-Za-km-z]{94}|r[1-9A-HJ-NP-Za-km-z]{24,34}|"
    r"addr1[02-9ac-hj-np-z]{53,98}|[1-9A-HJ-NP-Za-km-z]{43,44}"
)
_LONG_RUN = compile_re2(r"[0-9A-Za-z]{25,}")
_FEWEST_DIGITS = 3


def _checked(candidate: CandidateMatch) -> CandidateMatch | None:
    return candidate if candidate.stands_alone() and bitcoin.is_valid(candidate.text) else None


def _is_mixed(text: str) -> bool:
    """Tell whether a text is as mixed as an address: with digits, and many different letters."""
    return sum(map(str.isdigit, text)) >= _FEWEST_DIGITS and len(set(text)) >= 12


def _find_long_runs(utf8: bytes) -> list[tuple[int, int]]:
    """Return the ends and beginnings of runs that are long enough: most texts that name a coin have none."""
    return [(run.end(), run.start()) for run in _LONG_RUN.finditer(utf8)]


PATTERNS = (
    CandidatePattern(
        "bitcoin", _LABEL, r"\b(?:[13][1-9A-HJ-NP-Za-km-z]{25,34}|bc1[02-9ac-hj-np-z]{11,71})\b", _checked
    ),
    pattern_after_keyword(
        "wallet", _LABEL, _NAMES, _OTHERS, text_check(_is_mixed), r"[^\n]{0,40}?[^0-9A-Za-z]"
    )._replace(find_values=_find_long_runs),
)
