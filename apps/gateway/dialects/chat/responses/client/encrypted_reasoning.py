"""OpenAI Responses, client side: thinking of any maker inside of `encrypted_content`.

Makers that sign or encrypt thinking take it back only as it was. Clients of this format keep one opaque text for each
item of reasoning: it holds the blocks as their maker gave them, with the format that tells whose they are. How it is
encrypted, and for whom, is the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from apps.gateway.canonical.chat import Reasoning
from apps.gateway.dialects.reading.fields import Malformed

# The prefix that distinguishes our text from a provider's; the digit is the version of the layout.
_MARK: Final = "gwr1."
# Characters of one text; thinking of a million tokens is no longer.
_MAX_BYTES: Final = 16 * 1024 * 1024

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Reasoning]).decode


class ReasoningCipher(Protocol):
    """Authenticated encryption for one owner of reasoning."""

    def encrypt(self, content: bytes) -> str:
        """Return the content as a text that only this owner's cipher opens."""

    def decrypt(self, text: str) -> bytes:
        """Return the content. Raises ValueError for a text that was changed, or made for another client."""


def encrypt_blocks(blocks: Sequence[Reasoning], cipher: ReasoningCipher) -> str:
    """Return the text that carries blocks."""
    return _MARK + cipher.encrypt(_encode(list(blocks)))


def is_encrypted_here(content: str) -> bool:
    """Return whether a text is one of ours; any other is a provider's own."""
    return content.startswith(_MARK)


def decrypt_blocks(content: str, cipher: ReasoningCipher | None) -> list[Reasoning]:
    """Return the blocks that a text carries. Raises Malformed for one that was changed, or made for another client."""
    if len(content) > _MAX_BYTES:
        raise Malformed("is longer than any reasoning of a model")
    try:
        if cipher is not None:
            return _decode(cipher.decrypt(content.removeprefix(_MARK)))
    except (ValueError, msgspec.MsgspecError):
        pass
    raise Malformed("could not be verified: it was changed, or made for another organization; leave it out")
