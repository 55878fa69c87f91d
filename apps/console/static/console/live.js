// Live updates: <div data-live="address of a stream"> shows a link that loads the page again, with the number of requests
// that the log has more than the page. A hidden tab closes its stream; the switch stays as the reader left it.

const KEY = "live", FAILURES = 3, LATER = 60_000, LONGEST = 15 * 60_000;

for (const holder of document.querySelectorAll("[data-live]")) follow(holder);

function follow(holder) {
  const button = holder.querySelector("[data-live-switch]"), link = holder.querySelector("[data-live-link]");
  let source = null, total = 0, before = 0, newest = "", failures = 0, hiddenAt = 0, timer = 0;
  let isOn = true;
  try { isOn = localStorage.getItem(KEY) !== "off"; } catch { /* Storage is off. */ }

  function show(text) {
    link.textContent = text;
    link.hidden = !text;
  }

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
    holder.dataset.state = isOn ? "paused" : "off";
  }

  function open() {
    if (source || !isOn || document.hidden) return;
    const address = new URL(holder.dataset.live, location.href);
    if (newest) address.searchParams.set("newest", newest);
    source = new EventSource(address);
    source.addEventListener("open", () => {
      // The next stream counts from the last row that this page knows of.
      before = total;
      failures = 0;
      holder.dataset.state = "live";
    });
    source.addEventListener("requests", (event) => {
      newest = event.lastEventId;
      total = before + JSON.parse(event.data).count;
      show(total === 1 ? pageLanguage.say("1 new request") : pageLanguage.say("{number} new requests", { number: numbers.count(total) }));
    });
    source.addEventListener("error", () => {
      holder.dataset.state = "paused";
      // While the browser itself tries again, there is nothing to do.
      if (source?.readyState !== EventSource.CLOSED) return;
      close();
      failures += 1;
      if (failures < FAILURES) timer = setTimeout(open, LATER);
      else show(pageLanguage.say("Live updates stopped; reload the page"));
    });
  }

  button.addEventListener("click", () => {
    isOn = !isOn;
    try { localStorage.setItem(KEY, isOn ? "on" : "off"); } catch { /* Storage is off. */ }
    button.setAttribute("aria-pressed", String(isOn));
    failures = 0;
    close();
    open();
  });
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      hiddenAt = Date.now();
      close();
      return;
    }
    // The stream counts the requests of some minutes only.
    if (isOn && Date.now() - hiddenAt > LONGEST) show(pageLanguage.say("Load new requests"));
    open();
  });
  // A page that the browser keeps for its back button must not hold a connection.
  addEventListener("pagehide", close);
  addEventListener("pageshow", open);
  button.setAttribute("aria-pressed", String(isOn));
  holder.dataset.state = isOn ? "paused" : "off";
  holder.hidden = false;
  open();
}
