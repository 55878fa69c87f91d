"""Dialects declare their facts: the product has every dialect that a data file names, the documents say the same."""

from __future__ import annotations

from pkgutil import iter_modules
from typing import Any, get_type_hints

import msgspec
import pytest
from msgspec import UNSET, Meta

from apps.catalog.facts import SharedFacts
from apps.catalog.files import read_files
from apps.gateway.dialects import chat, declared_facts, find_dialect
from apps.gateway.dialects.declared_facts import OF_AUDIO, find_facts, find_image_facts
from apps.gateway.dialects.media.images import IN_CHAT, ImageCapabilities, find_image_format
from apps.gateway.dialects.media.speech import SpeechCapabilities
from apps.gateway.dialects.media.speech.provider import find_speech_dialect
from apps.gateway.dialects.media.transcription import TranscriptionCapabilities
from apps.gateway.dialects.media.transcription.provider import find_transcription_dialect
from apps.gateway.management.commands.document_facts import DOCUMENTS, table_of, with_tables
from gateway_project.configuration.data_directory import PROJECT

PROVIDERS = read_files().providers
SPOKEN = [name for _, name, _ in iter_modules(chat.__path__) if find_dialect(name) is not None]


def named_dialects() -> set[str]:
    """Return every wire format that a data file names."""
    named = {file.dialect for file in PROVIDERS}
    for entry in (entry for file in PROVIDERS for entry in (file, *file.models)):
        named |= {name for name in (entry.dialect, entry.facts.count_dialect) if name is not UNSET}
    return named


def test_every_dialect_that_a_data_file_names_is_spoken() -> None:
    for name in named_dialects() - OF_AUDIO:
        dialect = find_dialect(name) or find_image_format(name)
        assert dialect is not None, name
        assert dialect.name == name
    assert named_dialects() >= OF_AUDIO


def test_every_image_dialect_that_a_data_file_names_is_spoken() -> None:
    entries = [entry for file in PROVIDERS for entry in (file, *file.models)]
    named = {entry.facts.images["dialect"] for entry in entries if entry.facts.images is not UNSET}
    assert named - {IN_CHAT} != set()
    assert all(find_image_format(name) is not None for name in named - {IN_CHAT})


@pytest.mark.parametrize("name", ["", "fields", "images", "undo_rewrites", "open-ai", "../openai", "x.y", "shared"])
def test_what_is_no_dialect_declares_nothing(name: str) -> None:
    assert find_facts(name) is None
    assert find_image_facts(name) is None


def test_every_audio_dialect_that_a_data_file_names_is_spoken() -> None:
    for facts in (mapping.facts for file in PROVIDERS for mapping in file.models):
        stated = {name: getattr(facts, name) for name in ("speech", "transcription")}
        given = {name: dict(value) for name, value in stated.items() if value is not UNSET}
        if "speech" in given:
            assert find_speech_dialect(given, "wav") is not None
        if "transcription" in given:
            assert find_transcription_dialect(given, streamed=True) is not None
    assert all(find_dialect(name) is None for name in OF_AUDIO)


@pytest.mark.parametrize(
    "declared",
    [SharedFacts, ImageCapabilities, SpeechCapabilities, TranscriptionCapabilities, *map(find_facts, SPOKEN)],
)
def test_every_fact_is_described(declared: Any) -> None:
    for name, kind in get_type_hints(declared, include_extras=True).items():
        [meta] = [part for part in getattr(kind, "__metadata__", ()) if isinstance(part, Meta)]
        assert meta.description, (declared, name)


@pytest.mark.parametrize("name", SPOKEN)
def test_a_declared_fact_is_read_by_the_capabilities_of_its_dialect(name: str) -> None:
    declared = find_facts(name)
    assert declared is not None
    assert msgspec.convert({}, declared) == declared()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_tables_of_the_documents_are_what_is_declared(name: str) -> None:
    """Mended by `manage.py document_facts`."""
    text = (PROJECT / name).read_text("utf-8")
    assert with_tables(text) == text
    assert "<!-- facts: " in text


def test_every_declared_fact_stands_in_a_table() -> None:
    text = "".join((PROJECT / name).read_text("utf-8") for name in DOCUMENTS)
    declared = {find_facts(name) for name in SPOKEN} - {declared_facts.NoFacts}
    assert all(f"| `{field}` |" in text for facts in declared if facts for field in facts.__struct_fields__)


def test_a_table_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no dialect declares facts under the name 'nonsense'"):
        table_of("nonsense")
