"""Conversations whose second turn brings back what the first one had: tools, thinking, pictures, documents, citations;
by the format of the client. Words in capitals with a number are the ones that a test looks for.
"""

from __future__ import annotations

import base64
from typing import Any, Final

Record = dict[str, Any]


def _bytes(words: bytes) -> str:
    return base64.b64encode(words).decode()


PICTURE: Final = _bytes(b"\x89PNG\r\n\x1a\nof the user")
DRAWN: Final = _bytes(b"\x89PNG\r\n\x1a\nof the model")
PDF: Final = _bytes(b"%PDF-1.4 of the user")
SEAL: Final = _bytes(b"a seal of Google's")
PLACE: Final = {
    "type": "char_location",
    "cited_text": "CITED-1",
    "document_index": 0,
    "document_title": "Map",
    "start_char_index": 0,
    "end_char_index": 7,
}
_NO_PARAMETERS: Final = {"type": "object", "properties": {}}
_NAMES: Final = {"c1": "look", "c2": "find"}


# --- OpenAI's chat format

_ASKED, _MORE = {"role": "user", "content": "ASKED-1"}, {"role": "user", "content": "ASKED-2"}


def _said(text: str | None, *calls: str, **fields: Any) -> Record:
    made = [
        {"id": it, "type": "function", "function": {"name": _NAMES[it], "arguments": f'{{"q":"CALLED-{it}"}}'}}
        for it in calls
    ]
    return {"role": "assistant", "content": text, **({"tool_calls": made} if made else {}), **fields}


def _answered(call: str, content: Any = None) -> Record:
    return {"role": "tool", "tool_call_id": call, "content": content or f"FOUND-{call}"}


def _image_url(data: str) -> Record:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


_DETAIL: Final = {
    "type": "reasoning.text",
    "text": "THOUGHT-1",
    "signature": "SIGNED",
    "format": "anthropic-claude-v1",
    "index": 0,
}
_WEB: Final = {"url": "https://map.example", "title": "CITED-1", "start_index": 0, "end_index": 4}
_FILE: Final = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}
CHAT: Final[dict[str, list[Record]]] = {
    "words": [_ASKED, _said("SAID-1"), _MORE],
    "a call": [_ASKED, _said(None, "c1"), _answered("c1"), _MORE],
    "calls answered in another order": [_ASKED, _said("SAID-1", "c1", "c2"), _answered("c2"), _answered("c1"), _MORE],
    "thinking": [_ASKED, _said("SAID-1", "c1", reasoning="THOUGHT-1"), _answered("c1")],
    "signed thinking": [_ASKED, _said("SAID-1", "c1", reasoning_details=[_DETAIL]), _answered("c1")],
    "two rounds": [
        _ASKED,
        _said("SAID-1", "c1", reasoning="THOUGHT-1"),
        _answered("c1"),
        _said("SAID-2", "c2", reasoning="THOUGHT-2"),
        _answered("c2"),
        _said("SAID-3"),
        _MORE,
    ],
    "a picture": [
        {"role": "user", "content": [{"type": "text", "text": "ASKED-1"}, _image_url(PICTURE)]},
        _said("SAID-1"),
        _MORE,
    ],
    "a picture in a result": [
        _ASKED,
        _said(None, "c1"),
        _answered("c1", [{"type": "text", "text": "FOUND-c1"}, _image_url(PICTURE)]),
    ],
    "a picture that the model made": [_ASKED, _said("SAID-1", images=[_image_url(DRAWN)]), _MORE],
    "citations": [_ASKED, _said("SAID-1", annotations=[{"type": "url_citation", "url_citation": _WEB}]), _MORE],
    "a document": [
        {"role": "user", "content": [{"type": "text", "text": "ASKED-1"}, {"type": "file", "file": _FILE}]},
        _said("SAID-1"),
        _MORE,
    ],
}


# --- Anthropic's


def _user(*blocks: Record) -> Record:
    return {"role": "user", "content": list(blocks)}


def _model(*blocks: Record) -> Record:
    return {"role": "assistant", "content": list(blocks)}


def _text(text: str, **fields: Any) -> Record:
    return {"type": "text", "text": text, **fields}


def _use(call: str) -> Record:
    return {"type": "tool_use", "id": call, "name": _NAMES[call], "input": {"q": f"CALLED-{call}"}}


def _result(call: str, content: Any = None, **fields: Any) -> Record:
    return {"type": "tool_result", "tool_use_id": call, "content": content or f"FOUND-{call}", **fields}


