// The playground: reads the form, has one or two models asked, and keeps each one's chat.

import { Lane, element } from "./playground-lane.js";
import { snippet } from "./playground-code.js";

const form = document.getElementById("playground");
// Characters of all pictures of a message together, as they are sent.
const MAX_PICTURES = 7_000_000;
const TOOLS = [{ type: "function", function: { name: "get_weather", description: "Tell the weather in a city",
  parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] } } }];

function start() {
  const find = (name) => form.querySelector(`[data-${name}]`);
  const lanes = [...form.querySelectorAll("[data-lane]")].map((place) => new Lane(place));
  const dialog = document.getElementById("code");
  let pictures = [];
  let running = null;
  let language = "curl";
  let shownLane = lanes[0];

  const featureWords = JSON.parse(document.getElementById("feature-words").textContent);
  const featuresOf = (option) => (option.dataset.features ?? "").split(" ").filter(Boolean).map((place) => featureWords[place]).join(", ");
  const shown = () => lanes.filter((lane) => !lane.place.hidden);

  function about() {
    const efforts = new Set();
    for (const lane of shown()) {
      const option = optionOf(lane.model);
      const parts = option ? [numbers.inText(option.label), option.dataset.context && pageLanguage.say("{number} tokens of context", { number: numbers.count(option.dataset.context) }), featuresOf(option)] : [];
      lane.place.querySelector("[data-about]").textContent = option ? parts.filter(Boolean).join(" · ") : lane.model ? pageLanguage.say("Not in the list; asked for as it is written") : "";
      for (const effort of (option?.dataset.efforts ?? "").split(",").filter(Boolean)) efforts.add(effort);
    }
    const select = find("effort");
    const before = select.value;
    select.replaceChildren(new Option(pageLanguage.say("model's own"), ""), ...[...efforts].map((effort) => new Option(effort, effort)));
    select.value = efforts.has(before) ? before : "";
    find("effort-field").hidden = efforts.size === 0;
  }

  function tools() {
    const text = find("tools").value.trim();
    if (!text) return null;
    let read;
    try { read = JSON.parse(text); } catch (error) { throw new Error(pageLanguage.say("Tools are not valid JSON: {problem}", { problem: error.message })); }
    if (!Array.isArray(read)) throw new Error(pageLanguage.say("Tools must be a list"));
    return read;
  }

  // The request body of a lane: its chat and the typed message; without a message, the last request.
  function bodyFor(lane, turn) {
    const option = optionOf(lane.model);
    const chat = turn ? [...lane.messages, turn] : withoutLastAnswer(lane.messages);
    if (option?.dataset.mode === "image_generation") return { model: lane.model, prompt: textOf(chat.at(-1)) };
    const system = find("system").value.trim();
    const body = { model: lane.model, messages: [...(system ? [{ role: "system", content: system }] : []), ...chat] };
    if (find("temperature").value !== "") body.temperature = Number(find("temperature").value);
    if (find("max-tokens").value !== "") body.max_completion_tokens = Number(find("max-tokens").value);
    if (option?.dataset.efforts && option.dataset.efforts.split(",").includes(find("effort").value)) body.reasoning_effort = find("effort").value;
    const given = tools();
    if (given) body.tools = given;
    if (option && "draws" in option.dataset) body.modalities = ["text", "image"];
    if (find("stream").checked) Object.assign(body, { stream: true, stream_options: { include_usage: true } });
    return body;
  }

  function written() {
    const text = find("message").value;
    if (!pictures.length) return text.trim() ? { role: "user", content: text } : null;
    return { role: "user", content: [...(text.trim() ? [{ type: "text", text }] : []),
      ...pictures.map((url) => ({ type: "image_url", image_url: { url } }))] };
  }

  const where = (asked) => `${form.dataset.asks}${asked}?project=${encodeURIComponent(find("project").value)}`;
  const kindOf = (lane) => (optionOf(lane.model)?.dataset.mode === "image_generation" ? "images" : "chat");

  async function post(asked, body, signal) {
    const answer = await fetch(where(asked), {
      method: "POST", credentials: "same-origin", signal, body: JSON.stringify(body),
      headers: { "Content-Type": "application/json", Accept: "application/json, text/event-stream", "X-CSRFToken": form.elements.csrfmiddlewaretoken.value },
    });
    // A visitor whose session ended is sent to the sign-in.
    if (answer.redirected) location.reload();
    return answer;
  }

  async function run(turnOf) {
    problem("");
    let asked;
    try {
      asked = shown().map((lane) => [lane, bodyFor(lane, turnOf(lane)), turnOf(lane)]);
      if (asked.some(([lane]) => !lane.model)) throw new Error(pageLanguage.say("Choose a model first"));
    } catch (error) { return problem(error.message); }
    running = new AbortController();
    working(true);
    const signal = running.signal;
    const answered = await Promise.all(asked.map(([lane, body, turn]) => lane.answer(turn, () => post(kindOf(lane), body, signal), form.dataset)));
    running = null;
    working(false);
    return answered.some(Boolean);
  }

  function working(is) {
    find("send").disabled = is;
    find("stop").hidden = !is;
    form.setAttribute("aria-busy", String(is));
  }

  function problem(words) {
    find("problem").textContent = words;
    find("problem").hidden = !words;
  }

  function showPictures() {
    find("pictures").replaceChildren(...pictures.map((url, index) => {
      const remove = element("button", { type: "button", className: "button quiet", textContent: pageLanguage.say("Remove") });
      remove.setAttribute("aria-label", pageLanguage.say("Remove picture {number}", { number: index + 1 }));
      remove.addEventListener("click", () => { pictures.splice(index, 1); showPictures(); });
      const item = element("li");
      item.append(element("img", { src: url, alt: pageLanguage.say("Picture {number}", { number: index + 1 }) }), remove);
      return item;
    }));
  }

  function showCode() {
    let body;
    try {
      const turn = written() ?? (shownLane.messages.length ? null : { role: "user", content: "Hello!" });
      body = bodyFor(shownLane, turn);
    } catch (error) { return problem(error.message); }
    const path = kindOf(shownLane) === "images" ? "/v1/images/generations" : "/v1/chat/completions";
    document.getElementById("code-text").textContent = snippet(language, form.dataset.baseUrl + path, body);
    for (const button of dialog.querySelectorAll("[data-language]")) button.setAttribute("aria-pressed", String(button.dataset.language === language));
    if (!dialog.open) dialog.showModal();
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) return;
    const turn = written();
    // Without a message, a chat that waits for an answer is sent as it is: a logged request, or one that failed.
    if (!turn && lanes[0].isWaiting) return run(() => null);
    if (!turn) return problem(pageLanguage.say("Write a message first"));
    const before = [find("message").value, pictures];
    find("message").value = "";
    pictures = [];
    showPictures();
    // A message without an answer is not part of the chat: it can be edited and sent again.
    if (!(await run(() => turn)) && !written()) {
      [find("message").value, pictures] = before;
      showPictures();
    }
  });
  form.addEventListener("input", (event) => { if (event.target.matches("[data-model]")) about(); });
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.target.matches("input")) event.preventDefault();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  form.addEventListener("results", (event) => { if (!running) event.detail.lane.resume(run, shown()); });
  find("stop").addEventListener("click", () => running?.abort());
  find("beside").addEventListener("click", (event) => {
    const [first, second] = lanes;
    second.place.hidden = !second.place.hidden;
    event.target.setAttribute("aria-pressed", String(!second.place.hidden));
    if (!second.place.hidden && !second.model) second.model = first.model;
    if (!second.place.hidden && !form.dataset.replayed) second.clear();
    about();
  });
  find("tools-example").addEventListener("click", () => { find("tools").value = JSON.stringify(TOOLS, null, 2); });
  find("picture").addEventListener("change", async (event) => {
    const read = await Promise.all([...event.target.files].map(asDataUrl));
    event.target.value = "";
    if ([...pictures, ...read].reduce((sum, url) => sum + url.length, 0) > MAX_PICTURES) return problem(pageLanguage.say("These pictures are too large: the limit is 5 MB together"));
    problem("");
    pictures.push(...read);
    showPictures();
  });
  document.querySelector("[data-clear]").addEventListener("click", () => { running?.abort(); delete form.dataset.replayed; for (const lane of lanes) lane.clear(); problem(""); });
  for (const lane of lanes) {
    lane.place.querySelector("[data-code]").addEventListener("click", () => { shownLane = lane; showCode(); });
    lane.place.querySelector("[data-why]").addEventListener("click", async () => {
      try {
        const turn = written() ?? (lane.messages.length ? null : { role: "user", content: "Hello!" });
        if (kindOf(lane) === "images") throw new Error(pageLanguage.say("Only chats are explained"));
        const { stream, stream_options, ...body } = bodyFor(lane, turn);
        lane.explain(await post("explain", body));
      } catch (error) { problem(error.message); }
    });
  }
  dialog.addEventListener("click", (event) => {
    if (event.target.dataset.language) { language = event.target.dataset.language; showCode(); }
  });
  find("beside").hidden = false;
  if (lanes[1].model) find("beside").click();
  about();
  if (document.getElementById("replayed")) import("./playground-replay.js").then(({ replay }) => replay(form, lanes));
}

// The model's entry in the list, also when the name has a provider prefix.
function optionOf(model) {
  const options = [...document.getElementById("models").options];
  return options.find((option) => option.value === model) ?? options.find((option) => option.value === model.slice(model.indexOf("/") + 1));
}

function withoutLastAnswer(messages) {
  return messages.at(-1)?.role === "assistant" ? messages.slice(0, -1) : messages;
}

function textOf(turn) {
  if (!turn) return "";
  return typeof turn.content === "string" ? turn.content : turn.content.filter((part) => part.text).map((part) => part.text).join("\n");
}

function asDataUrl(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => done(reader.result));
    reader.addEventListener("error", () => failed(reader.error));
    reader.readAsDataURL(file);
  });
}

if (form) start();
