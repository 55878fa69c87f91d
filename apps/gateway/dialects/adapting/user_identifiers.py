"""User identifiers: one that is longer than OpenAI's formats take is sent as its digest.

Claude Code's tells device, account and session, and is twice as long as OpenAI's limit. The same user keeps the same
digest, which is all that the field is for.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from msgspec.structs import replace

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects.adapting.unsupported_fields import note_dropped

MAX_LENGTH: Final = 64


def shorten_user(chat: Chat, target: Target) -> Chat:
    """Return the chat with a user identifier that OpenAI takes; another one than the client's is noted."""
    user = chat.user
    if user is None or len(user) <= MAX_LENGTH:
        return chat
    note_dropped(chat, target, "user", f"sent as a digest: the provider takes at most {MAX_LENGTH} characters")
    return replace(chat, user=sha256(user.encode("utf-8", "replace")).hexdigest())
