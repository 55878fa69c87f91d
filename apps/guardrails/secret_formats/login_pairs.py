"""Logins of two parts: a user and a password side by side, and what programs take for the second from a command line.

Knows how notes, settings, addresses of databases and commands join the two. Beside a user a plain word counts for a
password; what stands for one (`password`, `changeme`, `$PASS`) passes.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern
from apps.guardrails.secret_formats.assignments import NAMES_OF_PASSWORDS
from apps.guardrails.secret_formats.chosen_passwords import is_word_for_password

_LEAST = 4
_PASS = rf"(?:{NAMES_OF_PASSWORDS}|pass|pw)"
_USER = r"(?:user[ _-]?(?:name|id)?|login|log-in|e-?mail(?: address)?|account|un)"
# Between a name and its value: a sign, a quote before it, also as they are written inside a string.
_QUOTED_IS = r"\s*\\{0,3}[\"']?\s*[=:]>?\s*\\{0,3}[\"']"
_SIGN = r"[\"']? ?[:=]=? ?[\"']?"
_NEXT = r"[\"']?[\s,;/|&]{1,6}(?:and |und |with )?(?:export )?[\w.-]{0,32}?"
_WORD = r"[^\s\"',;:=&<>]{2,64}"
_VALUE = r"([^\s\"'<>&,;]{4,100})"
_IN_QUOTES = r"\\{0,3}[\"']([^\s\"'\\]{4,60})\\{0,3}[\"']"


def accept_argument(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what stands where only a password can, unless it is a variable or names one."""
    text = candidate.text.rstrip(".,;)")
    if len(text) < _LEAST or text[0] in "$%<{[-(*@," or is_word_for_password(text):
        return None
    return candidate.truncated(len(text.encode()))


def _pair(pattern: str, gate: str) -> CandidatePattern:
    return CandidatePattern("login_pair", "PASSWORD", f"(?i){pattern}", accept_argument, gate=f"(?i){gate}")


def _argument(pattern: str, gate: str) -> CandidatePattern:
    return CandidatePattern("login", "PASSWORD", pattern, accept_argument, gate=gate)


_PASS_IS = rf"{_PASS}[\"']? ?[:=]"

PATTERNS = (
    _pair(rf"(?:\b|_){_USER}{_SIGN}{_WORD}{_NEXT}{_PASS}{_SIGN}{_VALUE}", _PASS_IS),
    _pair(rf"{_PASS}{_SIGN}{_VALUE}{_NEXT}{_USER}{_SIGN}[^\s\"'<>]", _PASS_IS),
    _pair(
        rf"\b{_USER}{_QUOTED_IS}[^\"'\n\\]{{2,60}}\\{{0,3}}[\"'][^\n]{{0,60}}?{_PASS}{_QUOTED_IS}"
        r"([^\s\"'\\]{4,60})\\{0,3}[\"']",
        rf"{_PASS}\s*\\*[\"']?\s*[=:]",
    ),
    _pair(
        rf"\b{_USER} \\{{0,3}}[\"'][^\s\"']{{2,60}}[\"'],? (?:and |with )?{_PASS} {_IN_QUOTES}", rf"{_PASS} \\*[\"']"
    ),
    _pair(
        rf"\b{_USER} ?/ ?{_PASS}{_SIGN}[^\s/:\"']{{2,64}} ?[/:] ?{_VALUE}",
        rf"/ ?{_PASS}",
    ),
    # With a line or two of something else between the two, as programs do not write them: without commas.
    _pair(
        rf"(?m:^)[ \t]*{_USER}{_SIGN}{_WORD}[\"']?[ \t]*\r?\n(?:[^\n]{{0,60}}\n){{1,2}}"
        rf"[ \t]*[\w.-]{{0,32}}?{_PASS}{_SIGN}([^\s\"'<>&,;]{{4,40}})[\"']?[ \t\r]*(?m:$)",
        _PASS_IS,
    ),
    # Go's driver names the network before the host.
    _pair(r"[\"'`]?[\w.-]{1,40}:([^\s\"'`@:/]{4,60})@(?:tcp6?|unix)\(", r"@(?:tcp6?|unix)\("),
    # Oracle's thin driver puts both before the sign of the host.
    _pair(r"\bjdbc:oracle:\w{3,4}:[^\s/@:]{1,60}/([^\s/@:\"']{4,60})@", "jdbc:oracle:"),
    _argument(
        r"\b(?:PGPASSWORD|MYSQL_PWD|SSHPASS|RESTIC_PASSWORD|REDISCLI_AUTH)=[\"']?([^\s\"';&|]{4,100})", r"[A-Z]="
    ),
    _argument(r"\bsshpass +-p ?[\"']?([^\s\"']{4,100})", "sshpass"),
    _argument(r"\bmysql(?:dump|admin|import)?\b[^\n|;&]{0,120}? -p([^\s\"'=]{4,60})", "mysql"),
    _argument(
        r"\b(?:docker|podman|buildah|skopeo|oras|helm registry) login\b[^\n|;&]{0,120}? (?:-p|--password)[ =][\"']?"
        r"([^\s\"']{4,100})",
        r"\b(?:docker|podman|buildah|skopeo|oras|helm registry) login ",
    ),
    _argument(
        r"(?:--(?:src-|dest-)?creds[ =][\"']?[\w.@-]{1,40}:|\brootpw +--plaintext +|\bsudo +-S[^\n|;&]{0,60}<<< ?)"
        r"[\"']?([^\s\"':]{4,100})",
        r"--(?:src-|dest-)?creds[ =]|\brootpw +--plaintext|\bsudo +-S[^\n|;&]*<<<",
    ),
    _argument(r"\bhtpasswd +-[a-zA-Z]*b[a-zA-Z]* +[^\s]{1,100} +[^\s]{1,60} +[\"']?([^\s\"']{4,100})", "htpasswd"),
    _argument(
        r"\becho +(?:-n +)?[\"']?([^\s\"'|]{4,60})[\"']? *\| *(?:sudo +-S|(?:docker|podman|helm registry) login )",
        r"\becho [^\n|]*\| *(?:sudo +-S|(?:docker|podman|helm registry) login )",
    ),
    _argument(r"(?:^|\s)--(?:http-|ftp-|proxy-)?password=[\"']?([^\s\"']{4,100})", "password="),
    _argument(r"\bnet +use\b[^\n]{1,60}? ([^\s\"'/\\:*]{4,60}) +/user:", r"\bnet +use\b[^\n]*/user:"),
)
