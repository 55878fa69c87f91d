"""Document leakage (DLP): markings such as confidential, internal use only, legally privileged.

Markings in documents are on a line of their own, in a header or footer, as a banner, behind the word
"Classification:", as a legend, in a file's name. The same words inside a sentence are only words.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from apps.guardrails.findings.scan_types import TOOL_RESULT, RuleAction, RuleSettings, ScannedFile, Span
from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, PatternSearch
from apps.guardrails.regex.re2_patterns import compile_re2, lazy_pattern
from apps.guardrails.text.scanned_text import ScannedText

ID = "document_leakage"
NAME = "Document leakage"
SUMMARY = "Markings such as CONFIDENTIAL in texts and files"
CATEGORY = "document_leakage"
DEFAULT_ENABLED = False
DEFAULT_ACTION: RuleAction = "warn"
ROLE_ACTIONS: dict[str, RuleAction] = {TOOL_RESULT: "neutralize"}

_LABEL = "MARKING"
_WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_MARKINGS, _MARKINGS_BEYOND = "|".join(_WORDS["markings"]), "|".join(_WORDS["beyond_latin"])
# Markings that also are headings, levels in a list, and adjectives.
_PLAIN_WORDS = frozenset(_WORDS["plain_words"])
_QUOTES = "\"'“”‘’«»「」『』`„‹›"  # noqa: RUF001 - these letters are meant
_DECORATION = " \t\r*#=_~<>[](){}|/\\•·!.:-–—+^†‡【】《》〔〕★☆※©️⚠"  # noqa: RUF001 - these letters are meant
_SEPARATORS = ("|", "•", "·", "—", "–", " - ", " / ", "//", "--")  # noqa: RUF001 - these letters are meant
_SENTENCE = compile_re2(
    r"(?i)[?;,]|\b(?:is|are|was|were|be|it|this|that|what|why|how|when|who|keep|please|means?|you|we|i|they|should|"
    r"must|can|will|mark(?:ed)?|"
    r"the|a|an|my|our|your|in|if|not|of which|because|word|stamp\w*|label\w*)\b"
)
_BULLET = compile_re2(r"^\s*(?:[-*+•]|\d{1,3}[.)]|\|)\s")
# Text before a sentence of a program's comments and docstrings.
_COMMENT = compile_re2(r"^(?:\t+| {2,})(?:[*#/-]+ )?$|^ ?(?://+|--|/?\*+|;+|\.\.) ")
_LINE, _MAX_LINE_LENGTH, _MAX_BESIDE = 160, 110, 60


def find(text: ScannedText, settings: RuleSettings) -> list[Span]:
    """Return every marking in a text, by place."""
    return _SEARCH.find(text.ascii_folded)


def find_in_file(file: ScannedFile, settings: RuleSettings) -> str | None:
    """Return the marking in a file's name, in words, or None."""
    match = _FILE_NAME.search(file.name.replace("_", " ").replace("-", " ").replace(".", " "))
    return f"the file's name is marked {(match.group(1) or match.group(2)).strip()!r}" if match else None


