// One model's side of the playground: its chat, its answer as it comes, what that used, and why that provider.

export function element(name, properties = {}) {
  return Object.assign(document.createElement(name), properties);
}

export class Lane {
  constructor(place) {
    this.place = place;
    this.messages = [];
    this.find = (name) => place.querySelector(`[data-${name}]`);
  }

  get model() { return this.find("model").value.trim(); }
  set model(name) { this.find("model").value = name; }

  clear() {
    this.messages = [];
    this.find("talk").replaceChildren(element("p", { className: "quiet", textContent: pageLanguage.say("The answer appears here.") }));
    for (const name of ["numbers", "explained"]) this.find(name).hidden = true;
  }

  // Whether the chat ends with a message that has no answer yet.
  get isWaiting() { return this.messages.length > 0 && this.messages.at(-1).role !== "assistant"; }

  // Show the message, send it, and show the answer. Return whether it was answered: only then is it part of the chat.
  async answer(turn, ask, { logs, replayed }) {
    if (!this.messages.length) this.find("talk").replaceChildren();
    if (turn) this.showTurn(turn);
    this.find("explained").hidden = true;
    const reply = new Reply(this);
    const began = performance.now();
    const seen = { first: null };
    let answered = false;
    try {
      const response = await ask();
      // A refused request is not in the log.
      if (response.ok || response.status >= 500) reply.requestId = response.headers.get("x-request-id");
      if (!response.ok) throw new Error(await wordsOf(response));
      if (response.headers.get("content-type").startsWith("text/event-stream")) {
        for await (const data of eventsOf(response.body)) {
          if (data === "[DONE]") continue;
          const chunk = JSON.parse(data);
          if (chunk.error) throw new Error(chunk.error.message);
          if (reply.take(chunk) && seen.first === null) seen.first = performance.now() - began;
        }
      } else {
        reply.takeWhole(await response.json());
      }
      const said = reply.message();
      this.messages.push(...(turn ? [turn] : []), said);
      answered = true;
      if (said.tool_calls) reply.askForResults(said.tool_calls);
    } catch (error) {
      reply.fail(error.name === "AbortError" ? pageLanguage.say("Stopped. The text generated so far is billed.") : error.message);
    }
    reply.end();
    this.showNumbers(reply, seen.first, performance.now() - began, logs, replayed);
    return answered;
  }

  // Go on after a call: what the tools answered becomes a part of the chat of this lane alone.
  async resume(run, lanes) {
    const fields = [...this.find("talk").querySelectorAll("[data-result]")];
    this.messages.push(...fields.map((field) => ({ role: "tool", tool_call_id: field.dataset.result, content: field.value || "done" })));
    for (const field of fields) { field.disabled = true; delete field.dataset.result; }
    this.find("results")?.remove();
    const others = lanes.filter((lane) => lane !== this);
    for (const lane of others) lane.place.hidden = true;
    const running = run(() => null);
    for (const lane of others) lane.place.hidden = false;
    await running;
  }

  showTurn(turn) {
    const place = this.addTurn("You");
    const parts = typeof turn.content === "string" ? [{ text: turn.content }] : turn.content;
    for (const part of parts) {
      place.append(part.image_url ? element("img", { src: part.image_url.url, alt: pageLanguage.say("Attached picture") }) : element("p", { textContent: part.text }));
    }
  }

  addTurn(who) {
    const place = element("article", { className: "turn" });
    place.append(element("h2", { textContent: who }));
    this.find("talk").append(place);
    this.scroll();
    return place;
  }

  scroll() { this.find("talk").scrollTop = this.find("talk").scrollHeight; }

