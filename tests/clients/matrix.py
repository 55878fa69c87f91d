"""Clients and formats: which client is tested by which tests, and the table of the results."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tests.clients import npm, pypi
from tests.clients.gateway import EVERY_FORMAT

CHAT, MESSAGES, RESPONSES, GEMINI, COHERE = "chat completions", "messages", "responses", "Gemini", "Cohere chat"
OLLAMA, CONVERSE = "Ollama", "Bedrock Converse"
FORMATS: Final = [behind.format for behind in EVERY_FORMAT]
BEGIN, END = "<!-- begin: written by script/clients -->", "<!-- end: written by script/clients -->"

_VERSION = re.compile(r"^(.+?)(?:==|@)([\d.]+)$")


@dataclass(frozen=True, slots=True)
class Client:
    """A client in one of its formats: its version, and the tests (files, or the beginnings of their names) of it."""

    name: str
    version: str
    format: str
    tests: tuple[str, ...]

    @property
    def row(self) -> str:
        """The beginning of its row, which tells it from all others in the table."""
        return f"| {self.name} | {self.format} |"


def _pinned(package: str) -> str:
    """Return the version that is stated for the first of the packages."""
    matched = _VERSION.match(package.split()[0])
    assert matched is not None, package
    return matched[2]


def _client(name: str, client_format: str, client_version: str, *tests: str) -> Client:
    return Client(name, client_version, client_format, tests)


CLIENTS: Final = (
    _client("Claude Code", MESSAGES, _pinned(npm.CLAUDE_CODE), "test_claude_code.py"),
    _client("Codex", RESPONSES, _pinned(npm.CODEX), "test_codex.py"),
    _client("Gemini CLI", GEMINI, _pinned(npm.GEMINI_CLI), "test_gemini_cli.py"),
    _client("opencode", CHAT, _pinned(npm.OPENCODE), "test_opencode.py"),
    _client("qwen-code", CHAT, _pinned(npm.QWEN_CODE), "test_qwen_code.py"),
    _client("aider", CHAT, _pinned(pypi.AIDER), "test_aider.py"),
    _client("cline", CHAT, _pinned(npm.CLINE), "test_terminal_agents.py::test_cline"),
    _client("Continue", CHAT, _pinned(npm.CONTINUE), "test_terminal_agents.py::test_continue"),
    _client("pi", CHAT, _pinned(npm.PI), "test_terminal_agents.py::openai-completions::"),
    _client("pi", RESPONSES, _pinned(npm.PI), "test_terminal_agents.py::openai-responses::"),
    _client("pi", MESSAGES, _pinned(npm.PI), "test_terminal_agents.py::anthropic-messages::"),
    _client("pi", GEMINI, _pinned(npm.PI), "test_terminal_agents.py::google-generative-ai::"),
    _client("llm", CHAT, _pinned(pypi.LLM), "test_llm.py"),
    _client("openai (Python)", CHAT, version("openai"), "test_openai.py"),
    _client("openai (Python)", RESPONSES, version("openai"), "test_openai_responses.py"),
    _client("openai (JavaScript)", CHAT, _pinned(npm.OPENAI), "test_javascript_sdks.py::chat::"),
    _client("openai (JavaScript)", RESPONSES, _pinned(npm.OPENAI), "test_javascript_sdks.py::responses::"),
    _client("anthropic (Python)", MESSAGES, version("anthropic"), "test_anthropic.py"),
    _client("anthropic (JavaScript)", MESSAGES, _pinned(npm.ANTHROPIC), "test_javascript_sdks.py::test_anthropics"),
    _client("cohere (Python)", COHERE, version("cohere"), "test_cohere.py"),
    _client("boto3", CONVERSE, version("boto3"), "test_boto3.py"),
    _client("google-genai (Python)", GEMINI, version("google-genai"), "test_google_genai.py"),
    _client(
        "@google/genai",
        GEMINI,
        _pinned(npm.GOOGLE_GENAI),
        "test_google_scripts.py::test_googles_client_for_javascript",
    ),
    _client("ollama (Python)", OLLAMA, version("ollama"), "test_ollama.py"),
    _client("ollama (JavaScript)", OLLAMA, _pinned(npm.OLLAMA), "test_javascript_sdks.py::test_ollamas"),
    _client("AI SDK, `openai()`", RESPONSES, _pinned(npm.AI_SDK), "test_ai_sdk.py"),
    _client(
        "AI SDK, `google()`",
        GEMINI,
        _pinned(npm.AI_SDK_GOOGLE.split(maxsplit=1)[1]),
        "test_google_scripts.py::test_the_ai_sdks_model_for_google",
    ),
    _client("LangChain `ChatOpenAI`", CHAT, version("langchain-openai"), "test_langchain.py::TestChatOpenAI"),
    _client(
        "LangChain `ChatOpenAI`",
        RESPONSES,
        version("langchain-openai"),
        "test_responses_frameworks.py::test_langchain",
    ),
    _client(
        "LangChain `ChatAnthropic`", MESSAGES, version("langchain-anthropic"), "test_langchain.py::TestChatAnthropic"
    ),
    _client(
        "LangChain `ChatGoogleGenerativeAI`",
        GEMINI,
        _pinned(pypi.LANGCHAIN_GOOGLE),
        "test_google_scripts.py::test_langchains_model_for_google",
    ),
    _client("LlamaIndex `OpenAILike`", CHAT, _pinned(pypi.LLAMA_INDEX), "test_llama_index.py"),
    _client("pydantic-ai `openai-chat:`", CHAT, version("pydantic-ai-slim"), "test_pydantic_ai.py::openai"),
    _client("pydantic-ai `anthropic:`", MESSAGES, version("pydantic-ai-slim"), "test_pydantic_ai.py::anthropic"),
    _client(
        "pydantic-ai `openai:`",
        RESPONSES,
        version("pydantic-ai-slim"),
        "test_responses_frameworks.py::test_pydantic_ai",
    ),
    _client(
        "openai-agents", RESPONSES, _pinned(pypi.OPENAI_AGENTS), "test_responses_frameworks.py::test_the_agents_sdk"
    ),
    _client("LiteLLM `openai/`", CHAT, _pinned(pypi.LITELLM), "test_python_frameworks.py::openai::"),
    _client("LiteLLM `anthropic/`", MESSAGES, _pinned(pypi.LITELLM), "test_python_frameworks.py::anthropic::"),
    _client("instructor", CHAT, _pinned(pypi.INSTRUCTOR), "test_python_frameworks.py::test_instructor"),
    _client("DSPy", CHAT, _pinned(pypi.DSPY), "test_python_frameworks.py::test_dspy"),
)


@dataclass(slots=True)
class Cell:
    """The results of a client's tests over a format; incomplete until all of them have run."""

    expected: int = 0
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def is_known(self) -> bool:
        """Whether every test ran to its end, or could not run."""
        return self.passed + self.failed > 0 and self.passed + self.failed + self.skipped >= self.expected

    def __str__(self) -> str:
        if not self.is_known:
            return ""
        return f"**{self.failed} of {self.failed + self.passed} fail**" if self.failed else str(self.passed)


