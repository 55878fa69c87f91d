"""Tags of the document: the groups of its operations, most used first."""

from __future__ import annotations

from typing import Any, Final

# A tag, its description, and prefixes of its operations' paths; the first match decides.
_TAGS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("Chat", "Chats in OpenAI's format, and routing previews", ("/v1/chat/", "/v1/completions", "/v1/route/")),
    ("Messages", "Chats in Anthropic's format", ("/v1/messages/count_tokens", "/v1/messages!")),
    ("Responses", "Chats that may keep state, in OpenAI's Responses format", ("/v1/responses", "/v1/conversations")),
    ("Images", "Image generation and editing", ("/v1/images/",)),
    ("Audio", "Speech synthesis and transcription", ("/v1/audio/",)),
    ("Embeddings", "Texts as vectors", ("/v1/embeddings", "/v2/embed")),
    ("Reranking and moderation", "Rank documents, moderate content", ("/v1/rerank", "/v2/rerank", "/v1/moderations")),
    ("Models", "Available models and their prices", ("/v1/models!", "/v1/models/{modelId}", "/v1/model/info")),
    ("Batches", "Thousands of requests at a low priority", ("/v1/files", "/v1/batches", "/v1/messages/batches")),
    ("This key", "Limits and spending of the API key that is used", ("/v1/key", "/v1/credits", "/v1/generation")),
    ("Gemini", "Chats, embeddings and models in Google's format", ("/v1beta", "/v1/models/{name}", "/v1/p")),
    ("MCP servers", "Tool servers that an organization registers", ("/mcp-servers",)),
    ("MCP", "The gateway as a server of the Model Context Protocol", ("/mcp",)),
    ("Log sinks", "Receivers of an organization's log", ("/log-sinks",)),
    ("Logs and activity", "Requests and their costs", ("/logs", "/activity")),
    ("API keys", "Keys, their limits and access rules", ("/keys/api",)),
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
