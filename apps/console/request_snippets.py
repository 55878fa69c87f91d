"""Code that repeats a logged request: its body in the client's format, in curl, Python and TypeScript."""

from __future__ import annotations

import json
from typing import Any, Final

from apps.console.snippets import Snippet, curl, javascript, python
from apps.logs.query import LogRow, read_json

# Characters of a body that is offered as code; longer ones, such as those with images, are in the export.
MAX_BODY: Final = 100_000
# By route: the path, and the names of the messages and of the largest number of tokens.
_ROUTES: Final = {
    "chat_completions": ("/v1/chat/completions", "messages", "max_tokens"),
    "messages": ("/v1/messages", "messages", "max_tokens"),
    "responses": ("/v1/responses", "input", "max_output_tokens"),
}
_PARAMETERS: Final = ("temperature", "top_p", "frequency_penalty", "presence_penalty")
# Anthropic's format requires a limit.
_DEFAULT_LIMIT: Final = 1024


def request_snippets(row: LogRow, base_url: str) -> list[Snippet]:
    """Return the request of a row as code; none where the row lacks the request or its format is another."""
    if row["route"] not in _ROUTES or row["messages"] is None:
        return []
    path, body = _ROUTES[row["route"]][0], _body_of(row)
    if len(json.dumps(body)) > MAX_BODY:
        return []
    url = base_url + path
    return [
        Snippet("curl", curl(url, body)),
        Snippet("Python", python(url, body)),
        Snippet("TypeScript", javascript(url, body)),
    ]


def _body_of(row: LogRow) -> dict[str, Any]:
    route = row["route"]
    _, messages_name, limit_name = _ROUTES[route]
    stored = {name: read_json(row[name]) for name in ("messages", "tools", "tool_choice", "response_format")}
    messages, form = stored["messages"], stored["response_format"]
    body: dict[str, Any] = {"model": row["requested_model"]}
    if route == "messages" and messages and messages[0].get("role") == "system":
        # The log has the system prompt as the first message; this format has it beside them.
        body["system"], messages = messages[0]["content"], messages[1:]
    body[messages_name] = messages
    limit = row["max_tokens"] or (_DEFAULT_LIMIT if route == "messages" else None)
    body |= {limit_name: limit} if limit is not None else {}
    body |= {name: row[name] for name in _PARAMETERS if row[name] is not None}
    body |= {name: stored[name] for name in ("tools", "tool_choice") if stored[name] is not None}
    if form is not None:
        fields = {"messages": {"output_config": {"format": form}}, "responses": {"text": {"format": form}}}
        body |= fields.get(route, {"response_format": form})
    return body
