"""Passwords in calls and commands, where only the place of an argument says what it is.

Knows functions that take a user and a password, or the key of a signature or a cipher, programs that take a login, and
lines of switches and routers. A word counts where nothing but a password can stand; what stands for one passes.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.regex.re2_patterns import compile_re2
from apps.guardrails.secret_formats.chosen_passwords import accept_given, accept_mixed, is_stand_in
from apps.guardrails.secret_formats.login_pairs import accept_argument
from apps.guardrails.secret_formats.passwords_as_arguments import accept_argument_of_call
from apps.guardrails.secret_formats.passwords_by_form import ABOUT

_LITERAL = r"[$@bruf]{0,2}\\{0,3}[\"'`]([^\s\"'`<>\\]{5,60})\\{0,3}[\"'`]"
_STRING = r"[$@bruf]{0,2}[\"'`][^\"'`\n]{0,60}[\"'`]"
_LEAST_KEY = 6
_NUMBERED = compile_re2(r"^[A-Za-z_-]+\d{1,2}$")


def _network(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what a router keeps: a digest that is broken at once, its own cipher, or the password itself."""
    text = candidate.text
    return candidate if any(map(str.isdigit, text)) and not is_stand_in(text.lstrip("$")) else None


def _second(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what is mixed and no numbered part, which programs connect as well: `component2`."""
    return None if _NUMBERED.match(candidate.text) else accept_mixed(candidate)


def _community(candidate: CandidateMatch) -> CandidateMatch | None:
    return None if candidate.text.lower() in ("public", "private") else accept_argument(candidate)


def _signing(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what a signature is made with: any literal that does not name a key, a method or a setting."""
    text = candidate.text
    return None if len(text) < _LEAST_KEY or ABOUT.search(text) else accept_argument_of_call(candidate)


def _form(pattern: str, check: Check, gate: str = "") -> CandidatePattern:
    return CandidatePattern("chosen_password", "PASSWORD", f"(?i){pattern}", check, gate and f"(?i){gate}")


def _key(pattern: str, gate: str) -> CandidatePattern:
    return CandidatePattern("signing_key", "SECRET", pattern, _signing, gate)


PATTERNS = (
    # Programs that take a password or a login, and what keeps it on switches and routers.
    _form(r"\bsqlplus (?:-\w+ )?[\w.]{1,40}/([^\s\"'@/]{4,60})@", accept_argument, r"\bsqlplus "),
    _form(
        r"\becho (?:-n )?[\"']?[\w.-]{1,40}:([^\s\"':|]{4,60})[\"']? ?\| ?(?:sudo )?chpasswd",
        accept_argument,
        "chpasswd",
    ),
    _form(
        r"\b(?:[xw]freerdp|rdesktop|mstsc)\b[^\n]{1,120}? (?:/p:|-p )[\"']?([^\s\"']{4,60})",
        accept_argument,
        r"freerdp|rdesktop|mstsc",
    ),
    _form(
        r"\bhttps? (?:[^\n|;&]{0,80} )?(?:-a|--auth)[ =][^\s:]{1,60}:([^\s\"'@$]{4,60})",
        accept_argument,
        r"\bhttps? [^\n|;&]*(?:-a|--auth)[ =][^\s:]+:",
    ),
    _form(r"\bssh-keygen\b[^\n|;&]{0,60}? (?-i:-[NP]) ?[\"']?([^\s\"']{5,60})", accept_argument, r"\bssh-keygen\b"),
    _form(
        r"\b(?:enable|username [^\s]{1,40}(?: privilege \d{1,2})?) (?:secret|password) (?:[0579] )?([^\s\"']{6,60})",
        _network,
        r"(?:enable|username) [^\n]*(?:secret|password) ",
    ),
    _form(r"\bsnmp-server community ([^\s\"']{4,40})", _community),
    # Calls that take a user and a password by their place. Where only these two can stand, words count.
    _form(
        rf"\b(?:\w{{0,16}}credential|usernamepassword\w{{0,24}}|passwordauthentication|set_?basic_?auth\w{{0,8}}"
        rf"|httpbasicauth"
        rf"|basic_?auth|basiccredentials|simple_bind(?:_s)?)\s?\(\s{{0,3}}(?:{_STRING}|"
        rf"[\w.]{{1,40}})\s{{0,3}},\s{{0,3}}{_LITERAL}",
        accept_given,
        r"(?:credential|password|auth|bind)\w*\s?\(",
    ),
    _form(
        rf"\b(?:smtp|ftp|imap|mail|server|session)\w{{0,12}}\.login\s?\(\s{{0,3}}(?:{_STRING}|"
        rf"[\w.]{{1,40}}),\s{{0,3}}{_LITERAL}\s?\)",
        accept_given,
        r"\.login\s?\(",
    ),
    _form(
        rf"\b(?:getconnection|pdo|mysqli(?:_connect)?|mysql_connect|connect|\w{{0,24}}connection|createuser"
        rf"|login|log_in|sign_?in|authenticate)\s?\(\s{{0,3}}(?:(?:{_STRING}|[\w.]{{1,40}}),\s{{0,3}}){{1,2}}{_LITERAL}\s?[,)]",
        _second,
        r"(?:connect|connection|pdo|mysqli|createuser|log_?in|sign_?in|authenticate)\s?\(",
    ),
    # What signatures, ciphers and sessions are made with.
    _key(
        r"(?i)\bjwt\.(?:sign|verify|encode|decode)\([^\n]{1,120}?,\s{0,3}[bru]{0,2}[\"'`]([^\s\"'`<>]{6,80})[\"'`]",
        r"(?i)\bjwt\.(?:sign|verify|encode|decode)\(",
    ),
    _key(
        r"(?i)\b(?:create_?hmac|signwith|createcipher(?:iv)?|createdecipher(?:iv)?|hmac\."
        r"(?:new|hexdigest|digest)|hash_hmac"
        r"|openssl_(?:en|de)crypt)\s?\((?:[^()\"'\n]{0,40}[\"'][^\"'\n]{0,80}[\"'],|[\w.:]{1,40}"
        r"(?:\([^()\n]{0,40}\))?,)?"
        r"\s{0,3}[bru]{0,2}[\"']([^\s\"'<>]{6,80})[\"']",
        r"(?i)(?:hmac|signwith|cipher(?:iv)?|hexdigest|crypt|new|digest)\s?\(",
    ),
    _key(
        r"(?i)\b(?:session|cookiesession|expressjwt|jwt|\w{0,20}strategy)\s?\(\s{0,8}\{[^{}]{0,240}?"
        r"\b(?:secret|secretOrKey|secretOrPrivateKey|clientSecret)[\"']?\s?:\s?[\"'`]([^\s\"'`<>]{6,80})[\"'`]",
        r"(?i)(?:session|jwt|strategy)\s?\(\s*\{",
    ),
    _key(
        r"(?:HMAC(?:256|384|512)|hmacShaKeyFor|SymmetricSecurityKey|SecretKeySpec|setSigningKey|SigningKey|NewCipher"
        r"|AES\.new|Fernet|cookieParser|CookieStore|NewCookieStore|TimestampSigner|URLSafeTimedSerializer)\s?\("
        r"(?:(?:\w{1,20}\.){0,3}\w{0,20}\(|\[\]byte\(){0,2}\s{0,3}[bru]{0,2}[\"'`]([^\s\"'`<>]{6,80})[\"'`]",
        r"(?:HMAC\d+|KeyFor|Key|KeySpec|Cipher|AES\.new|Fernet|Parser|Store|Signer|Serializer)\s?\(",
    ),
)
