"""Mention filter (use/mention): whether words are meant, or only forbidden, quoted or reported of others.

It reads the folded text around a match, in UTF-8.
"""

from __future__ import annotations

from apps.guardrails.regex.re2_patterns import LazyPattern, lazy_pattern

# How many bytes before and after are looked at.
_AROUND = 140
# Maximum length of a quotation before the match in it.
_QUOTATION = 60


def _compile(*alternatives: str) -> LazyPattern:
    return lazy_pattern("|".join(f"(?:{part})" for part in alternatives))


def _word_of(words: str) -> str:
    """Return the expression of one of the words, which may be expressions themselves."""
    return rf"\b(?:{'|'.join(words.split())})\b"


# Right before it, in the same clause: it is forbidden.
_FORBIDDEN = _compile(
    _word_of("never not don't doesn't won't cannot can't mustn't shouldn't nor avoid without prevents? against")
    + r"(?: [^ .!?:]+){0,4}[ ,]*$",
    r"\b(?:refuse to(?: [^ .!?:]+){0,4}|can only) $",
    r"\b(?:niemals|nie|nicht|keine[nrms]?|weder)(?: [^ .!?:]+){0,3} $",
    r"\b(?:ne|n'|jamais|refuse)(?: [^ .!?:]+){0,3} ?$",
    r"\b(?:no|nunca|jamás|não|non|mai|nooit|niet|geen|nigdy)(?: [^ .!?:]+){0,2} $",
    r"(?:не|никогда|не надо)(?: [^ .!?:]+){0,1} $",
    r"(?:不要|不得|请勿|绝不|切勿|禁止|不能|别)[^,.!?。]{0,4}$",
)
# But a polite frame forbids and reports nothing: "if you don't mind, ignore", "be so kind as to ignore".
_POLITE = _compile(
    r"\b(?:be|you are|you were) (?:so )?(?:kind|good|nice|gracious) (?:as|enough) to(?: [a-z]+)? $",
    r"\bhave the (?:kindness|courtesy|goodness|decency) to(?: [a-z]+)? $",
    r"\bif (?:you (?:don't|do not|wouldn't|would not) mind"
    r"|(?:it|that|this)(?:'s not| is not| isn't| wouldn't be| would not be)"
    r" (?:too much |too big |a |any )?(?:trouble|problem|bother|burden|ask|favou?r|to ask))(?: [a-z]+){0,3}[ ,]*$",
)
# In the same sentence before it: another person does it, or a question is about it.
_OF_OTHERS = _compile(
    _word_of("requests? attempts? attempting asks? asked asking tries tried trying tells? told")
    + r"(?: [^ .!?]+){0,3} to\b[^.!?]{0,60}$",
    _word_of("instructs? wants? urges? tricked? commands? demands?") + r"(?: [^ .!?]+){0,3} to\b[^.!?]{0,60}$",
    r"\b(?:if|when|whenever|in case|should) (?:the|a|an|any|some|your) "
    + _word_of("users? someone person customers? attackers? callers? visitors?")
    + r"[^.!?]{0,80}$",
    r"\b(?:if|when) (?:some(?:one|body)|anyone|users|they)\b[^.!?]{0,80}$",
    r"\b(?:how (?:do|can|could|would|to|does)|why|which|what happens|whether)\b[^.!?]{0,50}$",
    r"\b(?:aufforderung(?:en)?|versuche?|wenn (?:der|ein|die) (?:nutzer|benutzer|kunde))[^.!?]{0,60}$",
    r"\b(?:demandes?|tentatives?|si l'utilisateur)\b[^.!?]{0,60}$",
    r"\b(?:peticiones|solicitudes|intentos|si el usuario|pedidos|tentativas)\b[^.!?]{0,60}$",
    r"\b(?:requests|prompts|payloads|inputs|sentences|phrases|messages) (?:such as|like|that|to)\b[^.!?]{0,60}$",
)
# Unless it is the one who speaks that asks for it.
_BY_ME = _compile(
    r"\b(?:i|we|i'm|i am|i'd)(?: [a-z]+){0,2} "
    + _word_of("want need ask asking tell telling command order urge demand request like")
    + r" you(?: [a-z]+){0,1} to\b[^.!?]{0,60}$"
)
# Inside it: the order is about orders.
_INSIDE = _compile(
    _word_of("attempts? anyone aufforderung[a-z]* peticiones solicitudes demandes?"),
    r"\b(?:requests?|demands?) (?:to|for)\b",
    r"\b(?:contained|found) in\b",
    r"\breplace (?:[^ ]+ ){1,2}with your\b",
    r"\binto (?:your|the) (?:[a-z]+ )?prompts?\b|\byour (?:own prompts|(?:best|favou?rite|custom|saved) prompts?)\b",
    r" (?:never|niemals|nie|nooit|jamais|nunca|nigdy|никогда) ",
)
# Right after it: the orders of a document that is worked on, not the model's own.
_DOCUMENTS = _compile(
    r"^[^.!?a-z]{0,3}"
    r"(?:contained|in the|inside|within|from the|for the|for this file|found|that appear|embedded|on how"
    r"|for (?:installing|assembl[a-z]+)|(?:provided|listed|given|described|printed|posted|shown) (?:on|in|at|by))\b"
)
# But not how long it shall hold.
_LASTING = _compile(r"^[^.!?a-z]{0,3}for the (?:rest|remainder|duration|whole|entire|next|following|purposes?)\b")
# Around a quotation: it is an example.
_TALK = _compile(
    _word_of("injections? jailbreak(?:s|ing)? guardrails? filters? detect[a-z]* tests? assert sentences? phrases?"),
    _word_of("payloads? patterns? like classif[a-z]+ attack[a-z]* incident report typed said says flags? heuristics?"),
    _word_of("inputs? screenplay novel adversari[a-z]+"),
    r"\b(?:such as|message [0-9]+|e\.g\.)",
    r"(?:^| )examples?\b",
    r"(?:beispiel|angriff|satz|attaques?|du type|exemple|ejemplo|inyecci[oó]n|como|ataque|esempio)",
    r"(?:пример|атак|注入|攻击|例如)",
)
_QUOTES = ('""', "``", "“”", "«»", "「」", "„“")
_CLOSING = {pair[0].encode(): pair[1].encode() for pair in _QUOTES} | {b" '": b"'", b"('": b"'", b"[": b"]("}

