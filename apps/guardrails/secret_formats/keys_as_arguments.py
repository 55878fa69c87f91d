"""Keys that only their place in a call gives away: `jwt.sign(x, "…")`, `aes.Key = …GetBytes("…")`, `keys: ["…"]`.

Knows which argument of functions that sign, encrypt, derive keys and keep sessions is the secret, in a dozen languages.
Any word counts there. What stands for one, a method and a variable pass, as in `passwords_as_arguments`.
"""

from __future__ import annotations

from apps.guardrails.matching.pattern_search import CandidateMatch, CandidatePattern, Check
from apps.guardrails.secret_formats.entropy import has_letters_and_digits
from apps.guardrails.secret_formats.passwords_as_arguments import (
    ARGUMENT,
    BEGINS,
    LITERAL,
    NEXT,
    OPEN,
    PHRASE,
    STRING,
    accept_argument_of_call,
)

_OBJECT = r"\{[^{}]{0,160}(?:\{[^{}]{0,60}\}[^{}]{0,60})?\}"
_LETTERS_OF_HUSH = 2
_ALGORITHM = r"(?:aes|(?:triple)?des|rc4|rabbit|blowfish)"


def _of_token(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what a token is signed with, also where it is little more than one letter: `shhhhh`."""
    hushed = candidate.text.isalpha() and candidate.text.islower() and len(set(candidate.text)) == _LETTERS_OF_HUSH
    return candidate if hushed else accept_argument_of_call(candidate)


def _vector(candidate: CandidateMatch) -> CandidateMatch | None:
    """Accept what a cipher begins with, where it was made: letters and digits."""
    return accept_argument_of_call(candidate) if has_letters_and_digits(candidate.text) else None


def _key(pattern: str, gate: str, check: Check = accept_argument_of_call) -> CandidatePattern:
    return CandidatePattern("key_argument", "SECRET", f"(?i){pattern}", check, f"(?i){gate}")


_SIGNS_TOKENS = (
    r"\b(?:jwt|jsonwebtoken|jsonwt|jws|njwt|jose|jwt_?\w{1,12})(?:\.|::)"
    r"(?:sign|verify|encode|decode|create|parse)\w{0,10}"
)
# Of these a key is the first argument, or the second behind one that says nothing.
_TAKES_KEY = (
    r"\b(?:pbkdf2|standard|scrypt)passwordencoder\(|\bcreate_?secret_?key\(|\bnew.?encrypter\(|secretbox\("
    r"|(?:en|de)codingkey::from_secret\(|new_from_slice\(|message(?:encryptor|verifier)\.new[ (]|rfc2898derivebytes\("
    r"|(?:scrypt|pbkdf2)(?:sync)?\(|\bsymmetrickey\(|\b(?:get)?hmac(?:sha\d{1,3}|md5)?\("
)

PATTERNS = (
    _key(
        rf"{_SIGNS_TOKENS}[ (]\s{{0,12}}(?:{_OBJECT}|{ARGUMENT}){NEXT}(?:\w{{1,8}}\.as_?key\(|new key\()?{PHRASE}",
        r"\b(?:jwt|jsonwebtoken|jsonwt|jws|njwt|jose|jwt_?\w+)(?:\.|::)(?:sign|verify|encode|decode|create|parse)",
        _of_token,
    ),
    _key(
        rf"(?:(?:signedstring|\bhmac\.new)\s?\((?:\s?[\w.]{{1,24}},)?\s?\[\]byte\(\s?|\bhash_hmac\(\s?{STRING},\s?[^,\n]{{1,60}}"
        rf",\s?|\bhmac\(\s?evp_\w{{2,12}}\(\),\s?|pbkdf2_?hmac\(\s?{STRING},\s?){PHRASE}",
        r"(?:signedstring|\bhmac\.new)\s?\(|hmac\(",
    ),
    _key(
        rf"\bcryptojs\.(?:{_ALGORITHM}\.(?:en|de)crypt|hmac\w{{2,8}}|pbkdf2)\(\s?(?:{ARGUMENT}{NEXT})?{PHRASE}\s?[,)]",
        r"\bcryptojs\.",
    ),
    _key(
        rf"(?:{_TAKES_KEY})\(?\s?(?:data:\s?)?(?:[\w.]{{1,30}}\(\s?)?{PHRASE}",
        rf"(?:{_TAKES_KEY})",
    ),
    _key(
        rf"\b(?:iv|gcm)parameterspec\(\s?(?:\d{{2,3}},\s?)?{LITERAL}",
        r"\b(?:iv|gcm)parameterspec\(",
    ),
    _key(
        r"\b\w{0,12}(?:cipher|crypt|aes|des|hmac)\w{0,8}\.(?:key|iv|password)\s?=\s?(?:\[?[\w.]{1,30}[.(\[]{1,2})?"
        rf"{LITERAL}",
        r"(?:cipher|crypt|aes|des|hmac)\w*\.(?:key|iv|password)\s?=",
    ),
    _key(
        r"\b(?:iv|initiali[sz]ation_?vector|nonce)[\"']?\s?[:=]\s?(?:[\w.]{1,40}\(\s?)?"
        rf"{OPEN}([0-9A-Za-z+/=]{{12,64}})[\"'`]",
        r"\b(?:iv|initiali[sz]ation_?vector|nonce)[\"']?\s?[:=]",
        _vector,
    ),
    # Sessions, and settings of tokens.
    _key(
        r"session(?:\s?\(\s{0,12}\{[^{}]{0,240}?\bkeys[\"']?\s?:\s?\[\s?|\w{0,12}[^\n]{0,40}?\bsecret[\"']?\s?(?::|=>)\s?)"
        rf"{LITERAL}",
        r"session[^\n]*\bsecret[\"']?\s?(?::|=>)|session\s?\(\s*\{",
    ),
    _key(
        rf"[\"']jwt\w{{0,12}}[\"']\s?:\s?\{{[^{{}}]{{0,120}}?[\"'](?:key|secret\w{{0,4}})[\"']\s?:\s?{LITERAL}",
        rf"[\"']jwt\w*[\"']\s?:\s?\{{[^{{}}]*[\"'](?:key|secret\w*)[\"']\s?:\s?{BEGINS}",
    ),
)
