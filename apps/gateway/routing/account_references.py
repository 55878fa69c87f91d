"""Account references: what a request names that lies in an account at a provider, such as a container or a file there.

All organizations that use the service's credentials share its accounts at providers. A request that names a container,
a vector store, a file, a cache or a conversation there could reach another organization's, so such a request is for
offers with a credential of the organization's own alone. An object that a provider creates for one answer (`container:
auto`) is no reference. Pure; a plain chat is looked at part by part and costs no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from apps.gateway.canonical.chat import Chat, File, Image, Opaque, OpaqueTool, Part, Text, ToolResult
from apps.gateway.dialects.adapting.unsupported_fields import message_path
from apps.gateway.routing.candidate import Candidate
from apps.kernel.errors import InvalidRequest

# Fields whose value, a text or texts, is the name of something in an account.
_NAMES: Final = frozenset(
    {
        # OpenAI, and who speaks its formats.
        *("container_id", "vector_store_id", "vector_store_ids", "file_id", "file_ids", "connector_id", "skill_id"),
        *("previous_response_id", "thread_id", "assistant_id", "agent_id"),
        *("knowledge_id", "library_ids", "collection_ids"),
        # Google.
        *("cachedContent", "cached_content", "fileSearchStoreNames", "file_search_store_names"),
        *("ragCorpora", "ragCorpus", "rag_corpora", "rag_corpus", "ragFileIds", "rag_file_ids"),
        *("promptTemplateName", "responseTemplateName"),
        # Amazon.
        *("guardrailIdentifier", "guardrailArn", "promptArn", "inferenceProfileArn", "knowledgeBaseId"),
    }
)
# Fields whose value is such a name, or an object with one as its `id`; and those whose texts are something else.
_NAMES_OR_OBJECTS: Final = frozenset({"container", "conversation", "prompt", "assistant"})
_OBJECTS: Final = _NAMES_OR_OBJECTS | {"audio", "voice"}
# Fields that name something of an account where they hold a path from a project on.
_PATHS: Final = frozenset({"datastore", "dataStore", "data_store", "engine"})
# Fields that are a source of data with the account's own rights, whatever they hold.
_SOURCES: Final = frozenset({"data_sources", "ragResources", "rag_resources"})
# Fields with addresses.
_ADDRESSES: Final = frozenset({"fileUri", "file_uri", "gcsUri", "gcs_uri", "uri", "url", "file_url", "image_url"})
# Fields with words of clients and models, which name nothing: schemas, calls, and what an answer once quoted.
_WORDS: Final = frozenset(
    {
        *("parameters", "input_schema", "schema", "responseSchema", "input", "arguments", "action", "operation"),
        *("annotations", "citations", "logprobs", "results", "outputs", "authorization", "headers"),
    }
)
# Tools that the client runs.
_OF_CLIENTS: Final = frozenset({"custom", "namespace", "function"})
# Beginnings of addresses that are read with an account's rights.
_STORES: Final = frozenset({"gs", "s3", "abfs", "abfss", "wasb", "wasbs", "oss", "tos", "cos", "fileid", "file-id"})
_FILES: Final = ("files/", "projects/")
# Hosts whose files are an account's.
_FILE_HOSTS: Final = ("generativelanguage.googleapis.com", "aiplatform.googleapis.com")


def filter_by_account(chat: Chat, reachable: Sequence[Candidate], requested: str | None = None) -> Sequence[Candidate]:
    """Return the candidates that may be asked: all, or those with an own credential where the chat names something in
    an account. Raises InvalidRequest naming the field where none is left, or not the provider that was named."""
    found = find_account_reference(chat)
    if found is None:
        return reachable
    own = [one for one in reachable if one.credential.own is not None]
    if any(requested in {None, one.provider_id} for one in own):
        return own
    raise InvalidRequest(
        f"{found} names something in an account at the provider: it can be used with a provider key of your "
        "organization's own alone (POST /keys/provider)",
        code="own_credential_required",
        param=found,
    )


def find_account_reference(chat: Chat) -> str | None:
    """Return the field of the first thing that a chat names in an account at a provider; None where there is none."""
    if chat.extra and (found := _find_in(chat.extra)) is not None:
        return found
    for number, tool in enumerate(chat.tools or ()):
        if isinstance(tool, OpaqueTool) and (found := _find_in_tool(tool.data)) is not None:
            return f"tools[{number}].{found}"
    for number, message in enumerate(chat.messages):
        if message.extra and (found := _find_in(message.extra)) is not None:
            return f"{message_path(chat, number)}.{found}"
        for part in message.parts:
            if type(part) is Text and part.extra is None:
                continue
            if (found := _find_in_part(part)) is not None:
                return f"{message_path(chat, number)}.{found}"
    return None


def _find_in_part(part: Part) -> str | None:
    if isinstance(part, ToolResult):
        for inner in part.parts:
            if (found := _find_in_part(inner)) is not None:
                return found
    elif isinstance(part, File) and part.file_id is not None:
        return "file_id"
    elif isinstance(part, File | Image) and part.url is not None and _is_of_account(part.url):
        return "image_url" if isinstance(part, Image) else "file_url"
    elif isinstance(part, Opaque):
        return _find_in_block(part.data)
    return _find_in(part.extra) if part.extra else None


def _find_in_block(data: Any) -> str | None:
    """Look at a part that only its own format has."""
    kind = data.get("type") if isinstance(data, Mapping) else None
    if isinstance(kind, str) and kind.endswith("_tool_result"):
        # A tool's earlier answer: the files that it names are not opened by it.
        return None
    if kind == "image_generation_call" and not data.get("result"):
        # Its image is looked up by its id.
        return "id"
    return _find_in(data)


def _find_in_tool(data: Any) -> str | None:
    kind = data.get("type") if isinstance(data, Mapping) else None
    return None if kind in _OF_CLIENTS else _find_in(data)


def _find_in(data: Any) -> str | None:
    """Return the path of the first name in data of a provider's format."""
    waiting: list[tuple[str, Any]] = [("", data)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, Mapping):
            for name, inner in value.items():
                where = f"{path}.{name}" if path else str(name)
                if _is_reference(str(name), inner, value):
                    return where
                if name not in _WORDS and isinstance(inner, Mapping | list):
                    waiting.append((where, inner))
        elif isinstance(value, list):
            waiting.extend((f"{path}[{place}]", inner) for place, inner in _nested(value))
    return None


