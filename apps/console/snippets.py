"""Code snippets: a request in curl, Python and JavaScript, made up or of the log; and a key's first requests.

Snippets read the key from the environment. First requests, in several programs, are ready to copy with the new key in
it; docs/clients/agents.md has more programs. Only the page that shows a new key passes a real key.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from django.utils.translation import gettext

from apps.catalog import catalog_cache
from apps.logs.query import LogRow, read_json

# Path and body by the model's mode, without the model.
_BODIES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello!"}]}),
    "image_generation": ("/v1/images/generations", {"prompt": "A lighthouse at dusk"}),
    "embedding": ("/v1/embeddings", {"input": "The quick brown fox"}),
    "rerank": ("/v1/rerank", {"query": "capital of France", "documents": ["Paris", "Rome"]}),
    "moderation": ("/v1/moderations", {"input": "A text to judge"}),
    "audio_speech": ("/v1/audio/speech", {"input": "Hello!", "voice": "alloy"}),
}


class Snippet(NamedTuple):
    """A code snippet: its language and its text."""

    language: str
    text: str


def client_settings(base_url: str) -> list[Snippet]:
    """Return shell lines that configure clients of each format for this gateway."""
    key = "$GATEWAY_API_KEY"
    return [
        Snippet(
            gettext("OpenAI's clients, and most others"),
            f"export OPENAI_BASE_URL={base_url}/v1\nexport OPENAI_API_KEY={key}",
        ),
        Snippet(
            gettext("Anthropic's clients, Claude Code"),
            f"export ANTHROPIC_BASE_URL={base_url}\nexport ANTHROPIC_AUTH_TOKEN={key}",
        ),
        Snippet(
            gettext("Google's clients, Gemini CLI"),
            f"export GOOGLE_GEMINI_BASE_URL={base_url}\nexport GEMINI_API_KEY={key}",
        ),
        Snippet(gettext("Ollama's clients"), f"export OLLAMA_HOST={base_url}\nexport OLLAMA_API_KEY={key}"),
    ]


def snippets_for(mode: str, model: str, base_url: str) -> list[Snippet]:
    """Return an example request to a model of a mode, in each language."""
    if mode == "audio_transcription":
        return [_transcription(model, base_url)]
    path, fields = _BODIES.get(mode, _BODIES["chat"])
    body = {"model": model, **fields}
    snippets = [
        Snippet("curl", curl(base_url + path, body)),
        Snippet("Python", python(base_url + path, body)),
        Snippet("JavaScript", javascript(base_url + path, body)),
    ]
    if mode == "chat":
        snippets.insert(1, Snippet("Python (openai)", _openai(base_url, body)))
        claude = {"model": model, "max_tokens": 1024, "messages": fields["messages"]}
        snippets.append(Snippet(gettext("curl, Anthropic's format"), curl(f"{base_url}/v1/messages", claude)))
        responses = {"model": model, "input": "Hello!"}
        snippets.append(Snippet("curl, Responses", curl(f"{base_url}/v1/responses", responses)))
    return snippets


def curl(url: str, body: dict[str, Any]) -> str:
    """Return a shell command that posts a body."""
    text = json.dumps(body, ensure_ascii=False).replace("'", "'\\''")
    return (
        f'curl {url} \\\n  -H "Authorization: Bearer $GATEWAY_API_KEY" \\\n'
        f"  -H \"Content-Type: application/json\" \\\n  -d '{text}'"
    )


def python(url: str, body: dict[str, Any]) -> str:
    """Return a Python program that posts a body."""
    return (
        "import os\nimport requests\n\nanswer = requests.post(\n"
        f'    "{url}",\n    headers={{"Authorization": f"Bearer {{os.environ[\'GATEWAY_API_KEY\']}}"}},\n'
        f"    json={body!r},\n    timeout=120,\n)\n"
        "answer.raise_for_status()\nprint(answer.json())"
    )


def _openai(base_url: str, body: dict[str, Any]) -> str:
    return (
        "import os\nfrom openai import OpenAI\n\n"
        f'client = OpenAI(\n    base_url="{base_url}/v1",\n    api_key=os.environ["GATEWAY_API_KEY"],\n)\n'
        "answer = client.chat.completions.create(\n"
        f'    model="{body["model"]}",\n    messages={json.dumps(body["messages"], ensure_ascii=False)},\n)\n'
        "print(answer.choices[0].message.content)"
    )


def javascript(url: str, body: dict[str, Any]) -> str:
    """Return a JavaScript module, valid as TypeScript, that posts a body."""
    text = json.dumps(body, indent=2, ensure_ascii=False).replace("\n", "\n  ")
    return (
        f'const answer = await fetch("{url}", {{\n  method: "POST",\n'
        '  headers: { Authorization: `Bearer ${process.env.GATEWAY_API_KEY}`, "Content-Type": "application/json" },\n'
        f"  body: JSON.stringify({text}),\n}});\nconsole.log(await answer.json());"
    )


def _transcription(model: str, base_url: str) -> Snippet:
    return Snippet(
        "curl",
        f'curl {base_url}/v1/audio/transcriptions \\\n  -H "Authorization: Bearer $GATEWAY_API_KEY" \\\n'
        f"  -F model={model} -F file=@speech.mp3",
    )


# Characters of a body that is offered as code; longer ones, such as those with images, are in the export.
MAX_BODY: Final = 100_000
# By route: the path, and the names of the messages and of the largest number of tokens.
_ROUTES: Final = {
    "chat_completions": ("/v1/chat/completions", "messages", "max_tokens"),
    "messages": ("/v1/messages", "messages", "max_tokens"),
    "responses": ("/v1/responses", "input", "max_output_tokens"),
}
_LOGGED_PARAMETERS: Final = ("temperature", "top_p", "frequency_penalty", "presence_penalty")
# Anthropic's format requires a limit.
_DEFAULT_LIMIT: Final = 1024


def request_snippets(row: LogRow, base_url: str) -> list[Snippet]:
    """Return the request of a row as code; none where the row lacks the request or its format is another."""
    body = request_body(row)
    if body is None:
        return []
    url = base_url + _ROUTES[row["route"]][0]
    return [
        Snippet("curl", curl(url, body)),
        Snippet("Python", python(url, body)),
        Snippet("TypeScript", javascript(url, body)),
    ]


def request_body(row: LogRow) -> dict[str, Any] | None:
    """Return the body of a row's request; None where the row lacks it, its format is another, or it is too large."""
    if row["route"] not in _ROUTES or row["messages"] is None:
        return None
    body = _body_of(row)
    return body if len(json.dumps(body)) <= MAX_BODY else None


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
    body |= {name: row[name] for name in _LOGGED_PARAMETERS if row[name] is not None}
    body |= {name: stored[name] for name in ("tools", "tool_choice") if stored[name] is not None}
    if form is not None:
        fields = {"messages": {"output_config": {"format": form}}, "responses": {"text": {"format": form}}}
        body |= fields.get(route, {"response_format": form})
    return body


