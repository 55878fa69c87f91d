// Draws stacked bars, a bar a day, into each <div data-chart="id"> from the JSON of that id: {labels, unit, series: [{name,
// values}]}. Colours are the stylesheet's, so that light and dark need no second drawing; the table below has the values.

const HEIGHT = 240, TOP = 8, BOTTOM = 24;
const axisDay = new Intl.DateTimeFormat(globalThis.pageLanguage?.locale, { month: "short", day: "numeric", timeZone: "UTC" });
const wholeDay = new Intl.DateTimeFormat(globalThis.pageLanguage?.locale, { dateStyle: "medium", timeZone: "UTC" });

function shape(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function element(name, className, text = "") {
  const made = document.createElement(name);
  made.className = className;
  made.textContent = text;
  return made;
}

// Format USD to six digits; amounts below 0.001 to four significant digits.
function format(value, unit) {
  if (unit !== "USD") return numbers.rounded(value, 2);
  const least = value === 0 ? 0 : Math.floor(Math.log10(Math.abs(value)));
  return numbers.rounded(value, Math.max(6, 3 - least), "USD");
}

// Ticks from zero to above the highest bar: 1, 2 or 5 times a power of ten apart.
function ticksOf(most, unit) {
  const least = unit === "USD" ? 1e-12 : 1;
  const rough = Math.max((most || 1) / 4, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((one) => one * power >= rough * (1 - 1e-9));
  return Array.from({ length: Math.ceil((most || 1) / step - 1e-9) + 1 }, (_, index) => index * step);
}

function draw(holder) {
  const { labels, unit, series } = JSON.parse(document.getElementById(holder.dataset.chart).textContent);
  const totals = labels.map((_, index) => series.reduce((sum, one) => sum + one.values[index], 0));
  const ticks = ticksOf(Math.max(...totals), unit), top = ticks.at(-1);
  const width = holder.clientWidth, words = ticks.map((tick) => format(tick, unit));
  const left = Math.max(...words.map((text) => text.length)) * 7 + 8;
  if (width < left + labels.length) return;
  const band = (width - left) / labels.length, bar = Math.min(36, band * 0.7);
  const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const svg = shape("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": holder.dataset.title });

  ticks.forEach((tick, index) => {
    svg.append(shape("line", { x1: left, x2: width, y1: y(tick), y2: y(tick), class: "tick" }));
    svg.append(shape("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, words[index]));
  });
  // As many labels as there is room for, counted from the last day.
  const every = Math.max(1, Math.ceil(64 / band));
  labels.forEach((label, index) => {
    const middle = left + band * (index + 0.5);
    let below = 0;
    series.forEach((one, number) => {
      if (!one.values[index]) return;
      const above = below + one.values[index];
      const height = Math.max(y(below) - y(above), 1);
      svg.append(shape("rect", { x: middle - bar / 2, y: y(below) - height, width: bar, height, class: `series-${number}` }));
      below = above;
    });
    if ((labels.length - 1 - index) % every === 0) {
      const where = middle + 24 > width ? { x: width, "text-anchor": "end" } : { x: middle, "text-anchor": "middle" };
      svg.append(shape("text", { ...where, y: HEIGHT - 6 }, axisDay.format(new Date(label))));
    }
  });
  holder.replaceChildren(svg);
  tell(holder, svg, { labels, unit, series, totals, left, band });
}

// The tooltip of a day's bar.
function tell(holder, svg, { labels, unit, series, totals, left, band }) {
  const told = element("div", "chart-told");
  told.hidden = true;
  holder.append(told);
  const marked = shape("rect", { y: TOP, height: HEIGHT - TOP - BOTTOM, width: band, class: "marked", visibility: "hidden" });
  svg.prepend(marked);
  svg.addEventListener("pointerleave", () => { told.hidden = true; marked.setAttribute("visibility", "hidden"); });
  svg.addEventListener("pointermove", (event) => {
    const index = Math.floor((event.offsetX - left) / band);
    if (index < 0 || index >= labels.length) return;
    marked.setAttribute("x", left + band * index);
    marked.setAttribute("visibility", "visible");
    const list = element("dl", "");
    const rows = series.map((one, number) => [one.name, one.values[index], `swatch series-${number}`]).filter((row) => row[1]).reverse();
    if (rows.length !== 1) rows.push(["Total", totals[index], "swatch"]);
    for (const [name, value, swatch] of rows) {
      const term = element("dt", "", name);
      term.prepend(element("span", swatch));
      list.append(term, element("dd", "", format(value, unit)));
    }
    told.replaceChildren(element("strong", "", wholeDay.format(new Date(labels[index]))), list);
    told.hidden = false;
    const room = holder.clientWidth - told.offsetWidth;
    told.style.left = `${Math.max(0, Math.min(room, event.offsetX + (event.offsetX > room - 24 ? -told.offsetWidth - 12 : 12)))}px`;
  });
}

const widths = new Map();
const watch = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (widths.get(target) === target.clientWidth) continue;
    widths.set(target, target.clientWidth);
    draw(target);
  }
});

function start(root) {
  for (const holder of root.querySelectorAll("[data-chart]")) {
    holder.hidden = false;
    watch.observe(holder);
  }
}

start(document);
document.addEventListener("htmx:afterSwap", (event) => start(event.target));