Seen = Mapping[tuple[Client, str], Cell]


def clients_of(test: str) -> Iterable[Client]:
    """Return whose test this is: `test` is its file and, behind `::`, its name."""
    return (client for client in CLIENTS if any(test.startswith(prefix) for prefix in client.tests))


def rows_of(seen: Seen, date: str) -> dict[str, str]:
    """Return the table's rows of clients that were seen, by what tells them apart."""
    rows = {}
    for client in CLIENTS:
        cells = [seen.get((client, name), Cell()) for name in FORMATS]
        if any(cell.is_known for cell in cells):
            rows[client.row] = f"{client.row} {client.version} | {date} | {' | '.join(map(str, cells))} |"
    return rows


def table_of(rows: Mapping[str, str]) -> str:
    """Return the table that has these rows, in the order of the clients."""
    columns = ["client", "its format", "version", "seen", *FORMATS]
    head = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    return "\n".join([*head, *(rows[client.row] for client in CLIENTS if client.row in rows)])


def merged_into(document: str, rows: Mapping[str, str]) -> str:
    """Return the document with these rows in its table; it keeps the rows of clients that did not run this time."""
    before, rest = document.split(BEGIN)
    old, after = rest.split(END)
    kept = {client.row: line for client in CLIENTS for line in old.splitlines() if line.startswith(client.row)}
    return f"{before}{BEGIN}\n{table_of({**kept, **rows})}\n{END}{after}"


def write_table(path: Path, rows: Mapping[str, str]) -> None:
    """Put the rows into the table of a document."""
    path.write_text(merged_into(path.read_text(), rows))


def summary_of(seen: Seen) -> str:
    """Return how many tests passed, failed and were skipped."""
    total: Counter[str] = Counter()
    for cell in seen.values():
        total.update(passed=cell.passed, failed=cell.failed, skipped=cell.skipped)
    return ", ".join(f"{number} {word}" for word, number in total.items())
