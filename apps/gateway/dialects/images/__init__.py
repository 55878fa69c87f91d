"""Wire formats of pictures: pure functions between bytes and the canonical language, one module a format.

A request for pictures is a chat whose `drawing` says what they are to be like. A format here is the outbound side of a
dialect (`write_request`, `read_reply` …) for such chats; nobody keeps a list: it is found by the name that the data
files state under `images`. A model that draws when it is chatted to is asked in its provider's own dialect.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

from apps.gateway.canonical.chat import Chat, Target
from apps.gateway.dialects import Outbound, find_dialect
from apps.gateway.dialects.images.provider.abilities import abilities_of
from apps.gateway.dialects.images.provider.chat import as_chat

IN_CHAT = "chat"


def find_image_dialect(facts: Mapping[str, Any], chat_dialect: str) -> Outbound | None:
    """Return the format in which an offer is asked for pictures; None when it makes none, or it is not spoken here."""
    abilities = abilities_of(facts)
    if abilities is None:
        return None
    return find_dialect(chat_dialect) if abilities.dialect == IN_CHAT else _find_format(abilities.dialect)


def as_asked(chat: Chat, target: Target) -> Chat:
    """Return a chat as its target is to be asked: a model that draws in chats is chatted to about pictures."""
    if chat.drawing is None:
        return chat
    abilities = abilities_of(target.facts)
    return as_chat(chat, target) if abilities is not None and abilities.dialect == IN_CHAT else chat


@cache
def _find_format(name: str) -> Outbound | None:
    module = f"{__name__}.provider.{name}"
    if find_spec(module) is None:
        return None
    found = import_module(module)
    return cast(Outbound, found) if hasattr(found, "NAME") else None
