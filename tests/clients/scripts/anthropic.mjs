// Anthropic's own client for JavaScript: whole, streamed, a loop of tools, counted tokens, models, a typed error.
import Anthropic from "@anthropic-ai/sdk";

const { GATEWAY_URL: baseURL, GATEWAY_KEY: apiKey, MODEL: model } = process.env;
const client = new Anthropic({ baseURL, apiKey, maxRetries: 0 });
const ask = (content, fields) => ({ model, max_tokens: 400, messages: [{ role: "user", content }], ...fields });
const text = (message) => message.content.filter((block) => block.type === "text").map((block) => block.text).join("");
const told = {};

told.text = text(await client.messages.create(ask("hello")));
const stream = client.messages.stream(ask("one two"));
told.streamed = "";
stream.on("text", (piece) => (told.streamed += piece));
const final = await stream.finalMessage();
told.finish = final.stop_reason;
told.tokens = final.usage.output_tokens > 0;

const look = {
  name: "look",
  description: "Looks at the weather",
  input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
  run: ({ city }) => `${city} is fine`,
  parse: (input) => input,
};
told.answered = text(await client.beta.messages.toolRunner(ask('look({"city": "Rome"})', { tools: [look] })));
told.counted = (await client.messages.countTokens({ model, messages: ask("hello").messages })).input_tokens > 0;
let models = 0;
for await (const _ of client.models.list({ limit: 20 })) models += 1;
told.listed = models > 20;
try {
  await client.messages.create({ ...ask("hi"), model: "no-such-model" });
} catch (error) {
  told.error = [error instanceof Anthropic.APIError, error.status];
}
console.log(JSON.stringify(told));