def _marking(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what stands as a marking does: alone on its line, or at the side of a short header or footer."""
    text = candidate.text.strip()
    left, right = _line_around(candidate)
    if (left[-1:] and left[-1] in _QUOTES) or (right[:1] and right[0] in _QUOTES) or "?" in left + right:
        return None
    if (left[-1:].isalnum() or right[:1].isalnum()) or _BULLET.search(left + text) or _is_comment(left, text):
        return None
    before, after = left.strip(_DECORATION), right.strip(_DECORATION)
    plain_word = text.lower() in _PLAIN_WORDS
    if not before and not after:
        return candidate if text.isupper() or not plain_word or _has_room(candidate) else None
    if len(left) + len(text) + len(right) > _MAX_LINE_LENGTH or max(len(before), len(after)) > _MAX_BESIDE:
        return None
    if _SENTENCE.search(before) or _SENTENCE.search(after):
        return None
    return candidate if _stands_apart(text, left, right) or (left + text + right).isupper() else None


def _is_comment(left: str, text: str) -> bool:
    """Return whether "for internal use only" is in a program, where it restricts callers."""
    return (
        bool(_COMMENT.match(left))
        and not text.isupper()
        and text.lower().startswith(("for internal", "internal", "do not"))
    )


def _stands_apart(text: str, left: str, right: str) -> bool:
    """Tell whether separators part the marking from what else is on its line."""
    if not text[:1].isupper() and text.isascii():
        return False
    before = (
        not left.strip()
        or left.strip(" \t").endswith(tuple(mark.strip() for mark in _SEPARATORS))
        or not left.strip(_DECORATION)
    )
    after = not right.strip(_DECORATION) or right.strip(" \t").startswith(tuple(mark.strip() for mark in _SEPARATORS))
    return before and after


def _line_around(candidate: CandidateMatch) -> tuple[str, str]:
    before = candidate.before(_LINE).rpartition(b"\n")[2].decode("utf-8", "ignore")
    return before, candidate.after(_LINE).partition(b"\n")[0].decode("utf-8", "ignore")


def _has_room(candidate: CandidateMatch) -> bool:
    """Tell whether the line is the text's only one, its first or last, or has empty lines around it, and is no
    other's word.
    """
    if not candidate.text[:1].isupper():
        return False
    above = candidate.before(_LINE).rpartition(b"\n")
    below = candidate.after(_LINE).partition(b"\n")
    above_blank = not above[1] or not above[0].rpartition(b"\n")[2].strip()
    return above_blank and (not below[1] or not below[2].partition(b"\n")[0].strip())


def _legend(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a sentence of a legend that is neither quoted nor asked about."""
    left, right = _line_around(candidate)
    if _is_comment(left, candidate.text) or (left[-1:] == "(" and left[:-1].strip(_DECORATION)):
        return None
    before = left.rstrip(" \t*_>#/-—–|")  # noqa: RUF001 - these letters are meant
    if (left[-1:] and left[-1] in _QUOTES) or (before[-1:] and before[-1] not in ".!)]:;©»" and before[-1:].isalnum()):
        return None
    if candidate.text[-4:].lower() in ("only", "auch") and right.lstrip()[:1].isalpha():
        return None
    return None if right.lstrip(" .")[:1] == "?" or (right[:1] in _QUOTES and right[:1]) else candidate


def _as_is(candidate: CandidateMatch) -> CandidateMatch | None:
    before, after = candidate.before(3).decode("utf-8", "ignore"), candidate.after(3).decode("utf-8", "ignore")
    return None if (before[-1:] and before[-1] in _QUOTES) and (after[:1] and after[0] in _QUOTES) else candidate


_DOCUMENT = (
    r"(?:document|e-?mail|message|memo(?:randum)?|presentation|report|file|deck|draft|communication|transmission|"
    r"material|information|"
    r"source code|software|proposal|agreement|letter)"
)
_SEARCH = PatternSearch(
    (
        # The banners and portion marks of the United States (ISOO's marking booklet) and NATO; the traffic
        # light protocol.
        CandidatePattern(
            "classification_banner",
            _LABEL,
            r"\b(?:TOP SECRET|SECRET|CONFIDENTIAL|UNCLASSIFIED|CUI)//(?:[A-Z][A-Z0-9 ,/-]{1,60}[A-Z0-9])|"
            r"\((?:TS|S|C|U)//[A-Z][A-Z0-9 ,/-]{0,40}\)|\bTLP:(?:RED|AMBER(?:\+STRICT)?)\b|"
            r"\bNATO (?:RESTRICTED|CONFIDENTIAL|SECRET)\b|\bCOSMIC TOP SECRET\b|\bVS[-–](?:NfD|"  # noqa: RUF001 - these letters are meant
            r"NUR FÜR DEN DIENSTGEBRAUCH|VERTRAULICH)\b",
            _as_is,
        ),
        CandidatePattern(
            "classification_label",
            _LABEL,
            r"(?i)\b(?:(?:data |document |information |security )?classification|sensitivity(?: label)?|"
            r"security level|confidentiality(?: level)?|"
            r"protective marking|klassifizierung|vertraulichkeit(?:sstufe)?|clasificaci[oó]n|classifica[cç][aã]o|"
            r"classificazione|niveau de confidentialité)"
            r"[\"']? ?[:=] ?[\"']?((?:strictly |highly |company |top |streng )?(?:confidential|secret|restricted|"
            r"internal(?: use)?(?: only)?|vertraulich|geheim|"
            r"confidentiel|confidencial|riservato)\b)",
            lambda candidate: candidate,
        ),
        CandidatePattern(
            "legend",
            _LABEL,
            rf"(?i)\b(?:this|the contents? of this|the information (?:contained "
            rf")?in this) {_DOCUMENT}[a-z ,()-]{{0,60}} (?:is|are|contains?|may contain|remains?) "
            r"(?:[a-z]+(?:,| and| or|/)? ){0,4}(?:confidential|proprietary|privileged|trade secrets?)(?: (?:and|"
            r"or) (?:[a-z]+ )?(?:confidential|proprietary|privileged))?\b|"
            r"\bunauthori[sz]ed (?:disclosure|distribution|copying|use|reproduction|"
            r"review)[a-z ,]{0,80} is (?:strictly )?prohibited|"
            r"\bdo not (?:distribute|share|forward|disclose) (?:this )?(?:outside|beyond)(?: of)? [a-z0-9 ]{2,40}|"
            r"\b(?:this|these|the (?:attached|enclosed)) [a-z ]{2,40} (?:is|are) (?:subject to|disclosed under|"
            r"covered by|provided under) "
            r"(?:a |an |the |our )?(?:mutual )?(?:non-?disclosure agreement|nda)\b|"
            r"\bfor internal (?:use|distribution) only\b|\bnur (?:für den|zum) internen gebrauch\b|\bne pas diffuser\b|"
            r"\b(?:dieses dokument|diese e-?mail|ce document|este documento|"
            r"questo documento)[a-zäöüéèàçñ ]{0,40}(?:vertraulich|confidentiel|confidencial|riservato|"
            r"confidenziale)\w*|"
            r"本(?:文档|文件|资料|邮件)(?:为|属于|包含|含有)?[^\n，。]{0,12}(?:机密|保密)|(?:本資料|本書|この文書)は[^\n、。]{0,12}(?:社外秘|機密)",  # noqa: RUF001 - these letters are meant
            _legend,
            often=True,
        ),
        CandidatePattern("marking", _LABEL, rf"(?i)\b(?:{_MARKINGS})\b|(?:{_MARKINGS_BEYOND})", _marking),
        CandidatePattern(
            "file_name",
            _LABEL,
            r"(?i)[\w-]*(?:confidential|internal[_-]?(?:use[_-]?)?only|top[_-]?secret|do[_-]not[_-]distribute|"
            r"strictly[_-]private|vertraulich|confidentiel|confidencial)[\w-]*"
            r"\.(?:pdf|docx?|xlsx?|pptx?|txt|csv|odt|rtf|zip|eml|msg)\b",
            _as_is,
        ),
    )
)
_FILE_NAME = lazy_pattern(
    r"(?i)(?:^|[^\pL])(confidential|internal (?:use )?only|internal use|top ?secret|do not distribute|"
    r"strictly private|privileged|vertraulich|streng geheim|"
    r"confidentiel|confidencial|riservato|vertrouwelijk|конфиденциально)(?:[^\pL]|$)|(机密|絶密|绝密|社外秘|極秘|대외비)"
)
