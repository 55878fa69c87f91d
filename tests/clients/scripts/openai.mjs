// OpenAI's own client for JavaScript: chats and responses, whole and streamed, a tool, a schema, models, a typed error.
import OpenAI from "openai";

const { GATEWAY_URL: url, GATEWAY_KEY: apiKey, MODEL: model, FORMAT: format } = process.env;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"], additionalProperties: false };
const schema = { type: "object", properties: { name: { type: "string" } }, required: ["name"], additionalProperties: false };
const look = { name: "look", description: "Looks at the weather", parameters };
const asked = 'look({"city": "Rome"})';
const told = {};

if (format === "chat") {
  const chat = (fields) => client.chat.completions.create({ model, ...fields });
  const user = (content) => ({ role: "user", content });
  told.text = (await chat({ messages: [user("hello")] })).choices[0].message.content;
  told.streamed = "";
  const stream = await chat({ messages: [user("one two")], stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) {
    told.streamed += chunk.choices[0]?.delta?.content ?? "";
    if (chunk.usage) told.tokens = chunk.usage.total_tokens > 0;
  }
  const runner = client.chat.completions.runTools({
    model,
    messages: [user(asked)],
    tools: [{ type: "function", function: { ...look, parse: JSON.parse, function: ({ city }) => `${city} is fine` } }],
  });
  told.answered = await runner.finalContent();
  const form = { type: "json_schema", json_schema: { name: "person", strict: true, schema } };
  const parsed = await client.chat.completions.parse({ model, messages: [user("who is 'Ada'?")], response_format: form });
  told.person = parsed.choices[0].message.parsed.name;
} else {
  const respond = (fields) => client.responses.create({ model, store: false, ...fields });
  told.text = (await respond({ input: "hello" })).output_text;
  const stream = client.responses.stream({ model, store: false, input: "one two" });
  const final = await stream.finalResponse();
  told.streamed = final.output_text;
  told.tokens = final.usage.total_tokens > 0;
  const tools = [{ type: "function", strict: true, ...look }];
  const first = await respond({ input: asked, tools });
  const call = first.output.find((item) => item.type === "function_call");
  const result = { type: "function_call_output", call_id: call.call_id, output: `${JSON.parse(call.arguments).city} is fine` };
  const input = [{ role: "user", content: asked }, ...first.output, result];
  told.answered = (await respond({ input, tools })).output_text;
  const text = { format: { type: "json_schema", name: "person", strict: true, schema } };
  told.person = (await client.responses.parse({ model, store: false, input: "who is 'Ada'?", text })).output_parsed.name;
}

told.listed = (await client.models.list()).data.some((one) => one.id === model.split("/").at(-1));
try {
  await client.chat.completions.create({ model: "no-such-model", messages: [{ role: "user", content: "hi" }] });
} catch (error) {
  told.error = [error instanceof OpenAI.BadRequestError, error.code];
}
console.log(JSON.stringify(told));
