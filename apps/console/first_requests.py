"""First requests: the same request in several programs, ready to copy with the new key in it.

docs/clients/agents.md has more programs. Only the page that shows a new key passes a real key.
"""

from __future__ import annotations

import json
from typing import Final, NamedTuple

from apps.catalog import catalog_cache

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
