"""Examples of the documents: every block of code that README and docs show, with its language."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from gateway_project.configuration.data_directory import PROJECT

DOCUMENTS = sorted(
    [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *PROJECT.glob("docs/*.md"), *PROJECT.glob("docs/clients/*.md")]
)
_FENCE = re.compile(r"```(\w*)$")
# Commands within a sentence that a reader is meant to type.
_INLINE = re.compile(r"`((?:curl http|[A-Z]+=\$\()[^`]+)`")
_SHELL = re.compile(
    r"(?:export|curl|claude|codex|gemini|qwen|aider|cline|docker|kubectl|python3|pipx|uv|ssh-keygen|useradd) "
    r"|script/|\./|\.venv/|~/|/opt/|[A-Z_]+="
)
_TOML, _YAML = re.compile(r"\[\w+|\w+ = [\"\d]"), re.compile(r"(?:- )?\w+: ")


@dataclass(frozen=True)
class Example:
    """A block of code: its document, the line on which it begins, and its language (`text` for none of those)."""

    document: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """Return what a list names it by: its document and its first line."""
        return f"{self.document}: {self.text.splitlines()[0]}"

    def problem(self) -> str | None:
        """Return why it is no text of its language; None when it is one."""
        try:
            match self.language:
                case "python":
                    ast.parse(self.text)
                case "json":
                    for value in [self.text] if _is_one_value(self.text) else self.text.splitlines():
                        json.loads(value)
                case "toml":
                    tomllib.loads(self.text)
                case "yaml":
                    yaml.safe_load(self.text)
                case "sh":
                    done = subprocess.run(
                        ["/bin/sh", "-n"], input=self.text, capture_output=True, text=True, check=False
                    )
                    return done.stderr or None
        except (SyntaxError, ValueError, yaml.YAMLError) as error:
            return str(error)
        return None


def examples(document: Path) -> list[Example]:
    """Return the examples of a document in its order."""
    name = document.relative_to(PROJECT).as_posix()
    return [Example(name, line, language, text) for line, language, text in _blocks(document.read_text())]


def operations_commands(name: str) -> str:
    """Return the commands of the block of docs/operations.md that begins with the comment `# NAME`."""
    text = (PROJECT / "docs" / "operations.md").read_text()
    (found,) = re.findall(rf"```sh\n# {re.escape(name)}\n(.*?)```", text, re.DOTALL)
    return str(found)


def _blocks(document: str) -> Iterator[tuple[int, str, str]]:
    lines = document.splitlines()
    at = 0
    while at < len(lines):
        begin = at
        at += 1
        if fence := _FENCE.match(lines[begin]):
            while not lines[at].startswith("```"):
                at += 1
            yield begin + 1, fence[1] or "text", "\n".join(lines[begin + 1 : at])
            at += 1
        elif lines[begin].startswith("    ") and (begin == 0 or not lines[begin - 1]):
            while at < len(lines) and (not lines[at] or lines[at].startswith("    ")):
                at += 1
            text = textwrap.dedent("\n".join(lines[begin:at])).strip()
            yield begin + 1, _language(text), text
        else:
            for command in _INLINE.findall(lines[begin]):
                yield begin + 1, "sh", command


def _language(text: str) -> str:
    first = text.splitlines()[0]
    if _SHELL.match(first):
        return "sh"
    if first.startswith("{"):
        return "json"
    if _TOML.match(first):
        return "toml"
    if _YAML.match(first):
        return "yaml"
    try:
        ast.parse(text)
    except SyntaxError:
        return "text"
    return "python"


def _is_one_value(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# Examples that no test runs, by their place (a beginning of it), and why. They are parsed, and the scripts, options and
# commands that they name are there (`tests/test_documented_examples.py`).
_SUITE, _LONG = "the tests themselves", "takes from minutes to hours"
_AGENT = "a program from npm or elsewhere: script/clients runs it"
_LIBRARY = "a library that is not among the development tools: script/clients runs it"
_MACHINE = "changes the machine, or needs other ones"
_HTTPS = "AWS's clients send keys over HTTPS only: tests/clients/test_boto3.py runs both ways"
_RELEASE = "needs a release, a key, or the network"
NOT_RUN = {
    "CONTRIBUTING.md: script/test": _SUITE,
    "README.md: script/server": "the product under test is this",
    "docs/adding-a-pii-kind.md: script/test": _SUITE,
    "docs/adding-a-provider.md: ./manage.py catalog propose": "reads lists on the internet: see tests/catalog",
    "docs/adding-a-setting.md: .venv/bin/python": "writes a document of the project",
    "docs/adding-an-endpoint.md: Route(": "a line of a table",
    "docs/bedrock-format.md: export AWS": _HTTPS,
    "docs/bedrock-format.md: import boto3": _HTTPS,
    "docs/bedrock-format.md: from botocore": _HTTPS,
    "docs/clients/README.md: script/clients": _LONG,
    "docs/clients/agents.md: export ANTHROPIC_BASE_URL": _AGENT,
    "docs/clients/agents.md: export GOOGLE_GEMINI_BASE_URL": _AGENT,
    "docs/clients/agents.md: export OPENAI_BASE_URL": _AGENT,
    "docs/clients/agents.md: export OPENAI_API_BASE": _AGENT,
    "docs/clients/agents.md: cline auth": _AGENT,
    "docs/clients/sdks.md: from langchain_google_genai": _LIBRARY,
    "docs/clients/sdks.md: from llama_index": _LIBRARY,
    "docs/clients/sdks.md: from agents": _LIBRARY,
    "docs/clients/sdks.md: import boto3": _HTTPS,
    "docs/clients/sdks.md: import litellm": _LIBRARY,
    "docs/clients/sdks.md: import instructor": _LIBRARY,
    "docs/clients/sdks.md: import dspy": _LIBRARY,
    "docs/configuration-as-code.md: .venv/bin/python -m gateway_project config plan": "needs a gateway of the reader's",
    "docs/deployment.md: script/wheel": _LONG,
    "docs/deployment.md: python3 -m venv": _MACHINE,
    "docs/deployment.md: useradd": _MACHINE,
    "docs/deployment.md: docker": _MACHINE,
    "docs/deployment.md: DATABASE_URL=": _MACHINE,
    "docs/deployment.md: REDIS_URL=": _MACHINE,
    "docs/deployment.md: kubectl": _MACHINE,
    "docs/guardrails.md: script/": _LONG,
    "docs/mcp-servers.md: KEY=$(./manage.py demo --key)": _AGENT,
    "docs/mcp-servers.md: from openai": "needs the server of tools: tests/clients/test_server_tools.py asks one",
    "docs/mcp-servers.md: from anthropic": "needs the server of tools: tests/clients/test_server_tools.py asks one",
    "docs/mcp.md: claude": _AGENT,
    "docs/oauth.md: claude": _AGENT,
    "docs/oauth.md: curl": "needs a code, for which a person consents in a browser: tests/oauth has the exchange",
    "docs/operations.md: # backup": "tests/stack/test_restore.py runs it",
    "docs/operations.md: # restore": "tests/stack/test_restore.py runs it",
    "docs/operations.md: # encrypted backup": "tests/stack/test_restore.py runs it",
    "docs/operations.md: # decryption": "tests/stack/test_restore.py runs it",
    "docs/operations.md: # archiving": "tests/stack/test_point_in_time.py runs it",
    "docs/operations.md: # base backup": "tests/stack/test_point_in_time.py runs it",
    "docs/operations.md: # recovery": "tests/stack/test_point_in_time.py runs it",
    "docs/performance.md: script/bench": _LONG,
    "docs/releasing.md: ": _RELEASE,
}


def why_not_run(example: Example) -> str | None:
    """Return why no test runs an example; None for one that is run."""
    return next((why for place, why in NOT_RUN.items() if example.place.startswith(place)), None)
