"""Requests of Google's SDK: its own types, and the bodies that it makes of them."""

from __future__ import annotations

from typing import Any, TypedDict

from google.genai import Client, models, types
from google.genai._common import convert_to_dict, encode_unserializable_types

from tests.gateway.dialects.sdk_fields.requests import LEAST

MEDIA = {"file_data": {"file_uri": "https://example.com/a.png", "mime_type": "image/png"}}
_KINDS = frozenset(
    {
        *("text", "inline_data", "file_data", "function_call", "function_response"),
        *("executable_code", "code_execution_result", "tool_call", "tool_response"),
    }
)
_OF_MEDIA = frozenset(
    {
        *("video_metadata", "media_resolution", "media_processing", "audio_transcription"),
        *("speech_metadata", "document_metadata", "spreadsheet_metadata", "audio_metadata"),
    }
)
_FUNCTION = {"tools": [{"function_declarations": [{"name": "f"}]}]}
_JSON = {"response_mime_type": "application/json"}
# Values that a field needs beside it to mean anything.
_BESIDE: dict[str, dict[str, Any]] = {
    "tool_config": _FUNCTION,
    "response_schema": _JSON,
    "response_json_schema": _JSON,
    "logprobs": {"response_logprobs": True},
}
_FIELDS = {"type": "OBJECT", "properties": {"y": {"type": "STRING"}, "x": {"type": "STRING"}}}
_SCHEMAS: dict[str, Any] = {
    "items": {"type": "ARRAY"},
    # It names the second of two fields.
    "property_ordering": _FIELDS,
    "required": _FIELDS,
}
# The least that each type can be sent with: the SDK's types require nothing.
LEAST |= {
    types.PartDict: lambda field: {} if field in _KINDS else MEDIA if field in _OF_MEDIA else {"text": "?"},
    types.BlobDict: lambda field: {"mime_type": "image/png", "data": b"\0\0\0"},
    types.FileDataDict: lambda field: MEDIA["file_data"],
    types.FunctionResponseBlobDict: lambda field: {"mime_type": "image/png", "data": b"\0\0\0"},
    types.FunctionResponseFileDataDict: lambda field: MEDIA["file_data"],
    types.FunctionCallDict: lambda field: {"name": "f"},
    types.FunctionResponseDict: lambda field: {"name": "f"},
    types.FunctionDeclarationDict: lambda field: {"name": "f"},
    types.GenerateContentConfigDict: lambda field: _BESIDE.get(field, {}),
    types.FunctionCallingConfigDict: lambda field: {"mode": "ANY"} if field == "allowed_function_names" else {},
    types.SchemaDict: lambda field: _SCHEMAS.get(field, {"type": "OBJECT"}),
}
# Parts that only a model's turn holds.
_MODELS = frozenset(
    {"thought", "thoughtSignature", "executableCode", "codeExecutionResult", "toolCall", "toolResponse"}
)
_ASKED = {"role": "user", "parts": [{"text": "?"}]}
CLIENT = Client(api_key="k")


class GoogleRequest(TypedDict, total=False):
    """The arguments of `generate_content` beside the model."""

    contents: list[types.ContentDict]
    config: types.GenerateContentConfigDict


def body_of(request: Any) -> Any | None:
    """Return the body that the SDK sends, by AI Studio's words or else by Vertex AI's; None where it sends none."""
    try:
        given = types._GenerateContentParameters(**{"model": "m", "contents": "?", **request})
    except ValueError:
        return None
    for convert in (models._GenerateContentParameters_to_mldev, models._GenerateContentParameters_to_vertex):
        try:
            converted = convert(CLIENT._api_client, given, None, given)
        except ValueError:
            continue
        wire: Any = encode_unserializable_types(convert_to_dict(converted))
        sent = {name: value for name, value in wire.items() if not name.startswith("_") and name != "config"}
        return {**sent, "contents": [turn for content in sent["contents"] for turn in _turns(content)]}
    return None


def _turns(content: Any) -> list[Any]:
    """Return a content as a sound conversation has it: calls are answered, and what a model says follows a question."""
    for part in content.get("parts", ()):
        if call := part.get("functionCall"):
            answer = {name: call[name] for name in ("id", "name") if name in call} | {"response": {"output": "x"}}
            return [
                _ASKED,
                {**content, "role": "model"},
                {"role": "user", "parts": [{"functionResponse": answer}]},
            ]
        if answer := part.get("functionResponse"):
            call = {name: answer[name] for name in ("id", "name") if name in answer}
            return [_ASKED, {"role": "model", "parts": [{"functionCall": call}]}, content]
        if part.keys() & _MODELS:
            return [_ASKED, {**content, "role": "model"}, _ASKED]
    return [content]
