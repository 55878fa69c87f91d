// Vercel's AI SDK with its provider for Google: a loop of tools, a stream, a structured answer, a typed error.
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { APICallError, Output, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const { GATEWAY_URL: url, GATEWAY_KEY: apiKey, MODEL: name } = process.env;
const google = createGoogleGenerativeAI({
  baseURL: `${url}/v1beta`,
  apiKey,
  headers: { "X-No-Fallback": "true" },
});
const model = google(name);
const told = {};

const weather = tool({
  description: "Tell the weather",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `Sun in ${city}`,
});
const common = {
  model,
  tools: { get_weather: weather },
  stopWhen: stepCountIs(4),
  maxRetries: 0,
  providerOptions: { google: { thinkingConfig: { includeThoughts: true, thinkingBudget: 2000 } } },
};
const prompt = 'why? get_weather({"city": "Rome"})';

const whole = await generateText({ ...common, prompt });
told.text = whole.text;
told.steps = whole.steps.length;
told.thought = whole.steps[0].reasoningText?.startsWith("thought-1") ?? false;

const stream = streamText({ ...common, prompt });
told.streamed = await stream.text;
told.tokens = (await stream.totalUsage).totalTokens > 0;

const structured = await generateText({
  model,
  maxRetries: 0,
  output: Output.object({ schema: z.object({ name: z.string() }) }),
  prompt: "who is 'Ada'?",
});
told.person = structured.output;

try {
  await generateText({ model: google("no-such-model"), prompt: "hi", maxRetries: 0 });
} catch (error) {
  told.error = [APICallError.isInstance(error), error.statusCode];
}
console.log(JSON.stringify(told));
