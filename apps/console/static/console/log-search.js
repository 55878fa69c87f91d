// Suggestions below a search box: <input data-suggestions-from="address"> beside [data-suggestions]. Without scripts the
// page that the form leads to has them.

const PAUSE = 250;

for (const input of document.querySelectorAll("[data-suggestions-from]")) suggest(input);

function suggest(input) {
  const holder = input.form.querySelector("[data-suggestions]");
  let timer = 0, request = null;

  async function ask() {
    request?.abort();
    const text = input.value.trim();
    if (!text) {
      holder.replaceChildren();
      return;
    }
    request = new AbortController();
    const address = new URL(input.dataset.suggestionsFrom, location.href);
    address.searchParams.set("q", text);
    try {
      const answer = await fetch(address, { signal: request.signal });
      // A session that has ended leads to the sign-in.
      if (!answer.ok || answer.redirected) return;
      const part = new DOMParser().parseFromString(await answer.text(), "text/html");
      holder.replaceChildren(...part.body.children);
    } catch { /* Aborted by further typing, or offline: the form still works. */ }
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(ask, PAUSE);
  });
  input.form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") holder.replaceChildren();
  });
}
