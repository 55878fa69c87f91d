// The operators' pages: charts whose words can be read on light and on dark ground.
(() => {
  const dark = () => document.documentElement.classList.contains("dark");
  const paint = () => {
    Chart.defaults.color = dark() ? "#d1d5db" : "#4b5563";
    Chart.defaults.borderColor = dark() ? "#374151" : "#e5e7eb";
    for (const chart of Object.values(Chart.instances)) {
      chart.options.color = Chart.defaults.color;
      for (const scale of Object.values(chart.options.scales || {})) {
        scale.ticks = { ...scale.ticks, color: Chart.defaults.color };
        scale.title = { ...scale.title, color: Chart.defaults.color };
      }
      chart.update("none");
    }
  };
  if (typeof Chart === "undefined") return;
  // Before the theme draws its charts, and whenever light turns dark.
  window.addEventListener("load", paint, { capture: true });
  new MutationObserver(paint).observe(document.documentElement, { attributes: true, attributeFilter: ["class"] });
})();