_MARKS, _ROUND = (b"<", b"["), (b'"', b"'", b"`")


def is_only_mentioned(utf8: bytes, start: int, end: int) -> bool:
    """Tell whether `utf8[start:end]` is forbidden, reported of others, or quoted as an example."""
    before = utf8[max(0, start - _AROUND) : start]
    after = utf8[end : end + _AROUND]
    if (_FORBIDDEN.search(before) and not _POLITE.search(before)) or _INSIDE.search(utf8, start, end):
        return True
    if _is_named_mark(utf8, start, end):
        return True
    if _OF_OTHERS.search(before) and not _BY_ME.search(before):
        return True
    if _DOCUMENTS.search(after) and not _LASTING.search(after):
        return True
    return _is_quoted(before, after) and bool(_TALK.search(before) or _TALK.search(after))


# The word before an order in English that makes it no order, unless it is "you" who should.
_NO_ORDER = _compile(
    _word_of("should may might can could would to will must shall does did they we i which that it who he she users?")
    + " $",
    r"\b[a-z]+ing $",
)
# Nor is it one as the object of an addition: "you can add ignore rules".
_NOUN = _compile(_word_of("add adds adding these those such") + " $")
_YOU = _compile(r"\b(?:you|please|kindly|now|and|then|want you|need you|going|have|having|must|are)(?: [a-z]+){0,2} $")


def is_reported_speech(utf8: bytes, start: int) -> bool:
    """Return whether the text at `start` describes an action ("the tenant may ignore") and orders nothing."""
    before = utf8[max(0, start - 40) : start]
    is_order = not _NO_ORDER.search(before) or bool(_YOU.search(before) or _POLITE.search(before))
    return bool(_NOUN.search(before)) or not is_order


class MentionFilter:
    """The mention filter of one text; equal surroundings are read once."""

    def __init__(self, utf8: bytes) -> None:
        """Take a normalized text."""
        self._utf8 = utf8
        self._known: dict[tuple[bool, int, int, bytes], float] = {}

    def weight_of(self, start: int, end: int, *, order: bool) -> float:
        """Return how much counts of `utf8[start:end]`: 1, a half for an order in reported speech, 0 for a mention."""
        first = max(0, start - _AROUND)
        around = (order, start - first, end - start, self._utf8[first : end + _AROUND])
        if around not in self._known:
            self._known[around] = _weigh(*around)
        return self._known[around]


def _weigh(order: bool, start: int, size: int, utf8: bytes) -> float:
    if is_only_mentioned(utf8, start, start + size):
        return 0.0
    return 0.5 if order and is_reported_speech(utf8, start) else 1.0


def _is_named_mark(utf8: bytes, start: int, end: int) -> bool:
    """Tell whether it is a mark of a template with nothing beside it between its quotation marks: `"<|im_end|>"`."""
    return utf8[start : start + 1] in _MARKS and utf8[start - 1 : start] in _ROUND and utf8[end : end + 1] in _ROUND


def _is_quoted(before: bytes, after: bytes) -> bool:
    for opening, closing in _CLOSING.items():
        at = before.rfind(opening)
        inside = before[at + len(opening) :]
        if at >= 0 and closing not in inside and len(inside) < _QUOTATION and closing in after:
            return True
    return False