_THINKING: Final = {"type": "thinking", "thinking": "THOUGHT-1", "signature": "SIGNED"}
_IMAGE: Final = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
_DOCUMENT: Final = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": PDF},
    "title": "Map",
    "citations": {"enabled": True},
}
_SEARCH: Final = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "map"}}
_PAGE: Final = {"type": "web_search_result", "url": "https://map.example", "title": "Map", "encrypted_content": "x"}
MESSAGES: Final[dict[str, list[Record]]] = {
    "words": [_user(_text("ASKED-1")), _model(_text("SAID-1")), _user(_text("ASKED-2"))],
    "a call": [_user(_text("ASKED-1")), _model(_use("c1")), _user(_result("c1"), _text("ASKED-2"))],
    "calls answered in another order": [
        _user(_text("ASKED-1")),
        _model(_text("SAID-1"), _use("c1"), _use("c2")),
        _user(_result("c2"), _result("c1")),
    ],
    "thinking": [_user(_text("ASKED-1")), _model(_THINKING, _text("SAID-1"), _use("c1")), _user(_result("c1"))],
    "two rounds": [
        _user(_text("ASKED-1")),
        _model(_THINKING, _use("c1")),
        _user(_result("c1")),
        _model({**_THINKING, "thinking": "THOUGHT-2"}, _text("SAID-2"), _use("c2")),
        _user(_result("c2")),
    ],
    "a picture": [_user(_text("ASKED-1"), _IMAGE), _model(_text("SAID-1")), _user(_text("ASKED-2"))],
    "a picture in a result": [
        _user(_text("ASKED-1")),
        _model(_use("c1")),
        _user(_result("c1", [_text("FOUND-c1"), _IMAGE])),
    ],
    "a document in a result": [
        _user(_text("ASKED-1")),
        _model(_use("c1")),
        _user(_result("c1", [_text("FOUND-c1"), _DOCUMENT])),
    ],
    "citations": [
        _user(_DOCUMENT, _text("ASKED-1")),
        _model(_text("SAID-1", citations=[PLACE])),
        _user(_text("ASKED-2")),
    ],
    "a failed call": [_user(_text("ASKED-1")), _model(_use("c1")), _user(_result("c1", is_error=True))],
    "a search of the provider's": [
        _user(_text("ASKED-1")),
        _model(_SEARCH, {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [_PAGE]}, _text("SAID-1")),
        _user(_text("ASKED-2")),
    ],
}


# --- Responses


def _item(text: str) -> Record:
    return {"role": "user", "content": text}


def _message(text: str, annotations: Any = ()) -> Record:
    content = [{"type": "output_text", "text": text, "annotations": list(annotations)}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content}


def _call(call: str) -> Record:
    return {"type": "function_call", "call_id": call, "name": _NAMES[call], "arguments": f'{{"q":"CALLED-{call}"}}'}


def _output(call: str, output: Any = None) -> Record:
    return {"type": "function_call_output", "call_id": call, "output": output or f"FOUND-{call}"}


def _reasoning(name: str, text: str) -> Record:
    summary = [{"type": "summary_text", "text": text}]
    return {"type": "reasoning", "id": name, "summary": summary, "encrypted_content": "SIGNED"}


_OPEN: Final = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "THOUGHT-1"}],
}
_INPUT_IMAGE: Final = {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}
_INPUT_FILE: Final = {"type": "input_file", **_FILE}
RESPONSES: Final[dict[str, list[Record]]] = {
    "words": [_item("ASKED-1"), _message("SAID-1"), _item("ASKED-2")],
    "a call": [_item("ASKED-1"), _call("c1"), _output("c1"), _item("ASKED-2")],
    "calls answered in another order": [
        _item("ASKED-1"),
        _message("SAID-1"),
        _call("c1"),
        _call("c2"),
        _output("c2"),
        _output("c1"),
    ],
    "sealed thinking": [_item("ASKED-1"), _reasoning("rs_1", "THOUGHT-1"), _message("SAID-1"), _item("ASKED-2")],
    "thinking in the open": [_item("ASKED-1"), _OPEN, _call("c1"), _output("c1")],
    "two rounds": [
        _item("ASKED-1"),
        _reasoning("rs_1", "THOUGHT-1"),
        _call("c1"),
        _output("c1"),
        _reasoning("rs_2", "THOUGHT-2"),
        _message("SAID-2"),
        _call("c2"),
        _output("c2"),
    ],
    "a picture": [
        {"role": "user", "content": [{"type": "input_text", "text": "ASKED-1"}, _INPUT_IMAGE]},
        _message("SAID-1"),
        _item("ASKED-2"),
    ],
    "a picture in a result": [
        _item("ASKED-1"),
        _call("c1"),
        _output("c1", [{"type": "input_text", "text": "FOUND-c1"}, _INPUT_IMAGE]),
    ],
    "a document": [
        {"role": "user", "content": [{"type": "input_text", "text": "ASKED-1"}, _INPUT_FILE]},
        _message("SAID-1"),
        _item("ASKED-2"),
    ],
    "citations": [_item("ASKED-1"), _message("SAID-1", [{"type": "url_citation", **_WEB}]), _item("ASKED-2")],
    "a search of the provider's": [
        _item("ASKED-1"),
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "map"}},
        _message("SAID-1"),
        _item("ASKED-2"),
    ],
    "a picture that the model made": [
        _item("ASKED-1"),
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": DRAWN},
        _item("ASKED-2"),
    ],
}


