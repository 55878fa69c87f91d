"""Clients of other gateways, unchanged: OpenRouter's SDKs for JavaScript and Python, and LiteLLM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.clients import npm, pypi
from tests.clients.gateway import Gateway
from tests.stack.product import eventually

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

IN_JAVASCRIPT = """
import { OpenRouter } from "@openrouter/sdk";
const once = { strategy: "none" };
const client = new OpenRouter({ apiKey: process.env.KEY, serverURL: process.env.URL, retryConfig: once });
const asked = {
  model: "no/such-model", models: ["sandbox/echo"], messages: [{ role: "user", content: "hello" }],
  provider: { order: ["sandbox"], dataCollection: "allow" },
};
const answer = await client.chat.send({ chatRequest: asked });
let streamed = "";
for await (const chunk of await client.chat.send({ chatRequest: { ...asked, stream: true } })) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
}
const key = await client.apiKeys.getCurrentKeyMetadata();
const credits = await client.credits.getCredits();
console.log(JSON.stringify({
  id: answer.id, text: answer.choices[0].message.content, streamed, cost: answer.usage.cost,
  label: key.data.label, credits: credits.data.totalCredits,
}));
"""
OF_GENERATION = """
import { OpenRouter } from "@openrouter/sdk";
const once = { strategy: "none" };
const client = new OpenRouter({ apiKey: process.env.KEY, serverURL: process.env.URL, retryConfig: once });
try {
  const told = await client.generations.getGeneration({ id: process.env.ID });
  console.log(JSON.stringify({ provider: told.data.providerName, cost: told.data.totalCost }));
} catch (error) {
  if (error.statusCode !== 404) throw error;
  console.log("null");
}
"""
IN_PYTHON = """
import json, os
from openrouter import OpenRouter
with OpenRouter(api_key=os.environ["KEY"], server_url=os.environ["URL"]) as client:
    asked = dict(model="no/such-model", models=["sandbox/echo"], messages=[{"role": "user", "content": "hello"}],
                 provider={"order": ["sandbox"]})
    answer = client.chat.send(**asked)
    print(json.dumps({"text": answer.choices[0].message.content, "cost": answer.usage.cost}))
"""
OF_LITELLM = """
import json, os, litellm
litellm.suppress_debug_info = True
said = {"api_base": os.environ["URL"], "api_key": os.environ["KEY"], "messages": [{"role": "user", "content": "hello"}]}
own = {"fallbacks": ["sandbox/echo"], "tags": ["prod"], "num_retries": 1, "timeout": 30}
answer = litellm.completion(model="openai/no/such-model", extra_body=own, **said)
pieces = litellm.completion(model="openai/sandbox/echo", stream=True, **said)
streamed = "".join(piece.choices[0].delta.content or "" for piece in pieces)
print(json.dumps({"text": answer.choices[0].message.content, "streamed": streamed}))
"""


def module(folder: Path, name: str, text: str) -> Path:
    """Return a program beside the package that it imports."""
    path = folder / name
    path.write_text(text)
    return path


def test_openrouters_sdk_for_javascript_chats_and_asks_about_itself(
    gateway: Gateway, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folder = npm.installed(npm.OPENROUTER_SDK, request.config)
    key = gateway.new_key("openrouter sdk")
    ours = {"KEY": key.token, "URL": gateway.openai_url}
    program = module(folder, "chats.mjs", IN_JAVASCRIPT)
    told = json.loads(npm.run(["node", str(program)], home=tmp_path, folder=folder, **ours))
    assert told["text"] == told["streamed"] != ""
    assert told["cost"] > 0
    assert told["credits"] == 100
    assert told["label"].startswith("gw_")
    program = module(folder, "generation.mjs", OF_GENERATION)

    def found() -> bool:
        printed = npm.run(["node", str(program)], home=tmp_path, folder=folder, ID=told["id"], **ours)
        generation = json.loads(printed)
        return generation == {"provider": "sandbox", "cost": told["cost"]}

    eventually(found)


@pytest.mark.long
def test_openrouters_sdk_for_python_chats(gateway: Gateway, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder = pypi.installed(pypi.OPENROUTER, request.config)
    told = json.loads(pypi.run(folder, IN_PYTHON, home=tmp_path, KEY=gateway.key, URL=gateway.openai_url))
    assert told["text"]
    assert told["cost"] > 0


@pytest.mark.agents
def test_litellm_chats_with_its_own_fields(gateway: Gateway, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folder = pypi.installed(pypi.LITELLM, request.config)
    told = json.loads(pypi.run(folder, OF_LITELLM, home=tmp_path, KEY=gateway.key, URL=gateway.openai_url))
    assert told["text"] == told["streamed"] != ""
