// Makes tabs of a list of sections, <div data-tabs> with headings [data-tab]; without scripts they stand one below the other.

for (const group of document.querySelectorAll("[data-tabs]")) {
  const panels = [...group.children];
  const list = document.createElement("div");
  list.setAttribute("role", "tablist");
  const tabs = panels.map((panel, index) => {
    const heading = panel.querySelector("[data-tab]");
    const tab = document.createElement("button");
    tab.type = "button";
    tab.setAttribute("role", "tab");
    tab.id = `${heading.id}-tab`;
    tab.textContent = heading.textContent;
    heading.hidden = true;
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    panel.id ||= `${heading.id}-panel`;
    tab.setAttribute("aria-controls", panel.id);
    tab.addEventListener("click", () => select(index));
    list.append(tab);
    return tab;
  });
  const select = (chosen) => {
    tabs.forEach((tab, index) => {
      tab.setAttribute("aria-selected", String(index === chosen));
      tab.tabIndex = index === chosen ? 0 : -1;
      panels[index].hidden = index !== chosen;
    });
  };
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = (tabs.indexOf(document.activeElement) + step + tabs.length) % tabs.length;
    select(next);
    tabs[next].focus();
  });
  group.prepend(list);
  select(0);
}
