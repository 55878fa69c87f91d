"""The OpenAPI document: generated from the views, completed by hand-written parts and common defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml
from django.conf import settings
from django.db import models
from drf_spectacular.generators import SchemaGenerator

from apps.guardrails.rule_thread import loaded_rules
from apps.kernel.concurrency.native_thread_pool import ComputedOnce
from apps.kernel.errors import is_final
from apps.kernel.rest.endpoint import REFUSES
from apps.kernel.rest.envelopes import Family, camel
from apps.kernel.rest.routes import family_of
from apps.logs.models import RequestLog
from apps.logs.query import COLUMNS, JSON_COLUMNS
from apps.logs.serializers import COUNTS
from gateway_project.openapi import extensions


def add_system_rules(schemas: Record) -> None:
    """Name every system rule in the hand-kept schemas of the guardrail configuration and of its changes."""
    names = list(loaded_rules())
    schemas["SystemRuleStates"]["required"] = names
    change = {"$ref": "#/components/schemas/SystemRuleChanges"}
    schemas["GuardrailChangesRequest"]["properties"]["systemRules"]["properties"] = dict.fromkeys(names, change)


def log_schemas() -> Record:
    """Return the schemas of a log entry and of what holds some."""
    entry = {"$ref": "#/components/schemas/LogEntry"}
    texts = {"type": "array", "items": {"type": "string"}}
    return {
        "LogEntry": _object({camel(name): _schema_of(name) for name in COLUMNS}),
        "LogPage": _object(
            {"logs": {"type": "array", "items": entry}, "pagination": {"$ref": "#/components/schemas/Pagination"}}
        ),
        "OneLog": _object({"log": entry}),
        "UsedModels": _object({"models": texts, "providers": texts}),
    }


def _object(properties: Record) -> Record:
    return {"type": "object", "required": list(properties), "properties": properties}


def _schema_of(column: str) -> Record:
    field: models.Field[Any, Any] = RequestLog._meta.get_field(column)  # type: ignore[assignment]  # no relation
    if column in JSON_COLUMNS:
        return {"description": str(field.help_text) or "The value as JSON, as it was sent or received"}
    schema: Record = {"type": [_type_of(column, field), "null"] if field.null else _type_of(column, field)}
    if isinstance(field, models.UUIDField):
        schema["format"] = "uuid"
    elif isinstance(field, models.DateTimeField):
        schema["format"] = "date-time"
    if field.help_text:
        schema["description"] = str(field.help_text)
    return schema


def _type_of(column: str, field: models.Field[Any, Any]) -> str:
    match field:
        case _ if column in COUNTS:
            return "string"
        case models.BooleanField():
            return "boolean"
        case models.DecimalField() | models.FloatField():
            return "number"
        case models.IntegerField():
            return "integer"
    return "string"


# A tag, its description, and prefixes of its operations' paths; the first match decides.
_TAGS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    (
        "Chat",
        "Chats in OpenAI's and Cohere's formats, and routing previews",
        ("/v1/chat/", "/v1/completions", "/v1/route/", "/v2/chat"),
    ),
    ("Messages", "Chats in Anthropic's format", ("/v1/messages/count_tokens", "/v1/messages!")),
    ("Responses", "Chats that may keep state, in OpenAI's Responses format", ("/v1/responses", "/v1/conversations")),
    ("Images", "Image generation and editing", ("/v1/images/",)),
    ("Audio", "Speech synthesis and transcription", ("/v1/audio/",)),
    ("Embeddings", "Texts as vectors", ("/v1/embeddings", "/v2/embed")),
    ("Reranking and moderation", "Rank documents, moderate content", ("/v1/rerank", "/v2/rerank", "/v1/moderations")),
    ("Models", "Available models and their prices", ("/v1/models!", "/v1/models/{modelId}", "/v1/model/info")),
    ("Batches", "Thousands of requests at a low priority", ("/v1/files", "/v1/batches", "/v1/messages/batches")),
    ("This key", "Limits and spending of the API key that is used", ("/v1/key!", "/v1/credits", "/v1/generation")),
    ("Gemini", "Chats, embeddings and models in Google's format", ("/v1beta", "/v1/models/{name}", "/v1/p")),
    ("Bedrock", "Chats in the format of Bedrock's Converse", ("/model/{",)),
    ("Ollama", "Chats, embeddings and models in Ollama's format", ("/api/",)),
    ("MCP servers", "Tool servers that an organization registers", ("/mcp-servers",)),
    ("MCP", "The gateway as a server of the Model Context Protocol", ("/mcp",)),
    ("Limits", "Budgets and quotas of members, projects, keys, end users and models", ("/limits",)),
    ("Log sinks", "Receivers of an organization's log", ("/log-sinks",)),
    ("Alerts", "Alerts, their rules, and destinations beside e-mail", ("/alerts",)),
    ("Logs and activity", "Requests and their costs", ("/logs", "/activity")),
    ("API keys", "Keys, their limits and access rules", ("/keys/api", "/v1/keys")),
    ("Provider keys", "Credentials of your own at providers", ("/keys/provider",)),
    ("Projects", "Groups of API keys", ("/projects",)),
    ("Organizations", "Members, invitations, money, audit log", ("/organization", "/audit-logs")),
    ("Guardrails", "Rules that block, redact or flag content", ("/guardrails",)),
    ("Programs that sign in", "OAuth: metadata, registration, tokens", ("/oauth", "/.well-known", "/v1/auth")),
    ("Accounts", "Sign-up, sign-in and sign-in methods", ("/auth",)),
    ("Operation", "Health, metrics, this document", ("/",)),
)
# After a path that is meant whole.
_WHOLE: Final = "!"


def tags() -> list[dict[str, Any]]:
    """Return the tags in order, with their descriptions."""
    return [{"name": name, "description": words} for name, words, _ in _TAGS]


def tag_of(path: str) -> str:
    """Return the tag of a path's operations."""
    return next(name for name, _, starts in _TAGS if any(_fits(path, start) for start in starts))


