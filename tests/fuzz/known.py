"""Kept seeds that still break their reader, by the name of their file, and why. Whoever mends one takes it out here."""

from __future__ import annotations

_TOO_DEEP = "a count nested deeper than the stack raises RecursionError: read_count catches MsgspecError alone"
KNOWN: dict[str, str] = {
    "82f76a17c4e5": _TOO_DEEP,
    "b8cb4d4b02e5": _TOO_DEEP,
    "728be304d5fc": _TOO_DEEP,
    "21b0296f4977": "arguments of a call that are no UTF-8 raise UnicodeDecodeError in bedrock/block_in.py",
    "562256a41e8b": _TOO_DEEP,
    "c69cb5ba6000": "a header in a trailer becomes a header of the request",
    "145d4cead1d1": "`thinking` of another type than an object raises AttributeError in anthropic/open_turn.py",
    "1a15cefef0bf": "bytes behind a complete answer change its status",
    "0e96d1c7bb4f": _TOO_DEEP,
    "67fc6a5b6d4b": _TOO_DEEP,
}
