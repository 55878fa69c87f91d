"""Transcription dialects: wire formats of speech written down, and how a format is found by the facts of a model.

A request for a transcript is a chat whose `transcription` holds the recording. A transcription dialect is a provider
side for such chats, found by the name that the data files state under `transcription`; a model that streams is asked in
the format of that name with `_stream` behind it where the client takes a stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apps.gateway.dialects import ProviderDialect, find_provider_dialect
from apps.gateway.dialects.media.transcription.provider.capabilities import capabilities_of

_PACKAGE: Final = f"{__name__}.provider"


def find_transcription_dialect(facts: Mapping[str, Any], *, streamed: bool) -> ProviderDialect | None:
    """Return the format in which an offer is asked for a transcript; None where none is stated."""
    capabilities = capabilities_of(facts)
    if capabilities is None:
        return None
    name = f"{capabilities.dialect}_stream" if streamed and "stream" in capabilities.takes else capabilities.dialect
    return find_provider_dialect(_PACKAGE, name)
