"""Words that a value may be put together from without being a secret: `clientSecret`, `new-password`, `api_token`.

Knows which words name or describe a secret. A value that has a word of its own beside these, as `supersecret` and
`blue-secret-key` have, was chosen by somebody; whether that is enough depends on where it stands.
"""

from __future__ import annotations

from apps.guardrails.regex.re2_patterns import compile_re2

_NAMES = (
    r"passwords?|passphrase|passwd|passcode|pwd|pass|pw|secrets?|tokens?|keys?|api|auth(?:orization|entication|enticate)?|oauth2?"
    r"|credentials?|creds?|login|logon|access|private|public|session|jwt|jws|hmac|cookies?|csrf|xsrf|signing|signature|signed"
    r"|encryption|encrypted|encoded|decoded|decrypt(?:ed|ion)?|hash(?:ed)?|salt|pepper|pat|basic|bearer|master|refresh"
)
_OWNERS = (
    r"users?|usr|names?|admins?|administrator|root|clients?|app(?:lication)?s?|account|e-?mail|db|database|host|server|servers"
    r"|services?|ids?|values?|strings?|text|type|path|file|store|storage|vault|manager|provider|reader|field|label|input|form|page"
    r"|data|config(?:uration)?|settings?|env(?:ironment)?|variable|param(?:eter)?s?|arg(?:ument)?s?|header|prefix|suffix|length|size"
    r"|expir(?:y|es|ed|ation)|policy|hint|policy|strength|generator|encoder|checker|service|resource|scope|cache|map|list"
    r"|azure|aws|gcp|google|github|gitlab|slack|stripe|openai|kube(?:rnetes)?|docker|registry|postgres(?:ql)?|mysql|mongo(?:db)?|redis"
    r"|ldap|smtp|ftp|ssh|ssl|tls|http|https|web|url|uri|bot|device|shared|global|local|internal|external|primary|secondary"
)
_TELLING = (
    r"tests?|testing|tester|examples?|samples?|dummy|demo|fake|mock(?:ed)?|placeholder|foo|bar|baz|qux|my|your|our|their|some|any|here"
    r"|change|changed|me|it|replace|insert|enter|todo|tbd|put|this|that|is|a|an|the|or|of|with|for|to|and|not|no|redacted|hard|coded"
    r"|hardcoded|hardcode|default|none|null|nil|undefined|empty|missing|new|old|current|previous|next|confirm|confirmation|wrong|invalid"
    r"|incorrect|correct|valid|verify|reset|forgot|forgotten|lost|repeat|show|hide|toggle|update|updated|create|delete|remove|get|set"
    r"|use|has|have|need|needs|require[sd]?|weak|strong|plain|raw|clear|temp|temporary|initial|first|second|one|two|another|other"
    r"|expected|actual|random|generated|unknown|only|long|short|good|bad|sensitive|real|prod|production|dev|development|staging|live"
)
_WORDS = compile_re2(rf"(?i)^(?:{_NAMES}|{_OWNERS}|{_TELLING})+$")
_PIECE = compile_re2(r"[A-Z]+[a-z]*|[a-z]+")
_LEAST_OF_ITS_OWN, _LEAST_IN_PHRASE = 4, 3


_DESCRIBED = compile_re2(
    r"(?i)^(?:mandatory|protected|secured?|sensitive|specified|configured|provided|given|unchanged|unset|disabled|enabled"
    r"|deprecated|ignored|optional|required|string|boolean|integer|number|object|array|unique|nullable|readonly|writeonly"
    r"|write_?only|read_?only|hidden|masked|visible|shown|stored|saved|cleartext|plaintext|bcrypt|argon2\w*|scrypt|pbkdf2"
    r"|getpass|input|prompt|passphrase|inherit(?:ed)?|automatic|manual|always|never|sometimes|absent|present|latest|request"
    r"|response|rejected|accepted|expired|locked|unlocked|forbidden|allowed|denied|failed|success(?:ful)?|matches|mismatch)$"
)


def is_something_described(text: str) -> bool:
    """Tell whether a word describes a password instead of being one: "optional", "hidden"."""
    return bool(_DESCRIBED.search(text))


def has_word_of_its_own(text: str) -> bool:
    """Tell whether a value holds a word that neither names a secret nor tells of one."""
    pieces = [piece.decode() for piece in _PIECE.findall(text.encode("ascii", "replace"))]
    least = _LEAST_IN_PHRASE if " " in text else _LEAST_OF_ITS_OWN
    return any(len(piece) >= least and not _WORDS.search(piece) for piece in pieces)
