"""Speech dialects: wire formats of texts read aloud, and how a format is found by the facts of a model.

A request for speech is a chat whose `speech` says how its text is to be read. A speech dialect is a provider side for
such chats, found by the name that the data files state under `speech`. Sound is only ever streamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final, cast

from apps.gateway.canonical.audio import SoundFormat
from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.speech.provider.abilities import abilities_of

# Which samples alone are sent in one format, and made a file here.
_MADE_HERE: Final = {("google", "wav"): "google_wav"}


def find_speech_dialect(facts: Mapping[str, Any], form: SoundFormat) -> ProviderDialect | None:
    """Return the dialect in which an offer is asked to read aloud in a format; None where none is stated."""
    abilities = abilities_of(facts)
    return None if abilities is None else _find(_MADE_HERE.get((abilities.dialect, form), abilities.dialect))


@cache
def _find(name: str) -> ProviderDialect:
    return cast(ProviderDialect, import_module(f"{__name__}.provider.{name}"))
