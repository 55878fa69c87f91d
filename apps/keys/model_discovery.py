"""Model discovery: asks a provider or an organization's own server for its models, which also tests the credential.

Every answer is hostile input: bounded in bytes, values and time, never redirected. A server that lists no models, or
not in a readable way, is no error: its models can be called all the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import gevent
import msgspec
import requests
from urllib3.exceptions import HTTPError

from apps.kernel.concurrency.native_thread_pool import offload
from apps.kernel.errors import InvalidRequest
from apps.kernel.json_bounds import Bounds, OutOfBounds, decode_within
from apps.kernel.secrets.redaction import redact
from apps.keys.own_models import CAPABILITIES, MAX_CONTEXT, MAX_MODEL_NAME, MAX_MODELS
from apps.keys.ssrf_guard import SafeAddress

# Seconds to connect.
CONNECT_TIMEOUT: Final = 5.0
# Bytes of an error that are read, and characters of it that are shown.
MAX_READ, MAX_TOLD = 8_192, 300
# Bytes and JSON of an answer: ten thousand models with all that servers say of them.
MAX_ANSWER: Final = 4 * 1024 * 1024
_BOUNDS: Final = Bounds(values=400_000, depth=32, name=1_000, digits=100)
# Models that Ollama is asked about one by one.
MAX_SHOWN: Final = 100
# No list of models, or not now: neither says anything about the credential.
_SAYS_NOTHING: Final = frozenset({404, 405, 429})
# Fields of a model's entry with its context in tokens: vLLM and SGLang, OpenRouter and Together, Groq, Mistral and LM
# Studio.
_CONTEXT_FIELDS: Final = ("max_model_len", "context_length", "context_window", "max_context_length")


class Pace(NamedTuple):
    """Seconds that a server may take: between two bytes, for one answer, and for all answers."""

    between_bytes: float
    answer: float
    all_answers: float


# A list of models is known at once.
_PACE: Final = Pace(between_bytes=10.0, answer=15.0, all_answers=30.0)


@dataclass(frozen=True, slots=True)
class FoundModels:
    """The models that a server lists, as `found_models` stores them, and what it did not answer, for people."""

    models: list[dict[str, Any]]
    problem: str = ""


class Unanswered(Exception):
    """A server did not answer a question as it should; the message is for people."""


def find_models(address: SafeAddress, token: str, server: str) -> FoundModels:
    """Return the models of an organization's own server, of the kind `server` (a key of `SERVERS`).

    `token` may be empty. Raises InvalidRequest with the server's error if it refuses the credential or is not reached.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with address.session() as session:
        conversation = ServerConversation(session, address.url, headers, token)
        status, body = conversation.list_models()
        try:
            listed = _read_list(body) if status < 300 else []
            problem = "" if status < 300 else f"The server answered {status} instead of a list of models"
        except Unanswered as error:
            listed, problem = [], str(error)
        found = {entry["name"]: entry for entry in listed}
        try:
            SERVERS[server](conversation, found)
        except Unanswered as error:
            problem = problem or str(error)
    if len(found) > MAX_MODELS:
        problem = f"The server lists {len(found)} models; the first {MAX_MODELS} are kept"
    return FoundModels(list(found.values())[:MAX_MODELS], problem[:MAX_TOLD])


def check_credential(session: requests.Session, base_url: str, headers: Mapping[str, str], token: str) -> None:
    """Test a credential by asking for the list of models. Raises InvalidRequest with the provider's error."""
    ServerConversation(session, base_url, headers, token).list_models()