  showNumbers(reply, first, total, logs, replayed) {
    const { usage, metadata } = reply;
    const milliseconds = (value) => (value === null ? "–" : `${numbers.rounded(value, 0)} ms`);
    const rows = [[pageLanguage.say("Time to first token"), milliseconds(first)], [pageLanguage.say("Total time"), milliseconds(total)]];
    if (usage) {
      const tokens = [usage.prompt_tokens ?? usage.input_tokens, usage.completion_tokens ?? usage.output_tokens];
      rows.unshift([pageLanguage.say("Tokens in"), numbers.count(tokens[0])], [pageLanguage.say("Tokens out"), numbers.count(tokens[1])]);
      if (usage.reasoning_tokens) rows.splice(2, 0, ["Reasoning", numbers.count(usage.reasoning_tokens)]);
      if (usage.cost !== undefined && usage.cost !== null) rows.unshift(["Cost", numbers.usd(usage.cost)]);
    }
    if (metadata?.used_provider) rows.push(["Provider", metadata.used_provider]);
    if (metadata?.used_model) rows.push(["Model", metadata.used_model]);
    const list = this.find("numbers");
    list.replaceChildren(...rows.map(([name, value]) => {
      const pair = element("div");
      pair.append(element("dt", { textContent: name }), element("dd", { textContent: value }));
      return pair;
    }));
    if (reply.requestId) {
      const pair = element("div");
      // The answer's id finds its request.
      const id = reply.id?.startsWith("gen-") ? encodeURIComponent(reply.id) : "";
      const isCompared = replayed && id;
      const href = isCompared ? `${logs}/${replayed}?with=${id}` : id ? `${logs}?id=${id}` : logs;
      const link = element("a", { href, textContent: pageLanguage.say(isCompared ? "Logs: compare with the original" : "Logs") });
      link.title = `Request ${reply.requestId}`;
      const value = element("dd");
      value.append(link);
      pair.append(element("dt", { textContent: pageLanguage.say("Recorded in") }), value);
      list.append(pair);
    }
    list.hidden = false;
  }

  async explain(response) {
    const place = this.find("explained");
    place.className = "explained";
    place.hidden = false;
    if (!response.ok) return place.replaceChildren(element("p", { className: "message error", textContent: await wordsOf(response) }));
    const told = await response.json();
    const scores = new Map(told.providerScores.map((one) => [one.providerId, one]));
    const table = element("table");
    const head = element("tr");
    head.append(...["Provider", "Score", "Price per million", "Uptime", "First token"].map((words, index) => element("th", { textContent: pageLanguage.say(words), scope: "col", className: index ? "num" : "" })));
    const rows = told.order.map((one) => {
      const score = scores.get(one.provider) ?? {};
      const row = element("tr");
      const cells = [`${one.provider}${one.mode === "api-keys" ? ` ${pageLanguage.say("(your key)")}` : ""}`, round(score.score), score.price === undefined ? "–" : numbers.usd(score.price), score.uptime === undefined ? "–" : numbers.percent(score.uptime), score.latency ? `${numbers.rounded(score.latency, 0)} ms` : "–"];
      row.append(...cells.map((words, index) => element("td", { textContent: words, className: index ? "num" : "" })));
      return row;
    });
    const thead = element("thead");
    thead.append(head);
    const tbody = element("tbody");
    tbody.append(...rows);
    table.append(element("caption", { textContent: pageLanguage.say("In the order in which they would be tried") }), thead, tbody);
    const wrap = element("div", { className: "table-wrap", tabIndex: 0 });
    wrap.setAttribute("role", "group");
    wrap.setAttribute("aria-label", pageLanguage.say("Providers in order"));
    wrap.append(table);
    const left = told.excluded.map((one) => `${one.provider}: ${one.reason}`);
    place.replaceChildren(
      element("p", { textContent: pageLanguage.say("{provider} would answer with {model} ({reason}). At most {cost} for about {tokens} prompt tokens.", {
        provider: told.used_provider, model: told.used_model, reason: told.selectionReason.replaceAll("-", " "),
        cost: numbers.usd(told.estimate.max_cost_usd), tokens: numbers.count(told.estimate.prompt_tokens),
      }) }),
      wrap,
      ...(left.length ? [element("p", { className: "quiet", textContent: pageLanguage.say("Left out: {providers}", { providers: left.join("; ") }) })] : []),
      ...told.warnings.map((one) => element("p", { className: "quiet", textContent: pageLanguage.say("Changed in the request: {change}", { change: `${one.param}: ${one.reason ?? one.message ?? ""}` }) })),
    );
  }
}

// An answer as it comes.
class Reply {
  constructor(lane) {
    this.lane = lane;
    this.text = "";
    this.reasoning = "";
    this.calls = [];
    this.usage = this.metadata = this.requestId = this.id = null;
    this.place = lane.addTurn(lane.model);
    this.body = element("p");
    this.place.append(this.body);
  }

