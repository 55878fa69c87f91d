"""The AI SDK in its default mode, `openai()`, which asks for responses: tools in a loop, streams, structured output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.clients import npm
from tests.clients.gateway import EVERY_FORMAT, Behind, Gateway

pytestmark = [pytest.mark.stack, pytest.mark.timeout(600)]

USUAL: set[str] = set()
OVER = [
    pytest.param(behind, id=behind.format, marks=[] if behind.format in USUAL else [pytest.mark.agents])
    for behind in EVERY_FORMAT
]
PROGRAM = """
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, streamText, Output, stepCountIs, tool } from 'ai';
import { z } from 'zod';

const { URL_, KEY, MODEL } = process.env;
const model = createOpenAI({ baseURL: URL_, apiKey: KEY })(MODEL);
const look = tool({
  description: 'Looks at the weather',
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `${city} is fine`,
});
const plain = await generateText({ model, prompt: 'hello', maxRetries: 0 });
const streamed = streamText({ model, prompt: 'one two three', maxRetries: 0 });
let text = '';
for await (const piece of streamed.textStream) text += piece;
const asked = 'look({"city": "Bern"})';
const loop = await generateText({ model, prompt: asked, tools: { look }, stopWhen: stepCountIs(3), maxRetries: 0 });
const live = streamText({ model, prompt: asked, tools: { look }, stopWhen: stepCountIs(3), maxRetries: 0 });
let said = '';
for await (const piece of live.textStream) said += piece;
const schema = z.object({ city: z.string() });
const form = await generateText({
  model, prompt: "Where is 'Bern'?", output: Output.object({ schema }), maxRetries: 0,
});
console.log(JSON.stringify({
  plain: plain.text, finish: plain.finishReason, tokens: plain.usage.outputTokens, text, loop: loop.text,
  steps: loop.steps.length, said, form: form.output,
}));
"""


@pytest.fixture(scope="session")
def sdk(request: pytest.FixtureRequest) -> Path:
    """The folder with the SDK and the program that runs it."""
    return npm.installed(npm.AI_SDK, request.config)


@pytest.mark.parametrize("behind", OVER)
def test_it_answers_streams_calls_tools_and_keeps_a_form(
    sdk: Path, gateway: Gateway, behind: Behind, tmp_path: Path
) -> None:
    (sdk / "program.mjs").write_text(PROGRAM)
    said = npm.run(
        [sdk / "node_modules/.bin/node", sdk / "program.mjs"],
        home=tmp_path,
        folder=sdk,
        URL_=gateway.openai_url,
        KEY=gateway.key,
        MODEL=behind.model,
    )
    told: dict[str, Any] = json.loads(said.splitlines()[-1])
    assert told.pop("tokens") > 0
    assert told == {
        "plain": "You said: hello",
        "finish": "stop",
        "text": "You said: one two three",
        "loop": "look answered: Bern is fine",
        "steps": 2,
        "said": "look answered: Bern is fine",
        "form": {"city": "Bern"},
    }
