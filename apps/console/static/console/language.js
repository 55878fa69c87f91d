// The reader's language: the locale in which scripts write numbers and times, and the texts of scripts.
globalThis.pageLanguage = (() => {
  const page = document.documentElement.lang || "en", base = page.split("-")[0];
  // The browser's variant of the page's language, such as de-CH. English pages follow the browser.
  const own = navigator.languages?.find((one) => one.split("-")[0] === base);
  const locale = base === "en" ? undefined : (own ?? page);
  let texts = null;

  // A text in the page's language, with values for its braces.
  function say(english, values = {}) {
    texts ??= JSON.parse(document.getElementById("script-texts")?.textContent ?? "{}");
    return (texts[english] ?? english).replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
  }

  return { locale, say };
})();
