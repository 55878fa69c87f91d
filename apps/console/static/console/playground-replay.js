// A logged request in the playground: its chat in every lane, and its settings. Nothing is sent.

import { element } from "./playground-lane.js";

export function replay(form, lanes) {
  const logged = JSON.parse(document.getElementById("replayed").textContent);
  const find = (name) => form.querySelector(`[data-${name}]`);
  form.dataset.replayed = logged.log;
  find("system").value = logged.system;
  if (logged.temperature !== null) find("temperature").value = logged.temperature;
  if (logged.maxTokens !== null) find("max-tokens").value = logged.maxTokens;
  if (logged.effort) find("effort").value = logged.effort;
  find("stream").checked = logged.stream;
  if (logged.tools) find("tools").value = JSON.stringify(logged.tools, null, 2);
  for (const lane of lanes) {
    lane.messages = [...logged.messages];
    lane.find("talk").replaceChildren();
    for (const message of logged.messages) show(lane, message);
  }
}

function show(lane, message) {
  const place = lane.addTurn(message.role === "user" ? "You" : message.role);
  const parts = typeof message.content === "string" ? [{ text: message.content }] : message.content ?? [];
  for (const part of parts) {
    // Only pictures that are in the message: the page's policy loads nothing from elsewhere.
    const isPicture = part.image_url?.url?.startsWith("data:image/");
    place.append(isPicture ? element("img", { src: part.image_url.url, alt: pageLanguage.say("Attached picture") }) : element("p", { textContent: part.text ?? JSON.stringify(part) }));
  }
  for (const { function: called } of message.tool_calls ?? []) {
    const call = element("div", { className: "call" });
    call.append(element("strong", { textContent: called?.name ?? "" }), element("pre", { textContent: called?.arguments ?? "" }));
    place.append(call);
  }
}
