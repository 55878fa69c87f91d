// Draws each <canvas data-chart="id"> from the JSON of that id: {labels, unit, kind, stacked, series: [{name, values}]}.

const palette = ["#6d28d9", "#0e7490", "#b45309", "#be185d", "#15803d", "#1d4ed8", "#7c2d12", "#525252"];
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const drawn = new Map();

// USD to a millionth, and what is smaller than a thousandth to four digits that count.
function format(value, unit) {
  if (unit === "USD") {
    const least = value === 0 ? 0 : Math.floor(Math.log10(Math.abs(value)));
    return numbers.rounded(value, Math.max(6, 3 - least), "USD");
  }
  const text = numbers.rounded(value, 2);
  return unit ? `${text} ${unit}` : text;
}

function draw(canvas) {
  const data = JSON.parse(document.getElementById(canvas.dataset.chart).textContent);
  drawn.get(canvas)?.destroy();
  const kind = data.kind ?? "bar";
  const datasets = data.series.map((series, index) => ({
    label: series.name, data: series.values, backgroundColor: palette[index % palette.length],
    borderColor: palette[index % palette.length], borderWidth: kind === "line" ? 2 : 0, pointRadius: 0, maxBarThickness: 36,
  }));
  drawn.set(canvas, new Chart(canvas, {
    type: kind,
    data: { labels: data.labels, datasets },
    options: {
      animation: false, responsive: true, maintainAspectRatio: false, interaction: { mode: "index", intersect: false },
      scales: {
        x: { stacked: data.stacked ?? false, grid: { display: false }, ticks: { color: style("--quiet"), maxRotation: 0, autoSkip: true } },
        y: { stacked: data.stacked ?? false, beginAtZero: true, grid: { color: style("--line") }, border: { display: false },
             ticks: { color: style("--quiet"), callback: (value) => format(value, data.unit) } },
      },
      plugins: {
        legend: { display: datasets.length > 1, position: "bottom", labels: { color: style("--text"), boxWidth: 12, boxHeight: 12 } },
        tooltip: { callbacks: { label: (item) => `${item.dataset.label}: ${format(item.parsed.y, data.unit)}` } },
      },
    },
  }));
}

function drawAll() {
  for (const canvas of document.querySelectorAll("canvas[data-chart]")) draw(canvas);
}

drawAll();
document.addEventListener("htmx:afterSwap", drawAll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
new MutationObserver(drawAll).observe(document.documentElement, { attributeFilter: ["data-theme"] });
