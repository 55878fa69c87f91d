"""Speech dialects: wire formats of texts read aloud, and how a format is found by the facts of a model.

A request for speech is a chat whose `speech` says how its text is to be read. A speech dialect is a provider side for
such chats, found by the name that the data files state under `speech`. Audio is only ever streamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from apps.gateway.canonical.audio import SoundFormat
from apps.gateway.dialects import ProviderDialect, find_provider_dialect
from apps.gateway.dialects.media.speech.provider.capabilities import capabilities_of

_PACKAGE: Final = f"{__name__}.provider"
# Which samples alone are sent in one format, and made a file here.
_MADE_HERE: Final = {("google", "wav"): "google_wav"}


def find_speech_dialect(facts: Mapping[str, Any], form: SoundFormat) -> ProviderDialect | None:
    """Return the dialect in which an offer is asked to read aloud in a format; None where none is stated."""
    capabilities = capabilities_of(facts)
    if capabilities is None:
        return None
    return find_provider_dialect(_PACKAGE, _MADE_HERE.get((capabilities.dialect, form), capabilities.dialect))
