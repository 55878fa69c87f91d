// A page of the API reference: Swagger UI on a tag's part of the document; what authorizes stays from page to page.
SwaggerUIBundle({
  url: document.querySelector("#page").dataset.document,
  dom_id: "#page",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: -1,
  persistAuthorization: true,
  tryItOutEnabled: true,
  validatorUrl: null,
});

// Swagger UI leaves some controls without an accessible name and headings at the wrong level.
const NAMES = {
  "#servers": "Server",
  ".opblock-body select.content-type": "Media type",
  ".opblock-body textarea": "Request body",
  ".close-modal": "Close",
};
const LEVELS = { ".opblock-section-header h4": 2, ".headers__title": 3, ".modal-ux-header h3": 2, ".auth-container h4": 3 };
// Its `main` begins below these.
const REGIONS = { ".information-container": "About" };
const nameThem = () => {
  for (const [selector, name] of Object.entries(NAMES)) {
    for (const one of document.querySelectorAll(`#page ${selector}:not([aria-label])`)) one.setAttribute("aria-label", name);
  }
  for (const [selector, level] of Object.entries(LEVELS)) {
    for (const one of document.querySelectorAll(`#page ${selector}:not([aria-level])`)) one.setAttribute("aria-level", level);
  }
  for (const [selector, name] of Object.entries(REGIONS)) {
    for (const one of document.querySelectorAll(`#page ${selector}:not([role])`)) {
      one.setAttribute("role", "region");
      one.setAttribute("aria-label", name);
    }
  }
  // A link in a button is reached twice; the button opens the operation, whose address the browser shows then.
  for (const one of document.querySelectorAll("#page .opblock-summary-control a[href]")) one.removeAttribute("href");
  for (const one of document.querySelectorAll("#page .modal-ux:not([role])")) {
    one.setAttribute("role", "dialog");
    one.setAttribute("aria-label", "Authorizations");
  }
  // Voice control needs the visible label in the accessible name.
  for (const one of document.querySelectorAll("#page .auth-btn-wrapper [aria-label]")) one.removeAttribute("aria-label");
  // Scrollable areas also scroll with the keyboard.
  for (const one of document.querySelectorAll("#page .microlight:not([tabindex])")) one.setAttribute("tabindex", "0");
};
new MutationObserver(nameThem).observe(document.querySelector("#page"), { childList: true, subtree: true });

// Swagger UI knows dark by a class of its own.
const showTheme = () => {
  const chosen = document.documentElement.dataset.theme;
  const isDark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.classList.toggle("dark-mode", isDark);
};
showTheme();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
new MutationObserver(showTheme).observe(document.documentElement, { attributeFilter: ["data-theme"] });