def check_address(address: SafeAddress, token: str) -> None:
    """Test a further address of an own server by asking for its models. Raises InvalidRequest with its error."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with address.session() as session:
        check_credential(session, address.url, headers, token)


class ServerConversation:
    """Questions to one server, which take at most as long as its pace allows."""

    def __init__(
        self,
        session: requests.Session,
        base_url: str,
        headers: Mapping[str, str],
        token: str,
        pace: Pace = _PACE,
    ) -> None:
        self._session, self._base_url, self._headers, self._token = session, base_url, headers, token
        self._pace, self._ends = pace, time.monotonic() + pace.all_answers

    def list_models(self) -> tuple[int, bytes]:
        """Return the answer to `GET /models`: its status, which is 2xx, 404, 405 or 429, and its body.

        Raises InvalidRequest with the error of any other.
        """
        try:
            status, body = self._ask("GET", f"{self._base_url}/models")
        except (requests.RequestException, HTTPError) as error:
            raise _refused("the provider could not be reached") from error
        if status < 300 or status in _SAYS_NOTHING:
            return status, body
        words = words_of(body, self._token)
        raise _refused(f"the provider answered {status}{f': {words}' if words else ''}")

    def read(self, path: str, body: Mapping[str, str] | None = None) -> Any:
        """Return the JSON at a path of the server itself, outside its OpenAI-compatible API. Raises Unanswered."""
        url = f"{self._base_url.removesuffix('/v1')}{path}"
        try:
            status, answer = self._ask("GET" if body is None else "POST", url, body)
        except (requests.RequestException, HTTPError) as error:
            raise Unanswered(f"The server does not answer at {path}") from error
        if status != 200:
            raise Unanswered(f"The server answered {status} at {path}")
        return self.decode(answer, path)

    def post(self, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        """Return the status and body of an answer of its OpenAI-compatible API. Raises Unanswered."""
        try:
            return self._ask("POST", f"{self._base_url}{path}", body)
        except (requests.RequestException, HTTPError) as error:
            raise Unanswered(f"The server does not answer at {path}") from error

    @staticmethod
    def decode(body: bytes, path: str) -> Any:
        """Return the JSON of an answer. Raises Unanswered for one that is too long or none."""
        if len(body) > MAX_ANSWER:
            raise Unanswered(f"The server's answer at {path} is longer than {MAX_ANSWER // 1024 // 1024} MB")
        try:
            return offload(len(body), decode_within, body, _BOUNDS)
        except (OutOfBounds, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unanswered(f"The server's answer at {path} cannot be read") from error

    def _ask(self, method: str, url: str, body: Mapping[str, Any] | None = None) -> tuple[int, bytes]:
        left = min(self._pace.answer, self._ends - time.monotonic())
        timeout = (CONNECT_TIMEOUT, self._pace.between_bytes)
        if left <= 0:
            raise requests.Timeout
        with (
            gevent.Timeout(left, requests.Timeout()),
            self._session.request(
                method, url, headers=self._headers, json=body, timeout=timeout, allow_redirects=False, stream=True
            ) as response,
        ):
            most = MAX_ANSWER + 1 if response.status_code < 300 else MAX_READ
            return response.status_code, response.raw.read(most, decode_content=True)


def _read_list(body: bytes) -> list[dict[str, Any]]:
    """Return the models of an OpenAI-compatible list. Raises Unanswered."""
    return [
        entry for one in _members(ServerConversation.decode(body, "/models"), "data") if (entry := _entry_of(one, "id"))
    ]


def _members(answer: Any, name: str) -> Iterable[dict[str, Any]]:
    listed = answer.get(name) if isinstance(answer, dict) else answer
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []


def _entry_of(one: Mapping[str, Any], name_field: str) -> dict[str, Any] | None:
    """Return a model as it is stored; None if its name is none."""
    name = one.get(name_field)
    if not (isinstance(name, str) and 1 <= len(name) <= MAX_MODEL_NAME and name.isprintable() and name == name.strip()):
        return None
    entry: dict[str, Any] = {"name": name}
    meta = one.get("meta")
    contexts = [*map(one.get, _CONTEXT_FIELDS), meta.get("n_ctx") if isinstance(meta, dict) else None]
    _add_context(entry, *contexts)
    return entry


def _add_context(entry: dict[str, Any], *stated: Any) -> None:
    """Add the first context that is one, in tokens."""
    for value in stated:
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_CONTEXT:
            entry["contextLength"] = value
            return


def _add_capabilities(entry: dict[str, Any], *stated: str) -> None:
    entry["capabilities"] = [name for name in CAPABILITIES if name in stated]


_Found = dict[str, dict[str, Any]]


def _nothing_more(server: ServerConversation, found: _Found) -> None:
    """Ask nothing: the list says all that the server tells."""


def _ask_ollama(server: ServerConversation, found: _Found) -> None:
    """Add what Ollama says of each model: its context, which a Modelfile, `OLLAMA_CONTEXT_LENGTH` or memory
    lower, and capabilities."""
    for one in _members(server.read("/api/tags"), "models"):
        if (entry := _entry_of(one, "name")) and len(found) < MAX_MODELS:
            found.setdefault(entry["name"], entry)
    for entry in list(found.values())[:MAX_SHOWN]:
        shown = server.read("/api/show", {"model": entry["name"]})
        info = shown.get("model_info") if isinstance(shown, dict) else None
        if not isinstance(info, dict):
            continue
        contexts = (value for name, value in info.items() if name.endswith(".context_length"))
        _add_context(entry, _parameter(shown.get("parameters"), "num_ctx"), *contexts)
        capabilities = shown.get("capabilities")
        if isinstance(capabilities, list):
            _add_capabilities(entry, *(one for one in capabilities if isinstance(one, str)))
    # Loaded models, with the context that they really have.
    for one in _members(server.read("/api/ps"), "models"):
        name = one.get("name")
        if isinstance(name, str) and name in found:
            _add_context(found[name], one.get("context_length"))


def _parameter(lines: Any, name: str) -> int | None:
    """Return a whole number of a Modelfile's parameters, which are lines of a name and a value."""
    for line in lines.splitlines() if isinstance(lines, str) else ():
        words = line.split()
        if len(words) == 2 and words[0] == name and words[1].isascii() and words[1].isdecimal():
            return int(words[1][:12])
    return None