# Placeholder for pages that do not have the key.
NO_KEY_HERE: Final = "YOUR_API_KEY"
# A model that works without credits.
_FREE_MODEL, _FREE_PROVIDER, _ANY_MODEL = "sandbox/free", "sandbox", "auto"
_MESSAGES: Final = [{"role": "user", "content": "Hello!"}]


class FirstRequest(NamedTuple):
    """A request in one program: its name, the text to copy, and the program's prerequisites."""

    name: str
    code: str
    needs: str = ""


def first_model() -> str:
    """Return the model of a first request: a free one if there is one."""
    return _FREE_MODEL if _FREE_PROVIDER in catalog_cache.current().providers else _ANY_MODEL


def first_requests(base_url: str, key: str, model: str) -> list[FirstRequest]:
    """Return the request in each program."""
    return [
        _curl(base_url, key, model),
        _python(base_url, key, model),
        _javascript(base_url, key, model),
        _claude_code(base_url, key, model),
        _codex(base_url, key, model),
    ]


def _curl(base_url: str, key: str, model: str) -> FirstRequest:
    return FirstRequest(
        "curl",
        f"curl {base_url}/v1/chat/completions \\\n"
        f'  -H "Authorization: Bearer {key}" \\\n'
        '  -H "Content-Type: application/json" \\\n'
        f"  -d '{json.dumps({'model': model, 'messages': _MESSAGES})}'",
    )


def _python(base_url: str, key: str, model: str) -> FirstRequest:
    return FirstRequest(
        "Python",
        "from openai import OpenAI\n\n"
        f'client = OpenAI(base_url="{base_url}/v1", api_key="{key}")\n'
        "answer = client.chat.completions.create(\n"
        f'    model="{model}", messages={json.dumps(_MESSAGES)}\n)\n'
        "print(answer.choices[0].message.content)",
        "pip install openai",
    )


def _javascript(base_url: str, key: str, model: str) -> FirstRequest:
    return FirstRequest(
        "JavaScript",
        'import OpenAI from "openai";\n\n'
        f'const client = new OpenAI({{ baseURL: "{base_url}/v1", apiKey: "{key}" }});\n'
        "const answer = await client.chat.completions.create({\n"
        f'  model: "{model}", messages: {json.dumps(_MESSAGES)},\n}});\n'
        "console.log(answer.choices[0].message.content);",
        "npm install openai",
    )


def _claude_code(base_url: str, key: str, model: str) -> FirstRequest:
    """Claude Code's background tasks would call a Claude Haiku, which needs credits."""
    return FirstRequest(
        "Claude Code",
        f"export ANTHROPIC_BASE_URL={base_url}\n"
        f"export ANTHROPIC_AUTH_TOKEN={key}\n"
        f"export ANTHROPIC_DEFAULT_HAIKU_MODEL={model}\n"
        f'claude --model {model} "Hello!"',
        "npm install -g @anthropic-ai/claude-code",
    )


def _codex(base_url: str, key: str, model: str) -> FirstRequest:
    provider = f'{{name="gateway",base_url="{base_url}/v1",env_key="GATEWAY_API_KEY",wire_api="responses"}}'
    return FirstRequest(
        "Codex",
        f"export GATEWAY_API_KEY={key}\n"
        f"codex -m {model} -c model_provider=gateway \\\n"
        f"  -c 'model_providers.gateway={provider}' \\\n"
        '  "Hello!"',
        "npm install -g @openai/codex",
    )
