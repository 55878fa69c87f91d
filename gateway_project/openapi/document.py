"""The OpenAPI document: generated from the views, completed by hand-written parts and common defaults."""

# drf-spectacular has no types.
# mypy: allow-untyped-calls

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml
from django.conf import settings
from drf_spectacular.generators import SchemaGenerator
from gevent.lock import BoundedSemaphore

from apps.kernel.concurrency.turn_queue import let_others_go_on
from apps.kernel.errors import is_final
from apps.kernel.rest.describe import REFUSES
from apps.kernel.rest.envelopes import Family
from apps.kernel.rest.routes import family_of
from gateway_project.openapi import extensions
from gateway_project.openapi.log_entry import log_schemas
from gateway_project.openapi.system_rule_schemas import add_system_rules
from gateway_project.openapi.tags import tag_of, tags

PARTS = Path(__file__).parent / "parts"
# Bodies to begin with, by operation.
EXAMPLES = Path(__file__).parent / "examples.yaml"
METHODS = ("get", "put", "post", "patch", "delete")
Record = dict[str, Any]
_SHAPE = re.compile(r"Shape(?=\"|Request\")")
# A POST that needs no words carries an object all the same.
_OBJECT = {"type": "object"}
# The refusals that every family can give, whatever is asked; the bodies are each family's own.
_ALWAYS = (500, 503)
_WITH_BODY = (400, 413, 415)
_WORDS = {
    400: "A field is missing, malformed or out of range",
    401: "The API key or session token is missing or invalid",
    402: "The credits or a usage limit do not cover the request",
    403: "The caller lacks the permission",
    404: "Not found, or not visible to the caller",
    405: "The method is not served here",
    406: "The client accepts no kind of answer that there is",
    408: "The request body did not arrive in time",
    409: "It already exists, or a request with this Idempotency-Key is in progress",
    410: "It was archived, deactivated or deleted",
    413: "The request body is too large",
    415: "The content type is not supported",
    422: "This Idempotency-Key was used for a different request",
    429: "Too many requests",
    499: "The client closed the connection",
    500: "An internal error of the gateway",
    502: "No provider could answer",
    503: "The gateway or a provider is overloaded, or a store is unavailable",
    504: "The provider did not answer in time",
}
# Where content is generated, and the other paths of the same operation by the names that it has there.
_GENERATES, _OTHER_PATHS = "/v1beta/models/{name}", "otherPaths"
_ANTHROPIC_VERSION = "anthropic-version"
# libyaml's reader takes a tenth of the time.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Not a thread's lock: who waits for it are greenlets of one thread.
_making = BoundedSemaphore()


def document() -> Record:
    """Return the document. It is made once a process: paths and shapes do not change while it runs.

    That takes some tenths of a second, a few milliseconds at a time.
    """
    with _making:
        return _document()


@cache
def _document() -> Record:
    assert extensions  # noqa: S101 - used, so that its import, which registers it, stays
    made = _named(SchemaGenerator(api_version=settings.VERSION).get_schema(public=True))
    whole = _by_hand()
    for path, operations in made["paths"].items():
        whole["paths"][_camel(path)] = operations
    by_hand = whole["components"]["schemas"]
    add_system_rules(by_hand)
    whole["components"]["schemas"] = {**log_schemas(), **made["components"]["schemas"], **by_hand}
    for path, operations in whole["paths"].items():
        for method in METHODS:
            if method in operations:
                _complete(operations[method], path, method)
    for path, name in whole.pop(_OTHER_PATHS).items():
        whole["paths"][path] = {"post": _at_another_path(whole["paths"][_GENERATES]["post"], path, name)}
    whole["paths"] = dict(sorted(whole["paths"].items()))
    whole["tags"] = tags()
    _illustrate(whole["paths"])
    whole["info"]["version"] = settings.VERSION
    return whole


def _illustrate(paths: Record) -> None:
    """Give each operation its tag, and its JSON body an example."""
    examples: Record = _read(EXAMPLES)
    for path, operations in paths.items():
        for method in METHODS:
            operation = operations.get(method)
            if operation is None:
                continue
            operation["tags"] = [tag_of(path)]
            body = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if body is not None and operation["operationId"] in examples:
                # Operations share what is the same for them.
                content = {**operation["requestBody"]["content"]}
                content["application/json"] = {**body, "example": examples[operation["operationId"]]}
                operation["requestBody"] = {**operation["requestBody"], "content": content}


def _named(made: Record) -> Record:
    """Return the document of the views under the names that clients see: a shape is called by what it is the shape of.

    A hand-kept schema of the same name replaces a made one.
    """
    text = msgspec.json.encode(made).decode()
    named: Record = _without_marks(msgspec.json.decode(_SHAPE.sub("", text)))
    return named


