// Numbers in the reader's locale: every <data data-number="USD|percent|"> of a page, with the digits of its value; and
// `numbers`, for scripts that write their own. The server's English text stays where scripts are off.
globalThis.numbers = (() => {
  const formats = new Map();

  function format(unit, digits) {
    const key = `${unit} ${digits}`;
    if (!formats.has(key)) {
      const style = unit === "USD" ? { style: "currency", currency: "USD" } : unit === "percent" ? { style: "unit", unit } : {};
      formats.set(key, new Intl.NumberFormat(globalThis.pageLanguage?.locale, { ...style, minimumFractionDigits: digits, maximumFractionDigits: digits }));
    }
    return formats.get(key);
  }

  // Write a decimal text with all its digits; USD with two at least.
  function write(text, unit = "") {
    const digits = Math.min((text.split(".")[1] ?? "").length, 20);
    return format(unit, unit === "USD" ? Math.max(digits, 2) : digits).format(text);
  }

  // The decimal text of a number, to the ledger's twelve digits and never with an exponent.
  const plain = (number) => Number(number).toFixed(12).replace(/\.?0+$/, "");

  // A sign before a number stays. The page's styles write each number from left to right (base.css), for which marks of
  // direction within it would be in the way.
  function show(root) {
    for (const data of root.querySelectorAll("data[data-number]:not([data-shown])")) {
      const sign = /^[<>+\u2212]/.exec(data.textContent)?.[0] ?? "";
      data.textContent = sign + write(data.value, data.dataset.number).replace(/[\u061c\u200e\u200f]/g, "");
      data.dataset.shown = "";
    }
  }

  const start = () => {
    show(document);
    document.addEventListener("htmx:afterSwap", (event) => show(event.target));
  };
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();

  return {
    write,
    count: (number) => write(plain(number)),
    usd: (number) => write(plain(number), "USD"),
    // A figure to so many digits after the point, without zeros at its end.
    rounded: (number, digits, unit = "") => write(plain(Number(number).toFixed(digits)), unit),
    percent: (number) => write(plain(Number(number).toFixed(number < 1 || (number > 99 && number < 100) ? 2 : 1)), "percent"),
    // Write the amounts ($0.15) of a text.
    inText: (text) => text.replace(/\$(\d+(?:\.\d+)?)/g, (_, amount) => write(amount, "USD")),
  };
})();