def _ask_llama_cpp(server: ServerConversation, found: _Found) -> None:
    """Add the context of a slot, which `--ctx-size` and `--parallel` give: not what the model was trained for."""
    props = server.read("/props")
    if not isinstance(props, dict) or len(found) != 1:
        # A server that switches between models has no properties of one.
        return
    [entry] = found.values()
    settings = props.get("default_generation_settings")
    _add_context(entry, settings.get("n_ctx") if isinstance(settings, dict) else None, props.get("n_ctx"))


def _ask_lm_studio(server: ServerConversation, found: _Found) -> None:
    """Add the context that a model is loaded with, else its largest one; and its type."""
    for one in _members(server.read("/api/v0/models"), "data"):
        name, kind, stated = one.get("id"), one.get("type"), one.get("capabilities")
        entry = found.get(name) if isinstance(name, str) else None
        if entry is None:
            continue
        _add_context(entry, one.get("loaded_context_length"), one.get("max_context_length"))
        if kind == "embeddings":
            _add_capabilities(entry, "embedding")
        elif isinstance(stated, list):
            abilities = {"tools": "tool_use" in stated, "vision": kind == "vlm"}
            _add_capabilities(entry, *(name for name, is_there in abilities.items() if is_there))


def _ask_tgi(server: ServerConversation, found: _Found) -> None:
    """Add the context of the one model that Text Generation Inference serves."""
    info = server.read("/info")
    if not isinstance(info, dict):
        return
    if not found and (named := _entry_of(info, "model_id")):
        found[named["name"]] = named
    for entry in found.values():
        _add_context(entry, info.get("max_total_tokens"), info.get("max_input_tokens"))


# By kind of server: the function that asks for more than the list of models.
SERVERS: Final[Mapping[str, Callable[[ServerConversation, _Found], None]]] = {
    "openai": _nothing_more,
    "vllm": _nothing_more,
    "sglang": _nothing_more,
    "ollama": _ask_ollama,
    "llamacpp": _ask_llama_cpp,
    "lmstudio": _ask_lm_studio,
    "tgi": _ask_tgi,
}
# The kind whose address is used as it is: any OpenAI-compatible server.
ANY_SERVER: Final = "openai"


def complete_url(base_url: str, server: str) -> str:
    """Return the address of a server's OpenAI-compatible API: `/v1` is added where a known kind's has no path."""
    address = base_url.rstrip("/")
    try:
        is_bare = not urlsplit(address).path
    except ValueError:
        # The address check refuses it.
        return address
    return f"{address}/v1" if server != ANY_SERVER and is_bare else address


def words_of(body: bytes, token: str) -> str:
    """Return an answer's error message without the credential, shortened for display."""
    body = body[:MAX_READ]
    try:
        said: Any = json.loads(body)
        if isinstance(said, dict):
            said = said.get("error", said.get("message", ""))
        if isinstance(said, dict):
            said = said.get("message", "")
        words = str(said)
    except (ValueError, RecursionError):
        # No JSON, or brackets as deep as no message is.
        words = body.decode("utf-8", "replace")
    # Redact first: truncating could leave half of the credential.
    return " ".join(redact(words, [token]).split())[:MAX_TOLD]


def _refused(reason: str) -> InvalidRequest:
    return InvalidRequest(f"The provider key was not accepted: {reason}", code="provider_key_refused", param="token")
