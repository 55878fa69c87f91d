"""Redaction: removes credentials from foreign text before it is shown or logged. Pure.

It recognizes known formats of credentials, and a given credential whole, in part, percent-encoded, or in base64. It
never raises, so that no error message is lost.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import quote, quote_plus

import msgspec

MASK: Final = "..."
# Characters: a shorter credential is masked only as a whole, a longer one also in parts of this length.
LEAST_PART: Final = 12
_SHORTEST: Final = 4
LEAST_MASKED: Final = 8
# Parts of a credential are searched at every fourth position: any sixteen characters contain one.
_STRIDE: Final = 4
_WORDS: Final = re.compile(r'[^\s:,"{}]{12,}')
# A value after a header's name; ordinary words contain no digits. Surrounding punctuation is not included.
_VALUE: Final = r"""(?=[^\s"',;\\]*\d)[^\s"',;\\]{8,}"""
_HEADERS: Final = r"(?:proxy-)?authorization|(?:x-)?(?:goog-)?api-key|x-amz-security-token|set-cookie|cookie"
_FORMS: Final = re.compile(
    "|".join(
        (
            rf"(?P<scheme>\b(?i:bearer|basic)\s+){_VALUE}",
            rf"""(?P<header>\b(?i:{_HEADERS})[\\"']*\s*[:=]\s*[\\"']*(?:(?i:bearer|basic|token)\s+)?){_VALUE}""",
            # OpenAI, Anthropic and similar ones; our own; many others.
            r"\b(?:sk|rk|pk)[-_](?=[A-Za-z0-9_-]*\d)[A-Za-z0-9_-]{16,}",
            r"\bgw_(?:live|dev)_[A-Za-z0-9]{16,}",
            r"\b(?:gsk_|hf_|gh[ops]_|r8_|whsec_|tgp_v1_|xai-|pplx-|nvapi-|csk-)[A-Za-z0-9_-]{20,}",
            # Google, Amazon, signed tokens, private keys.
            r"\bAIza[A-Za-z0-9_-]{30,}",
            r"\bya29\.[A-Za-z0-9._-]{16,}",
            r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",
            r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*)?",
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:\\[nr]|[A-Za-z0-9+/=\s])*(?:-----END [A-Z ]*PRIVATE KEY-----)?",
        )
    )
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Return the text without the secrets in any notation, and without text that looks like a credential."""
    found = [span for secret in secrets for quoted in _spellings_of(secret) for span in _spans_of(quoted, text)]
    pieces: list[str] = []
    since = 0
    for start, end in sorted(found):
        # Contained in the previous match, or next to it: one mask is enough.
        if start > since or not pieces:
            pieces += [text[since:start], MASK]
        since = max(since, end)
    return redact_forms("".join([*pieces, text[since:]]))


class SecretMask:
    """Removes known secrets from external data for people; everything else stays.

    A secret is searched as a whole, in each notation that `redact` knows. One shorter than `LEAST_MASKED` characters is
    as likely an ordinary word, and stays.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        found = {spelling for secret in secrets if len(secret) >= LEAST_MASKED for spelling in _spellings_of(secret)}
        self.spellings = sorted((one for one in found if len(one) >= LEAST_MASKED), key=len, reverse=True)

    def text(self, text: str) -> str:
        """Return a text without the secrets."""
        for spelling in self.spellings:
            if spelling in text:
                text = text.replace(spelling, MASK)
        return text

    def value(self, value: Any) -> Any:
        """Return a JSON value with the secrets removed from strings and keys."""
        if not self.spellings:
            return value
        # Mostly there is none: one check of the whole is much cheaper than one of each string.
        written = msgspec.json.encode(value).decode()
        if not any(json.dumps(one, ensure_ascii=False)[1:-1] in written for one in self.spellings):
            return value
        return self._masked(value)

    def _masked(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._masked(one) for one in value]
        if isinstance(value, dict):
            return {self.text(name): self._masked(one) for name, one in value.items()}
        return value


class StreamMask:
    """Removes known secrets from a body that arrives in pieces, as `SecretMask` does from a text.

    Only bytes that may be the beginning of a secret wait for the next piece.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._spellings = [spelling.encode("utf-8", "surrogatepass") for spelling in SecretMask(secrets).spellings]
        self._secret = re.compile(b"|".join(map(re.escape, self._spellings)) or rb"(?!)")
        self._longest = max(map(len, self._spellings), default=0)
        self._waiting = b""

    def add(self, piece: bytes) -> bytes:
        """Return the bytes that are certain now, secrets removed; `piece` comes after all pieces before it."""
        text = self._waiting + piece
        certain = self._start_of_beginning(text)
        parts: list[bytes] = []
        done = 0
        for found in self._secret.finditer(text):
            if found.start() >= certain:
                break
            parts += text[done : found.start()], MASK.encode()
            done = found.end()
        certain = max(certain, done)
        self._waiting = text[certain:]
        return b"".join([*parts, text[done:certain]])

    def end(self) -> bytes:
        """Return the bytes that waited, secrets removed: the body has ended."""
        waiting, self._waiting = self._waiting, b""
        return self._secret.sub(MASK.encode(), waiting)

    def _start_of_beginning(self, text: bytes) -> int:
        """Return where the first part of a secret starts that ends with the text; its length if there is none."""
        # A string in JSON has no raw line feed, so nothing is looked at before the last one, which ends most events.
        first = max(len(text) - self._longest + 1, text.rfind(b"\n") + 1, 0)
        for start in range(first, len(text)):
            beginning = text[start:]
            if any(len(one) > len(beginning) and one.startswith(beginning) for one in self._spellings):
                return start
        return len(text)


def redact_forms(text: str) -> str:
    """Return the text without apparent credentials: values of headers with one, and known formats."""
    return _FORMS.sub(_masked, text)


def _masked(match: re.Match[str]) -> str:
    return f"{match['scheme'] or match['header'] or ''}{MASK}"


def _spellings_of(secret: str) -> set[str]:
    """Return the notations of a secret: itself, its parts, and their encodings."""
    found: set[str] = set()
    for part in (secret, *_parts_of(secret)):
        if len(part) < _SHORTEST:
            continue
        written = part.encode("utf-8", "surrogatepass")
        found |= {part, quote(written, safe=""), quote_plus(written), json.dumps(part)[1:-1]}
        if len(part) >= LEAST_PART:
            # After zero, one or two other characters (`user:secret`), whose bits are in the first group.
            for ahead in range(3):
                for encode in (b64encode, urlsafe_b64encode):
                    found.add(encode(bytes(ahead) + written).decode().rstrip("=")[4 if ahead else 0 : -2])
    return found


def _parts_of(secret: str) -> list[str]:
    """Return the parts of a composite credential: a pair with a colon, the JSON of an account."""
    return _WORDS.findall(secret) if any(mark in secret for mark in ':,"{') else []


def _spans_of(secret: str, text: str) -> Iterator[tuple[int, int]]:
    """Yield the positions of a secret in a text, and of each part that is long enough to be sensitive."""
    if len(secret) < LEAST_PART:
        for match in re.finditer(re.escape(secret), text):
            yield match.span()
        return
    last = len(secret) - LEAST_PART
    for offset in {*range(0, last, _STRIDE), last}:
        piece = secret[offset : offset + LEAST_PART]
        at = text.find(piece)
        while at >= 0:
            start, end = at, at + LEAST_PART
            before, after = offset, offset + LEAST_PART
            while start and before and text[start - 1] == secret[before - 1]:
                start, before = start - 1, before - 1
            while end < len(text) and after < len(secret) and text[end] == secret[after]:
                end, after = end + 1, after + 1
            yield start, end
            at = text.find(piece, end)
