// The theme's comboboxes have no name that a reader could say: they get that of their field, whenever they are made.
// So do the signs beside lists to choose from, whose name says what the sign is for.
(() => {
  const nameThem = () => {
    for (const part of document.querySelectorAll(".select2-container [aria-labelledby]")) {
      const field = part.closest(".select2-container").previousElementSibling;
      const label = field?.id && document.querySelector(`label[for="${CSS.escape(field.id)}"]`);
      part.removeAttribute("aria-labelledby");
      part.setAttribute("aria-label", label ? label.innerText.replace(/\*$/, "").trim() : field?.name || "Choice");
      const shown = part.querySelector("[role=textbox]");
      if (shown) shown.setAttribute("aria-label", part.getAttribute("aria-label"));
    }
    for (const sign of document.querySelectorAll(".help-tooltip[aria-label]:not([role])")) sign.setAttribute("role", "img");
  };
  new MutationObserver(nameThem).observe(document.documentElement, { childList: true, subtree: true });
})();
