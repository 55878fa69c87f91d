"""Examples of the document: each JSON body has one, it is valid, and those to models are answered as they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from jsonschema import Draft202012Validator

from gateway_project.openapi.document import METHODS, document, tags
from tests.support.upstream import Caller

WHOLE = document()
BODIES = {
    (path, operations[method]["operationId"], method): content["application/json"]
    for path, operations in WHOLE["paths"].items()
    for method in METHODS
    if method in operations
    and "application/json" in (content := operations[method].get("requestBody", {}).get("content", {}))
}
# They are about things that a stranger does not have: a file, a stored conversation, a batch, a code of one's own.
OF_THINGS = {"createBatch", "cancelBatch", "cancelMessageBatch", "cancelResponse", "updateConversation"}
OF_THINGS |= {"createConversation", "createConversationItems", "createMessageBatch", "exchangeKeyCode"}
OF_THINGS |= {"createUpload", "completeUpload", "cancelUpload"}
# They need a management key.
OF_THINGS |= {"postManagedKeys", "patchOneManagedKey"}
TO_MODELS = [key for key in BODIES if key[0].startswith("/v") and key[1] not in OF_THINGS]
# Values for the name in a path of Google's.
NAMED = {
    "embedContent": "embedder:embedContent",
    "batchEmbedContents": "embedder:batchEmbedContents",
    "countTokens": "free:countTokens",
    "streamGenerateContent": "free:streamGenerateContent",
}


def test_every_json_body_has_an_example_that_its_schema_takes() -> None:
    for (path, name, _), body in BODIES.items():
        assert "example" in body, (path, name)
        if "mbedContent" in name:
            # They share the schema of generation at that path; the test below sends them.
            continue
        whole = {**body["schema"], "components": WHOLE["components"]}
        problems = [error.message for error in Draft202012Validator(whole).iter_errors(body["example"])]
        assert problems == [], name


@pytest.mark.parametrize(("path", "name", "method"), TO_MODELS, ids=[name for _, name, _ in TO_MODELS])
def test_an_example_to_a_model_is_answered_as_it_is(caller: Caller, path: str, name: str, method: str) -> None:
    asked = next((value for key, value in NAMED.items() if name.startswith(key)), "free:generateContent")
    model, _, verb = asked.partition(":")
    where = path.replace("{name}", model if ":" in path else asked)
    for parameter, value in {"project": "p", "location": "l", "publisher": "google"}.items():
        where = where.replace(f"{{{parameter}}}", value)
    assert verb
    answer: Any = Client().generic(
        method.upper(),
        where,
        json.dumps(BODIES[path, name, method]["example"]),
        content_type="application/json",
        headers={"authorization": f"Bearer {caller.token}"},
    )
    said = b"".join(answer.streaming_content) if answer.streaming else answer.content
    assert answer.status_code == 200, (where, said[:500])


def test_tags_are_in_the_order_in_which_people_look() -> None:
    names = [tag["name"] for tag in WHOLE["tags"]]
    assert names[:4] == ["Chat", "Messages", "Responses", "Images"]
    used = {operation["tags"][0] for path in WHOLE["paths"].values() for operation in path.values()}
    assert used == set(names)
    assert all(tag["description"] for tag in tags())
    tagged = {path: next(iter(operations.values()))["tags"][0] for path, operations in WHOLE["paths"].items()}
    assert (tagged["/v1/messages"], tagged["/v1/messages/batches"]) == ("Messages", "Batches")
    assert (tagged["/v1/models"], tagged["/v1/models/{name}:generateContent"]) == ("Models", "Gemini")


def test_nothing_is_said_in_the_words_of_the_code() -> None:
    for operations in WHOLE["paths"].values():
        for operation in operations.values():
            said = f"{operation['summary']} {operation.get('description', '')}"
            assert "Raises" not in said
            assert not said.startswith("Answer "), said