# --- Gemini


def _of_user(*parts: Record) -> Record:
    return {"role": "user", "parts": list(parts)}


def _of_model(*parts: Record) -> Record:
    return {"role": "model", "parts": list(parts)}


def _function_call(call: str, **fields: Any) -> Record:
    return {"functionCall": {"id": call, "name": _NAMES[call], "args": {"q": f"CALLED-{call}"}}, **fields}


def _function_response(call: str, **fields: Any) -> Record:
    response = {"r": f"FOUND-{call}"}
    return {"functionResponse": {"id": call, "name": _NAMES[call], "response": response, **fields}}


def _inline(kind: str, data: str) -> Record:
    return {"inlineData": {"mimeType": kind, "data": data}}


def _nameless(call: str) -> tuple[Record, Record]:
    made = {"functionCall": {"name": "look", "args": {"q": f"CALLED-{call}"}}}
    return made, {"functionResponse": {"name": "look", "response": {"r": f"FOUND-{call}"}}}


_WORDS, _MORE_WORDS = {"text": "ASKED-1"}, {"text": "ASKED-2"}
_FIRST, _SECOND = _nameless("1"), _nameless("2")
GEMINI: Final[dict[str, list[Record]]] = {
    "words": [_of_user(_WORDS), _of_model({"text": "SAID-1"}), _of_user(_MORE_WORDS)],
    "a call": [
        _of_user(_WORDS),
        _of_model(_function_call("c1")),
        _of_user(_function_response("c1")),
        _of_model({"text": "SAID-1"}),
        _of_user(_MORE_WORDS),
    ],
    "calls answered in another order": [
        _of_user(_WORDS),
        _of_model({"text": "SAID-1"}, _function_call("c1"), _function_call("c2")),
        _of_user(_function_response("c2"), _function_response("c1")),
    ],
    "calls without ids": [_of_user(_WORDS), _of_model(_FIRST[0], _SECOND[0]), _of_user(_FIRST[1], _SECOND[1])],
    "sealed thinking": [
        _of_user(_WORDS),
        _of_model({"text": "THOUGHT-1", "thought": True}, _function_call("c1", thoughtSignature=SEAL)),
        _of_user(_function_response("c1")),
    ],
    "a seal on words": [
        _of_user(_WORDS),
        _of_model({"text": "SAID-1", "thoughtSignature": SEAL}),
        _of_user(_MORE_WORDS),
    ],
    "a picture": [
        _of_user(_WORDS, _inline("image/png", PICTURE)),
        _of_model({"text": "SAID-1"}),
        _of_user(_MORE_WORDS),
    ],
    "a picture in a result": [
        _of_user(_WORDS),
        _of_model(_function_call("c1")),
        _of_user(_function_response("c1", parts=[_inline("image/png", PICTURE)])),
    ],
    "a picture that the model made": [
        _of_user(_WORDS),
        _of_model({"text": "SAID-1"}, _inline("image/png", DRAWN)),
        _of_user(_MORE_WORDS),
    ],
    "a document": [
        _of_user(_WORDS, _inline("application/pdf", PDF)),
        _of_model({"text": "SAID-1"}),
        _of_user(_MORE_WORDS),
    ],
    "code that the provider ran": [
        _of_user(_WORDS),
        _of_model(
            {"executableCode": {"language": "PYTHON", "code": "CALLED-1"}},
            {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "FOUND-1"}},
            {"text": "SAID-1"},
        ),
        _of_user(_MORE_WORDS),
    ],
}


BODIES: Final[dict[str, tuple[dict[str, list[Record]], str, Record]]] = {
    "chat": (
        CHAT,
        "messages",
        {
            "model": "m",
            "tools": [
                {"type": "function", "function": {"name": name, "parameters": _NO_PARAMETERS}}
                for name in _NAMES.values()
            ],
        },
    ),
    "messages": (
        MESSAGES,
        "messages",
        {
            "model": "m",
            "max_tokens": 99,
            "tools": [{"name": name, "input_schema": _NO_PARAMETERS} for name in _NAMES.values()],
        },
    ),
    "responses": (
        RESPONSES,
        "input",
        {
            "model": "m",
            "tools": [{"type": "function", "name": name, "parameters": _NO_PARAMETERS} for name in _NAMES.values()],
        },
    ),
    "gemini": (
        GEMINI,
        "contents",
        {"tools": [{"functionDeclarations": [{"name": name} for name in _NAMES.values()]}]},
    ),
}