def slug_of(name: str) -> str:
    """Return a tag as an address has it."""
    return name.lower().replace(" ", "-")


def _fits(path: str, start: str) -> bool:
    return path == start.removesuffix(_WHOLE) if start.endswith(_WHOLE) else path.startswith(start)


# drf-spectacular has no types.
# mypy: allow-untyped-calls


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
    424: "No provider could answer",
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


def document() -> Record:
    """Return the document. It is made once a process: paths and shapes do not change while it runs.

    That takes some tenths of a second, during which other requests go on.
    """
    # They have a thread of their own.
    loaded_rules()
    return _DOCUMENT.get()


def _make_document() -> Record:
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


_DOCUMENT: Final = ComputedOnce(_make_document)


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


_REFERENCE, _COMPONENTS = "$ref", "#/components/"
# Components that operations name directly, without a reference.
_SECURITY: Final = "securitySchemes"


def part_of(whole: Record, tag: str) -> Record:
    """Return a document's operations of a tag, and of its components those that they need."""
    paths: Record = {}
    for path, operations in whole["paths"].items():
        kept = {name: one for name, one in operations.items() if name not in METHODS or tag in one["tags"]}
        if any(name in METHODS for name in kept):
            paths[path] = kept
    return {
        **whole,
        "paths": paths,
        "tags": [one for one in whole["tags"] if one["name"] == tag],
        "components": _reached(whole["components"], paths),
    }


def _reached(components: Record, start: Any) -> Record:
    """Return the components that references lead to, and those that these lead to, in their order."""
    found: set[tuple[str, str]] = set()
    left = [start]
    while left:
        for reference in _references(left.pop()):
            kind, _, name = reference.removeprefix(_COMPONENTS).partition("/")
            if (kind, name) not in found:
                found.add((kind, name))
                left.append(components[kind][name])
    return {
        kind: members if kind == _SECURITY else {name: one for name, one in members.items() if (kind, name) in found}
        for kind, members in components.items()
    }


def _references(value: Any) -> Iterator[str]:
    left = [value]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            reference = node.get(_REFERENCE)
            if isinstance(reference, str) and reference.startswith(_COMPONENTS):
                yield reference
            left += node.values()
        elif isinstance(node, list):
            left += node
