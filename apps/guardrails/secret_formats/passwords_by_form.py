"""Passwords in markup and settings: Markdown, XML, lists, variables of containers, flags, literals, comparisons.

Knows the forms that join the name of a password to its value without a plain sign of equality. The value must look
chosen; a word counts where a program gives it, quoted, to a password, and in variables of environments. What stands for
a value passes, as in `chosen_passwords`.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.assignments import (
    NAMES_OF_PASSWORDS,
    is_harmless_name,
    is_something_else,
    is_test_key,
)
from apps.guardrails.secret_formats.chosen_passwords import (
    accept_given,
    accept_mixed,
    is_no_password,
    is_no_value,
    is_other_name,
    is_stand_in,
)
from apps.guardrails.secret_formats.login_pairs import accept_argument
from apps.guardrails.secret_formats.stand_in_words import has_word_of_its_own, is_something_described

_LABEL = "PASSWORD"
_NAMES = rf"(?:{NAMES_OF_PASSWORDS})"
_NAME = rf"[a-z0-9_.-]{{0,24}}{_NAMES}[a-z0-9_]{{0,12}}"
# How a value begins where nothing need follow it; the check takes the rest, which costs less than the pattern would.
_VALUE = r"([^\s\"'`<>,;|&(){}\[\]]{5})"
_REST, _LONGEST_REST = compile_re2(r"[^\s\"'`<>,;|&(){}\[\]]*"), 100
_LITERAL = r"[$@bruf]{0,2}\\{0,3}[\"'`]([^\s\"'`<>\\]{5,60})\\{0,3}[\"'`]"
_LEAST = 7
# What values of documents are, beside the name of a password: methods, sizes, versions.
ABOUT = compile_re2(
    r"(?i)^(?:v\d+(?:alpha|beta|rc)|sha-?\d|md5|base-?\d\d|utf-?\d|pbkdf|hmac|argon|bcrypt|scrypt|oauth|ntlm|2fa|u2f|rfc-?\d|v?\d+[.x+-]"
    r"|\d+\w{0,5}$|int\d|varchar|uint|http|char)"
)
_NAME_OF_ONE = compile_re2(rf"(?i)^(?:{NAMES_OF_PASSWORDS})")
_TO_BE_DONE = compile_re2(
    r"(?i)(?:forgot(?:ten)?|forget|change|reset|confirm|new|show|hide|toggle|repeat|retype|old|current|enter"
    r"|verify|invalid"
    r"|wrong|incorrect|weak|missing|no|lost|update|has|is|check|validate|require[sd]?|ask|prompt|input|read|type|field"
    r"|label|error|message|hint|about)[ _-]?(?:your|the|for|of)?[ _-]?(?:password|passwd|pwd|passphrase|secret)\W*$"
)
_SECRET_KEY = compile_re2(r"(?i)secret_?key(?:_?base)?\W{1,12}[bru]?[\"'`]$")
_VARIABLE = compile_re2(
    rf"(?i)(?:{NAMES_OF_PASSWORDS}|(?:_|\b)secret|secret_key)[\"'`]?[)\]]?\s?(?:,(?:\s?default\s?=)?|\?\?|\|\||\?:|:|\bor\b)\s?[bru]?[\"'`]$"
)
# "the secret: …" of a sentence.
_SAID = compile_re2(r"(?i)\b(?:the|an?|our|your|my|his|her|its|this|that|top|big)[ _-]?secret ?: ?[\"'`]$")
# Several names that take several values at once: which of them is the secret's, nobody sees.
_UNPACKED = compile_re2(r"\w, \w+ = [\"'`]$")
_ASSIGNED, _LEAST_JOINED = (
    compile_re2(r"(?i)\b[\w$.]*(?:password|passwd|pwd|passphrase|secret)\d?\s?:?={1,2}\s?[\"'`]$"),
    8,
)
_LABELLED = compile_re2(r"(?::|=>|,)\s{0,3}[\"'`]$")
_ENDS_SENTENCE = ".,;:)*_"


def _whole(candidate: CandidateMatch) -> CandidateMatch:
    rest = _REST.match(candidate.utf8, candidate.end, candidate.end + _LONGEST_REST)
    return CandidateMatch(candidate.utf8, candidate.start, rest.end())


def _written(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what is mixed and neither a method nor code, without the signs that end a sentence."""
    candidate = _whole(candidate)
    text = candidate.text.rstrip(_ENDS_SENTENCE)
    value = candidate.truncated(len(text.encode()))
    if len(text) < _LEAST or ABOUT.search(text) or is_something_else(text):
        return None
    if is_other_name(candidate.before(48)):
        return None
    return accept_mixed(value)


