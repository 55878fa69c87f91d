// Google's own client for JavaScript: whole, streamed, a function, a schema, pages of models, a typed error.
import { ApiError, GoogleGenAI } from "@google/genai";

const { GATEWAY_URL: baseUrl, GATEWAY_KEY: apiKey, MODEL: model } = process.env;
const ai = new GoogleGenAI({ apiKey, httpOptions: { baseUrl, headers: { "X-No-Fallback": "true" } } });
const told = {};

const answer = await ai.models.generateContent({ model, contents: "hello" });
told.text = answer.text;
told.finish = answer.candidates[0].finishReason;
told.tokens = answer.usageMetadata.totalTokenCount > 0;

told.streamed = "";
for await (const chunk of await ai.models.generateContentStream({ model, contents: "one two" })) {
  told.streamed += chunk.text ?? "";
}

const config = {
  thinkingConfig: { includeThoughts: true, thinkingBudget: 2000 },
  tools: [
    { functionDeclarations: [{ name: "get_weather", parameters: { type: "OBJECT", properties: { city: { type: "STRING" } } } }] },
  ],
};
const chat = ai.chats.create({ model, config });
const asked = await chat.sendMessage({ message: 'why? get_weather({"city": "Rome"})' });
const [call] = asked.functionCalls;
told.call = [call.name, call.args];
told.thought = asked.candidates[0].content.parts.some((part) => part.thought);
const answered = await chat.sendMessage({
  message: [{ functionResponse: { id: call.id, name: call.name, response: { output: "Sun" } } }],
});
told.answered = answered.text;

const person = await ai.models.generateContent({
  model,
  contents: "who is 'Ada'?",
  config: {
    responseMimeType: "application/json",
    responseSchema: { type: "OBJECT", properties: { name: { type: "STRING" } }, required: ["name"] },
  },
});
told.person = JSON.parse(person.text);

told.counted = (await ai.models.countTokens({ model, contents: "hello" })).totalTokens > 0;
told.model = (await ai.models.get({ model })).name;
let pages = 0;
for await (const _ of await ai.models.list({ config: { pageSize: 20 } })) pages += 1;
told.listed = pages > 50;

try {
  await ai.models.generateContent({ model: "no-such-model", contents: "hi" });
} catch (error) {
  told.error = [error instanceof ApiError, error.status];
}
console.log(JSON.stringify(told));
