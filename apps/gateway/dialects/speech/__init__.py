"""Speech dialects: wire formats of texts read aloud, and how a format is found by the facts of a model.

A request for speech is a chat whose `speech` says how its text is to be read. A speech dialect is a provider side for
such chats, found by the name that the data files state under `speech`. Sound is only ever streamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, cast

from apps.gateway.dialects import ProviderDialect
from apps.gateway.dialects.speech.provider.abilities import abilities_of


def find_speech_dialect(facts: Mapping[str, Any]) -> ProviderDialect | None:
    """Return the format in which an offer is asked to read aloud; None where none is stated."""
    abilities = abilities_of(facts)
    return None if abilities is None else _find(abilities.dialect)


@cache
def _find(name: str) -> ProviderDialect:
    return cast(ProviderDialect, import_module(f"{__name__}.provider.{name}"))