def _written_key(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what a line of settings gives to a token or key, except those that everybody may see."""
    text = candidate.text
    if is_harmless_name(candidate.before(48)) or is_test_key(text) or ABOUT.search(text) or is_something_else(text):
        return None
    return accept_mixed(candidate)


def _plain_word(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a word that a line of settings gives to a password, and none that describes one or is a variable."""
    text, before = candidate.text, candidate.before(64)
    line = before.rpartition(b"\n")[2]
    # Within a call of a program, an argument stands on a line of its own.
    inset = line[:1] in (b" ", b"\t") and line.endswith(b"=")
    if inset or is_stand_in(text) or ABOUT.search(text) or _TO_BE_DONE.search(before) or is_something_described(text):
        return None
    return candidate if has_word_of_its_own(text) else None


def _literal(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a quoted value that is mixed, unless the name only begins with that of a password."""
    candidate = _whole(candidate)
    return None if is_other_name(candidate.before(48)) or ABOUT.search(candidate.text) else accept_mixed(candidate)


def accept_fallback(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what stands in for a variable: mixed, or any word where its name ends with that of a password."""
    return accept_given(candidate) if _VARIABLE.search(candidate.before(64)) else _literal(candidate)


def _compared(candidate: CandidateMatch) -> CandidateMatch | None:
    return None if ABOUT.search(candidate.text) else accept_mixed(candidate)


def _word(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept a quoted word that a program gives to a password, unless it is a label: capitalized behind a colon, or for
    what is to be done with a password."""
    text, before = candidate.text, candidate.before(64)
    if _TO_BE_DONE.search(before) or _SAID.search(before) or is_no_value(text):
        return None
    if (_NAME_OF_ONE.search(text) or is_no_password(text)) and not has_word_of_its_own(text):
        return None
    # Words that signs join are names of something unless nothing but a variable stands before them.
    assigned = _ASSIGNED.search(before) and not _UNPACKED.search(before)
    if is_stand_in(text) and not text.isalnum() and (len(text) < _LEAST_JOINED or not assigned):
        return None
    if is_other_name(before[-48:]) and not _SECRET_KEY.search(before):
        return None
    return None if text[0].isupper() and text[1:].islower() and _LABELLED.search(before) else candidate


def _form(pattern: str, check: Check, gate: str = "", *, overlapping: bool = False) -> CandidatePattern:
    return CandidatePattern("chosen_password", _LABEL, f"(?i){pattern}", check, gate and f"(?i){gate}", overlapping)


PATTERNS = (
    # Lists and tables of Markdown: `- **Password:** …`, "| password | … |".
    _form(
        rf"{_NAMES}[a-z0-9_]{{0,12}}[\"'`]?(?:\*{{1,2}} ?[:=]|[:=] ?\*{{1,2}}|[*`]{{0,3}} ?\|)[ \t]{{0,8}}"
        rf"[\"'`*]{{0,3}}{_VALUE}",
        _written,
        rf"{_NAMES}[a-z0-9_]*[\"'`:= ]*[*|]",
    ),
    # Elements of XML and property lists, on one line or more.
    _form(
        rf"{_NAMES}[a-z0-9_]{{0,12}}[\"']?\s?(?:</(?:key|name)>\s{{0,24}}<(?:string|value)|)>\s{{0,24}}"
        rf"(?:<!\[CDATA\[)?([^\s\"'`<>]{{5,60}}?)"
        r"(?:\]\]>)?\s{0,24}</",
        _literal,
        rf"{_NAMES}[a-z0-9_]*[\"']?\s?(?:>|</)",
    ),
    # Lists: `passwords: ["…", "…"]`, and one to a line.
    CandidatePattern(
        "chosen_password",
        _LABEL,
        rf"(?i){_NAMES}s?[\"']?\s{{0,2}}[:=]\s{{0,3}}(?:[\[(]\s{{0,12}}[\"']|\n[ \t]*- [\"']?){_VALUE}",
        _literal,
        gate=rf"(?i){_NAMES}s?[\"']?\s?\s?[:=]\s*[\[(-]",
        follow=rf"[\"']?\s{{0,3}},?\s{{1,12}}(?:- )?[\"']?{_VALUE}",
    ),
    # A variable of a container, in YAML: its name on one line, its value on the next.
    _form(
        rf"{_NAMES}[a-z0-9_]{{0,12}}[\"']?,?\s{{1,24}}\"?(?:default_?)?value\"?\s?[:=]\s{{0,3}}[\"']?{_VALUE}",
        _written,
        rf"{_NAMES}[a-z0-9_]*[\"']?,?\s+\"?(?:default_?)?value",
    ),
    # Directives of shells, containers and build files; then a name, a blank and a quoted value.
    _form(
        rf"\b(?:env|arg|setx|setenv|set|define|export)(?: -[a-z]{{1,3}}| global)?[ \t]{{1,4}}{_NAME}[ \t]{{1,4}}"
        rf"[\"']?{_VALUE}",
        _written,
        rf"{_NAMES}[a-z0-9_]*[ \t]+[^ \t]",
    ),
    _form(
        rf"{_NAMES}[a-z0-9_]{{0,12}}[ \t]{{1,4}}{_LITERAL}(?:[;,\s)\]}}]|$)",
        _literal,
        rf"{_NAMES}[a-z0-9_]*[ \t]+[$@bruf]*[\\]*[\"'`]",
        overlapping=True,
    ),
    _form(
        rf"(?m)^[ \t]*(?:requirepass|masterauth|rootpw|bindpw|wpa_passphrase|psk)[ \t=]{{1,4}}[\"']?{_VALUE}", _written
    ),
    # Flags: `--db-password …`.
    _form(
        rf"(?:^|\s)--?[a-z0-9_.-]{{0,24}}(?:{NAMES_OF_PASSWORDS}|pass)[a-z0-9_-]{{0,12}}[ =]{{1,2}}[\"']?"
        rf"([^\s\"'`<>;|&]{{5}})",
        _literal,
        rf"-(?:[a-z0-9_.-]*)(?:{NAMES_OF_PASSWORDS}|pass)[a-z0-9_-]*[ =]",
    ),
    # Assignments of R, C# and Visual Basic, and a member of a dictionary in Perl.
    _form(
        rf"{_NAMES}[a-z0-9_]{{0,12}}\s?(?:<-|\{{ ?get;[^{{}}\n]{{0,24}}\}} ?=|as string ?=|\{{['\"]?\w{{1,24}}"
        rf"['\"]?\}} ?=)\s?{_LITERAL}",
        _literal,
        rf"{_NAMES}[a-z0-9_]*\s?(?:<-|\{{|as string)",
    ),
    # A literal that a program gives to a password, or compares with one: a word counts as well.
    _form(
        r"(?:password|passwd|pwd|passphrase|secret(?:_?key(?:_?base)?|_?token)?)\d?"
        r"[\"'`\])]{0,3}"
        r"(?: ?: ?(?:str|string|&str)\b)?\s{0,3}(?::=|={1,3}>?|!={1,2}|\?:|:|\|\||\?\?)\s{0,3}[bru]?[\"'`]{1,3}([a-z]"
        r"[^\s\"'`<>\\]{4,60})[\"'`]",
        _word,
        r"(?:password|passwd|pwd|passphrase|_?secret|secret_?(?:key(?:_?base)?|token))\d?[\"'`\])]*"
        r"(?: ?: ?(?:str|string|&str)\b)?\s*[:=!|?>]+\s*[bru]?[\"'`]",
    ),
    _form(
        r"\b(?:login|credentials|account)(?: is| are|:)[ \t]{1,2}[^\s/:\"']{2,40} ?[/:] ?([^\s\"'`<>,;|&(){}\[\]]{5})",
        _written,
        r"\b(?:login|credentials|account)(?: is| are|:)[ \t]+[^\s/:\"']+ ?[/:] ?[^\s]",
    ),
    # Variables of environments in capitals, in whatever file lists them.
    _form(
        r"(?-i:(?m)^[ \t-]*(?:export |ENV |set |- )?[A-Z][A-Z0-9_]{2,40}_PASS(?:WORD|WD)?) ?[:=] ?[\"']?"
        r"([^\s\"'`<>$]{5,60})[\"']?[ \t\r]*$",
        accept_given,
        r"_PASS(?:WORD|WD)? ?[:=]",
    ),
    _form(
        r"(?m)^[ \t-]*(?:(?-i:(?:export |ENV |set )?(?:[A-Z][A-Z0-9_]{1,40}_)?(?:SECRET|TOKEN|SECRET_KEY|API_?KEY"
        r"|ACCESS_KEY))"
        r"|[a-z0-9_.-]{0,40}(?:secret|token|(?:api|access)[_-]?key)) ?[:=] ?[\"']?([^\s\"'`<>$]{8,60})[\"']?[ \t\r]*$",
        _written_key,
        r"(?:secret|token|(?:api|access|secret)[_-]?key) ?[:=] ?[\"']?[^\s\"'`<>$]*[0-9!@#%^&*+~?;]",
    ),
    # Lines of settings that hold nothing but a name and a word, and elements of XML.
    _form(
        r"(?m)^[ \t]*(?:- )?(?:export |set )?[\w.-]{0,40}(?-i:password|passwd|passphrase|PASSWORD|PASSWD)(?:=|: )"
        r"([a-z][^\s\"'`<>(){}\[\]$,;:.]{5,40})[ \t\r]*$",
        _plain_word,
        r"(?-i:password|passwd|passphrase|PASSWORD|PASSWD)(?:=|: )[a-z][^\s\"'`<>(){}\[\]$,;:.]*[ \t\r]*\n?",
    ),
    _form(
        r"<[\w.:-]{0,40}(?:password|passwd|passphrase)>([a-z][^\s\"'`<>(){}\[\]$,;:.]{5,40})</",
        _plain_word,
        r"(?:password|passwd|passphrase)>[a-z][^\s<>]+</",
    ),
    # What stands in for a variable of the environment that is not set.
    _form(
        rf"{_NAMES}[^\n]{{0,40}}?(?:get)?env[^\n]{{0,80}}?[)\]] ?(?::|\|\||\?\?|\bor\b) ?{_LITERAL}",
        accept_fallback,
        rf"{_NAMES}[^\n]*env[^\n]*[)\]] ?(?::|\|\||\?\?|or) ?[\"'`]",
    ),
    _form(
        r"\bdefine\(\s{0,8}[\"'][a-z_]{0,24}pass(?:word|wd)?[\"'],\s{0,16}[\"']([^\s\"'<>]{5,60})[\"']\s?\)",
        accept_given,
        r"\bdefine\(",
    ),
    # Comparisons, either way round.
    _form(
        rf"{_NAMES}[a-z0-9_]{{0,12}}(?:\(\))?\.(?:equals(?:IgnoreCase)?|eql\?|compareTo"
        rf"|isEqualTo\w{{0,8}})\({_LITERAL}",
        _compared,
        rf"{_NAMES}[a-z0-9_]*(?:\(\))?\.(?:eq|compareTo|isEqual)",
    ),
    _form(
        rf"{_LITERAL} ?(?:[!=]={{1,2}}|\.equals\(|eq) ?[a-z0-9_.$]{{0,24}}{_NAMES}",
        _compared,
        rf"[\"'`] ?(?:[!=]==?|\.equals\(|eq) ?[a-z0-9_.$]*{_NAMES}",
    ),
    # A sentence about a name that is put together: "the db_password is …".
    _form(
        rf"[a-z0-9]_?(?:{NAMES_OF_PASSWORDS})[a-z0-9_]{{0,8}}[\"'`]? (?:is|was)(?: set to)? [\"'`]?"
        rf"([^\s\"'`<>,;|]{{5}})",
        _written,
        rf"[a-z0-9]_?(?:{NAMES_OF_PASSWORDS})[a-z0-9_]*[\"'`]? (?:is|was) ",
    ),
    # Logins of notes: the user's line, then the password's, without a sign or with one letter for each name.
    _form(
        r"(?m)^[ \t]*user ?name[ \t]+[^\s:=]{2,40}(?:[ \t]+|[ \t]*\r?\n[ \t]*)(?:password|passwd|pwd|pass|pw)[ \t]+"
        r"([^\s\"'<>:=]{4,60})[ \t]*$",
        accept_argument,
        r"user ?name[ \t]+[^\s]+\s+(?:password|passwd|pwd|pass|pw)[ \t]",
    ),
    _form(
        r"(?m)^[ \t]*(?:login|user|u|un)[ \t]*[: ][ \t]*[^\s:=]{2,40}[ \t]*[\s,;/][ \t]*(?:pw|p|pwd)[ \t]*[: ][ \t]*"
        r"([^\s\"'<>:=]{4,60})[ \t]*$",
        accept_argument,
        r"(?:login|user|\bu|\bun)[ \t]*[: ][ \t]*[^\s]+[\s,;/]+(?:pw|p|pwd)[ \t]*[: ]",
    ),
)
