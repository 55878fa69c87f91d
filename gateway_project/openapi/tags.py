"""Tags of the document: what its operations are grouped by, in the order in which people look for them.

Knows paths. Must never know a shape.
"""

from __future__ import annotations

from typing import Any, Final

# A tag, what is said of it, and the paths of its operations by how they begin; the first that fits is an operation's.
_TAGS: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("Chat", "Chats in OpenAI's format, and who would answer one", ("/v1/chat/", "/v1/completions", "/v1/route/")),
    ("Messages", "Chats in Anthropic's format", ("/v1/messages/count_tokens", "/v1/messages!")),
    ("Responses", "Chats that may keep state, in OpenAI's Responses format", ("/v1/responses", "/v1/conversations")),
    ("Images", "Pictures from words, and changed ones", ("/v1/images/",)),
    ("Audio", "Speech from texts, texts from speech", ("/v1/audio/",)),
    ("Embeddings", "Texts as vectors", ("/v1/embeddings", "/v2/embed")),
    ("Reranking and moderation", "Order documents, judge content", ("/v1/rerank", "/v2/rerank", "/v1/moderations")),
    ("Models", "Which models there are, at which prices", ("/v1/models!", "/v1/models/{modelId}", "/v1/model/info")),
    ("Batches", "Thousands of requests at a low priority", ("/v1/files", "/v1/batches", "/v1/messages/batches")),
    ("This key", "What the key that asks may spend, and has spent", ("/v1/key", "/v1/credits", "/v1/generation")),
    ("Gemini", "Chats, embeddings and models in Google's format", ("/v1beta", "/v1/models/{name}", "/v1/p")),
    ("MCP servers", "Servers of tools that an organization registers", ("/mcp-servers",)),
    ("MCP", "The gateway as a tool of programs that speak the Model Context Protocol", ("/mcp",)),
    ("Log sinks", "Receivers of an organization's log", ("/log-sinks",)),
    ("Logs and activity", "What was asked, and what it cost", ("/logs", "/activity")),
    ("API keys", "Keys, their limits and access rules", ("/keys/api",)),
    ("Provider keys", "Credentials of your own at providers", ("/keys/provider",)),
    ("Projects", "What keys belong to", ("/projects",)),
    ("Organizations", "Members, invitations, money, audit log", ("/organization", "/audit-logs")),
    ("Guardrails", "What may not pass", ("/guardrails",)),
    ("Programs that sign in", "OAuth: metadata, registration, tokens", ("/oauth", "/.well-known", "/v1/auth")),
    ("Accounts", "Sign-up, sign-in and sign-in methods", ("/auth",)),
    ("Operation", "Health, metrics, this document", ("/",)),
)
# After a path that is meant whole.
_WHOLE: Final = "!"


def tags() -> list[dict[str, Any]]:
    """Return the tags in order, with what is said of each."""
    return [{"name": name, "description": words} for name, words, _ in _TAGS]


def tag_of(path: str) -> str:
    """Return the tag of a path's operations."""
    return next(name for name, _, starts in _TAGS if any(_fits(path, start) for start in starts))


def slug_of(name: str) -> str:
    """Return a tag as an address has it."""
    return name.lower().replace(" ", "-")


def _fits(path: str, start: str) -> bool:
    return path == start.removesuffix(_WHOLE) if start.endswith(_WHOLE) else path.startswith(start)
