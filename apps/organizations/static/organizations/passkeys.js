// Passkeys on the pages of the admin: asks the browser for one, and sends its answer with the form that the button is in.
//
// A button has its purpose in `data-passkey="create"` or `"get"`, the address of the challenge in `data-options`, and, on
// pages of a signed-in user, the page's action in `data-action`. The response goes into the form's field `passkey`, an
// error into the form's element `data-passkey-error`.
"use strict";

(() => {
  // The admin is in English and has no texts.
  const say = (text) => globalThis.pageLanguage?.say(text) ?? text;
  const decode = (text) =>
    Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (one) => one.charCodeAt(0));
  const encode = (buffer) =>
    btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");

  const read = (options) => {
    const read = { ...options, challenge: decode(options.challenge) };
    if (options.user) read.user = { ...options.user, id: decode(options.user.id) };
    for (const list of ["allowCredentials", "excludeCredentials"]) {
      if (options[list]) read[list] = options[list].map((one) => ({ ...one, id: decode(one.id) }));
    }
    return read;
  };

  const write = (credential) => {
    const response = {};
    for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
      if (credential.response[name]) response[name] = encode(credential.response[name]);
    }
    if (credential.response.getTransports) response.transports = credential.response.getTransports();
    return { id: credential.id, rawId: encode(credential.rawId), type: credential.type, response };
  };

  const ask = async (button, form) => {
    const { options: path, action } = button.dataset;
    const token = form.elements.csrfmiddlewaretoken.value;
    const request = action
      ? { headers: { "X-CSRFToken": token }, body: new URLSearchParams({ action }) }
      : { headers: { "Content-Type": "application/json" }, body: "{}" };
    const response = await fetch(path, { method: "POST", credentials: "same-origin", ...request });
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.message);
    return answer;
  };

  const use = async (button) => {
    const form = button.form;
    const error = form.querySelector("[data-passkey-error]");
    error.hidden = true;
    if (button.dataset.passkey === "create" && !form.reportValidity()) return;
    button.disabled = true;
    try {
      const { ceremonyId, options } = await ask(button, form);
      const credential = await navigator.credentials[button.dataset.passkey]({ publicKey: read(options) });
      form.elements.passkey.value = JSON.stringify({ ceremonyId, credential: write(credential) });
      // Not `requestSubmit`: a passkey is enough where fields for a password are.
      form.submit();
    } catch (problem) {
      error.textContent =
        problem.name === "SecurityError"
          ? say("Passkeys are not for this address: open the page under the address that the gateway is known by.")
          : problem.name === "InvalidStateError"
            ? say("This authenticator has a passkey for you already.")
            : problem.name === "NotAllowedError"
              ? say("No passkey was used.")
              : problem.message;
      error.hidden = false;
      button.disabled = false;
    }
  };

  for (const button of document.querySelectorAll("[data-passkey]")) {
    if (!window.PublicKeyCredential) continue;
    button.hidden = false;
    button.addEventListener("click", () => use(button));
  }
})();