  // Returns whether there was anything to read.
  take(chunk) {
    this.id ??= chunk.id;
    if (chunk.usage) this.usage = chunk.usage;
    if (chunk.metadata) this.metadata = chunk.metadata;
    const delta = chunk.choices?.[0]?.delta;
    if (!delta) return false;
    this.add(delta);
    return Boolean(delta.content || delta.reasoning || delta.reasoning_content || delta.tool_calls || delta.images);
  }

  takeWhole(answer) {
    this.id = answer.id ?? null;
    this.usage = answer.usage ?? null;
    this.metadata = answer.metadata ?? null;
    for (const one of answer.data ?? []) this.showPicture(one.url ?? `data:image/png;base64,${one.b64_json}`);
    const message = answer.choices?.[0]?.message;
    if (message) this.add({ ...message, tool_calls: message.tool_calls?.map((call, index) => ({ index, ...call })) });
  }

  add(delta) {
    if (delta.content) this.body.textContent = this.text += delta.content;
    const thought = delta.reasoning ?? delta.reasoning_content;
    if (thought) this.showReasoning(thought);
    for (const piece of delta.tool_calls ?? []) this.addCall(piece);
    for (const image of delta.images ?? []) this.showPicture(image.image_url.url);
    this.lane.scroll();
  }

  showReasoning(text) {
    if (!this.thinking) {
      const details = element("details");
      this.thinking = element("p");
      details.append(element("summary", { textContent: pageLanguage.say("Reasoning") }), this.thinking);
      this.body.before(details);
    }
    this.thinking.textContent = this.reasoning += text;
  }

  addCall(piece) {
    const call = (this.calls[piece.index ?? 0] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
    if (!call.place) {
      call.place = element("div", { className: "call" });
      this.place.append(call.place);
    }
    call.id = piece.id ?? call.id;
    call.function.name += piece.function?.name ?? "";
    call.function.arguments += piece.function?.arguments ?? "";
    call.place.replaceChildren(element("strong", { textContent: call.function.name }), element("pre", { textContent: call.function.arguments }));
  }

  showPicture(url) {
    // Only pictures that are in the answer: the page's policy loads nothing from elsewhere.
    if (url.startsWith("data:image/")) this.place.append(element("img", { src: url, alt: pageLanguage.say("Picture that the model made") }));
    else this.place.append(element("p", { textContent: url }));
  }

  askForResults(calls) {
    for (const [index, call] of calls.entries()) {
      const id = `result-${call.id}-${Math.random().toString(36).slice(2)}`;
      const field = element("textarea", { id, rows: 2 });
      field.dataset.result = call.id;
      const label = element("label", { htmlFor: id, textContent: pageLanguage.say("Answer of {tool}", { tool: call.function.name }) });
      const wrap = element("div", { className: "field" });
      wrap.append(label, field);
      this.calls[index].place.append(wrap);
    }
    const send = element("button", { type: "button", className: "button", textContent: pageLanguage.say("Send results") });
    send.dataset.results = "";
    send.addEventListener("click", () => this.place.dispatchEvent(new CustomEvent("results", { bubbles: true, detail: { lane: this.lane } })));
    this.place.append(send);
  }

  message() {
    const calls = this.calls.filter(Boolean).map(({ id, type, function: named }) => ({ id, type, function: named }));
    return { role: "assistant", content: this.text, ...(calls.length ? { tool_calls: calls } : {}) };
  }

  fail(words) { this.place.append(element("p", { className: "message error", textContent: words })); }

  end() {
    if (!this.text) this.body.remove();
    this.lane.scroll();
  }
}

// The data of each server-sent event; comments, which keep a connection alive, are left out.
async function* eventsOf(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
      if (data) yield data;
    }
  }
}

async function wordsOf(response) {
  const text = await response.text();
  try {
    const told = JSON.parse(text);
    return told.error?.message ?? told.message ?? text;
  } catch {
    return pageLanguage.say("The request failed ({status}); reload the page and try again", { status: response.status });
  }
}

function round(value) {
  return value === undefined || value === null ? "–" : numbers.rounded(value, 3);
}
