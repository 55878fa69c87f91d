"""Texts of recently read documents: an agent sends the same file with each turn of a conversation.

Entries are found by the digest of a file's bytes, which only a client that has the file can name.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock
from typing import Final

from apps.guardrails.files.document_text import DocumentText, read_document_text

# Characters that a process keeps; the least recently used go first.
MAX_CHARACTERS: Final = 2_000_000
_ENTRY: Final = 500
_lock = Lock()
_texts: OrderedDict[bytes, DocumentText] = OrderedDict()
_size = 0


def document_text(data: bytes) -> DocumentText:
    """Return the text of a document, read once while it is kept. Safe on several threads."""
    digest = hashlib.blake2b(data, digest_size=32).digest()
    with _lock:
        known = _texts.get(digest)
        if known is not None:
            _texts.move_to_end(digest)
            return known
    read = read_document_text(data)
    _keep(digest, read)
    return read


def _keep(digest: bytes, read: DocumentText) -> None:
    global _size
    with _lock:
        if digest not in _texts:
            _texts[digest] = read
            _size += len(read.text) + _ENTRY
        while _size > MAX_CHARACTERS and _texts:
            _, oldest = _texts.popitem(last=False)
            _size -= len(oldest.text) + _ENTRY
