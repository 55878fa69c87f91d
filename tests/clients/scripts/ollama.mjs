// Ollama's own client for JavaScript: chats, whole and streamed, a tool, a schema, a prompt, models, an error.
import { Ollama } from "ollama";

const { GATEWAY_URL: host, GATEWAY_KEY: key, MODEL: model } = process.env;
const client = new Ollama({ host, headers: { Authorization: `Bearer ${key}` } });
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const schema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const tools = [{ type: "function", function: { name: "look", description: "Looks at the weather", parameters } }];
const user = (content) => ({ role: "user", content });
const told = {};

const answer = await client.chat({ model, messages: [user("hello")] });
told.text = answer.message.content;
told.finish = answer.done_reason;
told.tokens = answer.prompt_eval_count > 0 && answer.eval_count > 0 && answer.total_duration > 0;

told.streamed = "";
for await (const part of await client.chat({ model, messages: [user("one two")], stream: true })) {
  told.streamed += part.message.content;
  told.done = part.done;
}

const messages = [user('look({"city": "Rome"})')];
const called = await client.chat({ model, messages, tools });
const [call] = called.message.tool_calls;
const result = { role: "tool", tool_name: call.function.name, content: `${call.function.arguments.city} is fine` };
told.answered = (await client.chat({ model, messages: [...messages, called.message, result], tools })).message.content;

const form = await client.chat({ model, messages: [user("who is 'Ada'?")], format: schema });
told.person = JSON.parse(form.message.content);
told.prompted = (await client.generate({ model, prompt: "hello" })).response;
told.listed = (await client.list()).models.some((one) => one.model === model.split("/").at(-1));
try {
  await client.chat({ model: "no-such-model", messages: [user("hi")] });
} catch (error) {
  told.error = [error.name, error.status_code];
}
console.log(JSON.stringify(told));
