"""The servers that are measured: each has its port, a way to be asked, and the processes that do its work.

Rivals are installed from their registries into folders of their own under the bench's cache; where one cannot be had,
it says so and is left out.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import requests

from tests.stack.product import PROJECT, Product, descendants, eventually, free_port

PROMPT = "Tell me about the weather in the mountains. " * 20
# Kinds of requests: a whole answer, a streamed one, a vector, as OpenAI's client asks for one, or a whole answer to an
# agent's request: its tools and a long conversation.
Kind = Literal["plain", "stream", "embeddings", "agent"]
KINDS: tuple[Kind, ...] = ("plain", "stream", "embeddings")
# Characters of one result of a tool in an agent's request, its tools, and its turns: 116 KB in all.
_RESULT, _TOOLS, _TURNS = 2_600, 18, 34
LITELLM, PORTKEY = "litellm[proxy]==1.106.2", "@portkey-ai/gateway@1.15.2"


@dataclass(frozen=True, slots=True)
class Subject:
    """A server to be measured: `workers` are the processes whose time and memory count."""

    name: str
    port: int
    workers: list[int]
    model: str = "echo-fast"
    headers: dict[str, str] = field(default_factory=dict)
    product: Product | None = None
    # The model that makes vectors; None where they are not asked for.
    embedder: str | None = None
    # The path below which the API is.
    root: str = "/v1"
    # Whether requests are governed: keys, limits and costs, as far as the server has them; or passed through.
    is_governed: bool = False
    # Bytes of a request's body; by default about 1 KB.
    body_size: int | None = None

    def request(self, kind: Kind) -> bytes:
        """Return the bytes of a request."""
        fields: dict[str, Any]
        if kind == "embeddings":
            path, fields = "embeddings", {"model": self.embedder, "input": [PROMPT], "encoding_format": "base64"}
        else:
            messages = agent_messages() if kind == "agent" else [{"role": "user", "content": PROMPT}]
            path, fields = "chat/completions", {"model": self.model, "messages": messages, "stream": kind == "stream"}
            if kind == "agent":
                fields["tools"] = agent_tools()
        body = json.dumps(fields)
        if self.body_size is not None and kind not in {"embeddings", "agent"}:
            # As much of the prompt as there is room for.
            fields["messages"][0]["content"] = PROMPT[: len(PROMPT) + self.body_size - len(body)]
            body = json.dumps(fields)
        headers = "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        return (
            f"POST {self.root}/{path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n{headers}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        ).encode()


def agent_messages() -> list[dict[str, Any]]:
    """Return the conversation of an agent: its instructions, and turns in which it reads files with a tool."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are an agent that works on code. " * 60},
        {"role": "user", "content": "Find out why the build is slow, and change what you find."},
    ]
    for turn in range(_TURNS):
        call = {"name": "read_file", "arguments": json.dumps({"path": f"src/part_{turn}.py", "offset": turn * 40})}
        lines = (f"{number:>4}  value_{turn}_{number} = compute(part={turn})  # line" for number in range(1, 100))
        messages += [
            {"role": "assistant", "tool_calls": [{"id": f"call_{turn}", "type": "function", "function": call}]},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": "\n".join(lines)[:_RESULT]},
        ]
    return messages


def agent_tools() -> list[dict[str, Any]]:
    """Return the tools of an agent, with their schemas."""
    fields = {name: {"type": "string", "description": f"The {name} to use. " * 6} for name in ("path", "text", "mode")}
    schema = {"type": "object", "properties": fields, "required": ["path"], "additionalProperties": False}
    names = ["read_file", *(f"tool_{number}" for number in range(1, _TOOLS))]
    about = "Does one thing with a file of the project. " * 12
    return [
        {"type": "function", "function": {"name": name, "description": about, "parameters": schema}} for name in names
    ]


@contextmanager
def upstream(milliseconds: float = 0, every: float = 0) -> Iterator[Subject]:
    """Run the fixed upstream, whose answers begin so long after their requests, or whose chunks are so far apart."""
    port = free_port()
    with running([sys.executable, "-m", "bench.upstream", str(port), str(milliseconds), str(every)], port) as process:
        yield Subject("upstream alone", port, [process.pid], embedder="embedder-fast")


@contextmanager
def passthrough(upstream_port: int) -> Iterator[Subject]:
    """Run the gateway that does nothing."""
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "--config", "gateway_project/processes/gunicorn.py"]
    environment = {
        "PORT": str(port),
        "WEB_WORKERS": "1",
        "PASSTHROUGH_URL": f"http://127.0.0.1:{upstream_port}/v1/chat/completions",
    }
    with running([*command, "bench.passthrough:application"], port, environment) as process:
        yield Subject("bare pass-through", port, list(descendants(process.pid))[-1:])


