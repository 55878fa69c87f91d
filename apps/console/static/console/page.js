// Shared behavior of all pages: local times, copying, menus, confirmations, single submission of forms.

const moment = new Intl.DateTimeFormat(globalThis.pageLanguage?.locale, {
  year: "numeric", month: "short", day: "numeric", hour: "numeric", minute: "2-digit", second: "2-digit", timeZoneName: "short",
});

// The server reads and writes fields of date and time in the reader's zone; without scripts they are in UTC.
const zone = moment.resolvedOptions().timeZone, ZONE = "gateway-timezone";
if (/^[\w+\/-]{1,64}$/.test(zone) && !document.cookie.split("; ").includes(`${ZONE}=${zone}`)) {
  const secure = location.protocol === "https:" ? "; secure" : "";
  document.cookie = `${ZONE}=${zone}; path=/app/; max-age=31536000; samesite=lax${secure}`;
}

function showMoments(root) {
  for (const time of root.querySelectorAll("time[datetime]:not([data-shown])")) {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) continue;
    time.title = time.textContent;
    time.textContent = moment.format(at);
    time.dataset.shown = "";
  }
}

// Pages that are not served over HTTPS have no clipboard of their own, and a browser may refuse it: the older way is
// tried then, and what it leaves is the text, selected.
async function copy(button) {
  const source = document.getElementById(button.dataset.copy);
  let copied = true;
  try {
    await navigator.clipboard.writeText(source.value ?? source.textContent);
  } catch {
    if (source.select) source.select();
    else getSelection().selectAllChildren(source);
    copied = document.execCommand("copy");
  }
  // The visually hidden text after the label names the copied item for screen readers.
  const words = button.firstChild;
  button.dataset.words ??= words.textContent;
  words.textContent = told.textContent = pageLanguage.say(copied ? "Copied" : "Selected: press Ctrl+C");
  setTimeout(() => {
    words.textContent = button.dataset.words;
    told.textContent = "";
  }, copied ? 1500 : 4000);
}

// Announce changes without a page load to screen readers.
const told = document.createElement("div");
told.className = "visually-hidden";
told.setAttribute("role", "status");
document.body.append(told);

function switchTheme() {
  const isDark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const theme = isDark ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
  try { localStorage.setItem("theme", theme); } catch { /* Storage is off. */ }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.dataset.copy) copy(button);
  else if (button && "themeSwitch" in button.dataset) switchTheme();
  else if (button && "menu" in button.dataset) {
    const isOpen = document.body.classList.toggle("menu-open");
    button.setAttribute("aria-expanded", String(isOpen));
  } else if (button?.dataset.opens) document.getElementById(button.dataset.opens).showModal();
  else if (button && "closes" in button.dataset) button.closest("dialog").close();
  for (const open of document.querySelectorAll("details.switcher[open]")) {
    if (!open.contains(event.target)) open.open = false;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const open of document.querySelectorAll("details.switcher[open]")) {
    open.open = false;
    open.querySelector("summary").focus();
  }
});

// A second click sends nothing; the server would do it once all the same.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.sent !== undefined && !form.hasAttribute("hx-post")) event.preventDefault();
  if (form.method === "post") form.dataset.sent = "";
});
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});

// A refused form: the first wrong field may be far down on the page, and so may be an error of no single
// field, unless the page itself says where to begin.
const wrong = document.querySelector("[aria-invalid=true]");
(wrong ?? (document.querySelector("[autofocus]") ? null : document.querySelector("[data-wrong]")))?.focus();

for (const hidden of document.querySelectorAll("[data-menu][hidden], [data-needs-script][hidden]")) hidden.hidden = false;
showMoments(document);
document.addEventListener("htmx:afterSwap", (event) => showMoments(event.target));
