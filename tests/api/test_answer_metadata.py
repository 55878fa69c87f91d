"""`metadata` of an answer, for clients that read structures and for those that read only strings (section 4.7)."""

from __future__ import annotations

import json

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from apps.gateway.endpoints.chat_completions import warns_of_structures
from tests.support.upstream import Caller, chunks_of

pytestmark = pytest.mark.django_db

PYTHON = {"User-Agent": "OpenAI/Python 3.52.0", "X-Stainless-Lang": "python", "X-Stainless-Package-Version": "3.52.0"}
NODE = {"User-Agent": "OpenAI/JS 6.4.0", "X-Stainless-Lang": "js", "X-Stainless-Package-Version": "6.4.0"}
ROUTING = [{"provider": "sandbox", "model": "echo", "status_code": 200, "error_type": "none", "succeeded": True}]


def test_openais_python_client_gets_strings_and_the_structure_beside_them(caller: Caller) -> None:
    body = caller.chat("hi", headers=PYTHON).json()
    metadata, structure = body["metadata"], body["gateway"]
    assert list(metadata) == list(structure)
    assert {type(value) for value in metadata.values()} == {str}
    assert (metadata["requested_model"], metadata["used_provider"]) == ("sandbox/echo", "sandbox")
    assert json.loads(metadata["routing"]) == structure["routing"] == ROUTING


def test_null_stays_null_where_metadata_has_strings_only(caller: Caller) -> None:
    metadata = caller.chat("hi", model="echo", headers=PYTHON).json()["metadata"]
    assert metadata["requested_provider"] is None


@pytest.mark.parametrize("headers", [NODE, {}, {"User-Agent": "curl/8"}], ids=["node", "none", "curl"])
def test_other_clients_get_structures_where_section_4_7_has_them(caller: Caller, headers: dict[str, str]) -> None:
    body = caller.chat("hi", headers=headers).json()
    assert body["metadata"]["routing"] == ROUTING
    assert "gateway" not in body


def test_the_clients_types_take_a_whole_answer_and_every_chunk_without_a_warning(caller: Caller) -> None:
    fields = {"top_k": 3, "metadata": {"a": "b"}}
    ChatCompletion.model_validate(caller.chat("hi", headers=PYTHON, **fields).json()).model_dump()
    chunks = chunks_of(caller.chat("hi", headers=PYTHON, stream=True, **fields))
    for chunk in chunks[:-1]:
        ChatCompletionChunk.model_validate(chunk).model_dump()
    assert chunks[-2]["metadata"]["routing"] == ROUTING


@pytest.mark.parametrize(
    ("language", "version", "warns"),
    [
        ("python", "3.3.0", True),
        ("Python", "3.52.0", True),
        ("python", "4.0.0b1", True),
        ("python", "3.2.9", False),
        ("python", "1.109.1", False),
        ("python", None, True),
        ("python", "9" * 5000, True),
        ("js", "6.4.0", False),
        ("java", "4.0.0", False),
        (None, "3.52.0", False),
    ],
)
def test_a_client_warns_by_its_language_and_version(language: str | None, version: str | None, warns: bool) -> None:
    assert warns_of_structures(language, version) is warns