@contextmanager
def gateway(
    upstream_port: int,
    home: Path,
    *,
    workers: int = 1,
    guarded: bool = False,
    settings: dict[str, str] | None = None,
) -> Iterator[Subject]:
    """Run the product with everything on, but for the rate limit that a load test is meant to hit."""
    product = Product(
        home,
        **{
            "RATE_LIMIT_ENTERPRISE": "0",
            "WEB_WORKERS": str(workers),
            "SANDBOX_BASE_URL": f"http://127.0.0.1:{upstream_port}/v1",
            "SANDBOX_API_KEY": "bench",
            **(settings or {}),
        },
    )
    try:
        product.manage("grant_credits", product.demo["organizationId"], "1000000")
        if guarded:
            _guard(product)
        name = "gateway" + (", guardrails on" if guarded else "") + (f", {workers} workers" if workers > 1 else "")
        # gunicorn's youngest processes are its workers.
        pids = product.processes("gunicorn")[-workers:]
        headers = {"Authorization": f"Bearer {product.demo['apiKey']}"}
        yield Subject(
            name, product.port, pids, "sandbox/echo-fast", headers, product, "sandbox/embedder-fast", is_governed=True
        )
    finally:
        product.stop()


def _guard(product: Product) -> None:
    """Put the organization's guardrails in force, all system rules on."""
    headers = {"Authorization": f"Bearer {product.demo['sessionToken']}"}
    described = requests.get(f"{product.url}/guardrails/system-rules", headers=headers, timeout=30)
    described.raise_for_status()
    names = [rule["id"].removeprefix("system:") for rule in described.json()["rules"]]
    answer = requests.put(
        f"{product.url}/guardrails/config/{product.demo['organizationId']}",
        json={"enabled": True, "systemRules": {name: {"enabled": True, "action": "warn"} for name in names}},
        headers=headers,
        timeout=30,
    )
    answer.raise_for_status()


def install_litellm(cache: Path) -> Path:
    """Install LiteLLM unless it is there; return its program. Raises OSError."""
    folder = cache / "litellm"
    program = folder / "bin" / "litellm"
    if not program.exists():
        print("installing LiteLLM …", flush=True)
        run_to_end([sys.executable, "-m", "venv", str(folder)])
        run_to_end([str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", LITELLM])
    return program


@contextmanager
def litellm(upstream_port: int, cache: Path, home: Path) -> Iterator[Subject]:
    """Run LiteLLM's proxy in its minimal set-up, with a master key and no store."""
    program = install_litellm(cache)
    config = home / "litellm.yaml"
    config.write_text(
        "model_list:\n  - model_name: echo-fast\n    litellm_params:\n      model: openai/echo-fast\n"
        f"      api_base: http://127.0.0.1:{upstream_port}/v1\n      api_key: x\n"
        "      input_cost_per_token: 0.000001\n      output_cost_per_token: 0.000002\n"
        "general_settings:\n  master_key: sk-bench\nlitellm_settings:\n  telemetry: false\n"
    )
    port = free_port()
    environment = {"LITELLM_LOG": "ERROR", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "DISABLE_SCHEMA_UPDATE": "true"}
    command = [str(program), "--config", str(config), "--port", str(port), "--host", "127.0.0.1", "--num_workers", "1"]
    with running(command, port, environment, patience=180) as process:
        workers = [process.pid, *descendants(process.pid)]
        headers = {"Authorization": "Bearer sk-bench"}
        yield Subject("LiteLLM (no store)", port, workers, headers=headers, is_governed=True)


def install_portkey(cache: Path) -> tuple[str, Path]:
    """Install Portkey's gateway unless it is there; return Node.js and the program. Raises OSError."""
    folder = cache / "portkey"
    program = folder / "node_modules" / "@portkey-ai" / "gateway" / "build" / "start-server.js"
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise FileNotFoundError("npm is not installed")
    if not program.exists():
        print("installing Portkey …", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        run_to_end([npm, "install", "--silent", "--no-fund", "--no-audit", "--prefix", str(folder), PORTKEY])
    return node, program


@contextmanager
def portkey(upstream_port: int, cache: Path) -> Iterator[Subject]:
    """Run Portkey's gateway, which keeps no state."""
    node, program = install_portkey(cache)
    port = free_port()
    headers = {
        "Authorization": "Bearer x",
        "x-portkey-provider": "openai",
        "x-portkey-custom-host": f"http://127.0.0.1:{upstream_port}/v1",
    }
    environment = {"NODE_ENV": "production", "TRUSTED_CUSTOM_HOSTS": "127.0.0.1"}
    command = [node, str(program), "--headless", f"--port={port}"]
    with running(command, port, environment) as process:
        yield Subject("Portkey (stateless)", port, [process.pid, *descendants(process.pid)], headers=headers)


@contextmanager
def running(
    command: list[str], port: int | None, environment: dict[str, str] | None = None, patience: float = 40
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; it is ready when its port answers, without one at once."""
    with open(os.devnull, "wb") as nowhere:
        process = subprocess.Popen(
            command, cwd=PROJECT, env={**os.environ, **(environment or {})}, stdout=nowhere, stderr=nowhere
        )
    try:
        eventually(lambda: port is None or _answers(port) or process.poll() is not None, patience=patience)
        if process.poll() is not None:
            raise ChildProcessError(f"{command[0]} ended with {process.returncode}")
        time.sleep(1)
        yield process
    finally:
        process.terminate()
        process.wait(30)


def _answers(port: int) -> bool:
    try:
        requests.get(f"http://127.0.0.1:{port}/", timeout=2)
    except requests.RequestException as error:
        return isinstance(error, requests.exceptions.ReadTimeout | requests.exceptions.ChunkedEncodingError)
    return True


def run_to_end(command: list[str]) -> None:
    """Run a program; raise ChildProcessError with its words when it fails."""
    done: Any = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise ChildProcessError(f"{command[0]}: {(done.stderr or done.stdout)[-300:]}")
