// The API reference: Swagger UI on this gateway's own document; what authorizes stays when the page is loaded again.
SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#page",
  deepLinking: true,
  docExpansion: "none",
  defaultModelsExpandDepth: 0,
  persistAuthorization: true,
  filter: true,
  tryItOutEnabled: true,
  validatorUrl: null,
});

// Swagger UI knows dark by a class of its own.
const showTheme = () => {
  const chosen = document.documentElement.dataset.theme;
  const isDark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.classList.toggle("dark-mode", isDark);
};
showTheme();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
new MutationObserver(showTheme).observe(document.documentElement, { attributeFilter: ["data-theme"] });