def _nested(values: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    for place, inner in enumerate(values):
        if isinstance(inner, Mapping | list):
            yield place, inner


def _is_reference(name: str, value: Any, around: Mapping[Any, Any]) -> bool:
    if name == "skill_id" and around.get("type") == "anthropic":
        # Anthropic's own skills are everybody's.
        return False
    if name in _SOURCES:
        return bool(value)
    if name in _NAMES and _has_text(value):
        return True
    if name in _OBJECTS and isinstance(value, Mapping):
        return _has_text(value.get("id"))
    if name in _NAMES_OR_OBJECTS:
        return _has_text(value)
    if name in _PATHS:
        return isinstance(value, str) and value.startswith("projects/")
    return name in _ADDRESSES and isinstance(value, str) and _is_of_account(value)


def _has_text(value: Any) -> bool:
    """Return whether a value is a text, or has one."""
    return bool(value) and (isinstance(value, str) or (isinstance(value, list) and any(map(_has_text, value))))


def _is_of_account(address: str) -> bool:
    """Return whether an address leads into an account: `gs://…`, `s3://…`, `files/…`, a host of a provider's files."""
    if address[:5].lower() == "data:":
        return False
    address = address.strip()
    if address.startswith(_FILES):
        return True
    try:
        parts = urlsplit(address)
        host = (parts.hostname or "").lower()
    except ValueError:
        # It names nothing; its reader refuses it.
        return False
    if parts.scheme.lower() in _STORES:
        return True
    return any(host == known or host.endswith((f".{known}", f"-{known}")) for known in _FILE_HOSTS)