def _without_marks(value: Any) -> Any:
    """Return it without drf-spectacular's notes to itself."""
    if isinstance(value, dict):
        return {name: _without_marks(inner) for name, inner in value.items() if name != "x-spec-enum-id"}
    return [_without_marks(inner) for inner in value] if isinstance(value, list) else value


def _by_hand() -> Record:
    """Return the hand-kept parts as one: the head, and paths and schemas from every file."""
    whole: Record = _read(PARTS / "head.yaml")
    for file in sorted(PARTS.glob("*.yaml")):
        if file.name != "head.yaml":
            part = _read(file)
            whole["paths"] |= part.get("paths", {})
            whole["components"]["schemas"] |= part.get("schemas", {})
            whole.setdefault(_OTHER_PATHS, {}).update(part.get(_OTHER_PATHS, {}))
    return whole


def _read(file: Path) -> Record:
    let_others_go_on()
    loader = _Loader(file.read_text())
    try:
        found: Record = loader.get_single_data()
        return found
    finally:
        loader.dispose()


def _at_another_path(operation: Record, path: str, name: str) -> Record:
    """Return the operation that has a path of Google's for each version and place, as another of these has it."""
    others = [parameter for parameter in operation["parameters"] if parameter.get("in") != "path"]
    stated = [
        {"name": parameter, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for parameter in re.findall(r"{(\w+)}", path)
    ]
    summary = f"The same as `{_GENERATES}`, where other clients of Google's look for it"
    return {**operation, "operationId": name, "summary": summary, "parameters": [*stated, *others]}


def _complete(operation: Record, path: str, method: str) -> None:
    """Say what goes without saying: the summary, names of the path, the Idempotency-Key, refusals and headers."""
    _split_description(operation)
    parameters = operation.setdefault("parameters", [])
    for parameter in parameters:
        if parameter.get("in") == "path":
            parameter["name"] = _camel(parameter["name"])
    family, security = family_of(path), operation.setdefault("security", [])
    if {"apiKeyOrSession": []} in security:
        operation["security"] = [{"apiKey": []}, {"xApiKey": []}, {"session": []}]
    refusals = {*operation.pop(REFUSES, ()), *_ALWAYS}
    if method == "post":
        operation.setdefault("requestBody", {"required": True, "content": {"application/json": {"schema": _OBJECT}}})
    is_body = "requestBody" in operation
    if is_body or any(parameter.get("in") == "query" for parameter in parameters):
        refusals |= {400}
    if is_body:
        refusals |= set(_WITH_BODY)
    if security and {} not in security:
        refusals |= {401}
    if method == "post" and security == [{"session": []}]:
        parameters.append({"$ref": "#/components/parameters/IdempotencyKey"})
        refusals |= {400, 409, 422}
    families = _families_of(family, parameters)
    for status in sorted(refusals):
        operation["responses"].setdefault(str(status), _refusal(status, *families))
    for response in operation["responses"].values():
        # A generated response has none; OpenAPI demands one.
        response["description"] = response.get("description") or "Success"
        response.setdefault("headers", {})["x-request-id"] = {"$ref": "#/components/headers/RequestId"}


def _split_description(operation: Record) -> None:
    """Make the first line of a description the summary."""
    text = operation.pop("description", "").strip()
    operation.setdefault("summary", text.partition("\n")[0].rstrip("."))
    rest = text.partition("\n")[2].strip()
    if rest:
        operation["description"] = rest


def _families_of(family: Family, parameters: list[Record]) -> list[Family]:
    """Return in whose shapes an operation errs: who sends Anthropic's version reads Anthropic's."""
    is_read_by_both = any(parameter.get("name") == _ANTHROPIC_VERSION for parameter in parameters)
    return [family, Family.ANTHROPIC] if family is Family.OPENAI and is_read_by_both else [family]


def _refusal(status: int, *families: Family) -> Record:
    bodies = ["InvalidFields" if status == 400 and one is Family.MANAGEMENT else one.schema for one in families]
    schemas: list[Record] = [{"$ref": f"#/components/schemas/{body}"} for body in bodies]
    schema = schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
    refusal: Record = {"description": _WORDS[status], "content": {"application/json": {"schema": schema}}}
    if status == 429:
        refusal["headers"] = {"Retry-After": {"$ref": "#/components/headers/RetryAfter"}}
    if is_final(status):
        refusal["headers"] = {"x-should-retry": {"$ref": "#/components/headers/ShouldRetry"}}
    return refusal


def _camel(text: str) -> str:
    """Return a path, or a name in it, with its names in camel case."""
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), text)
