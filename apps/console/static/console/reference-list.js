// The list of operations: finds those that have every word, and leads addresses of the one page of before to today's.
const find = document.querySelector("#find");
const found = document.querySelector("#found");
const parts = document.querySelector(".parts");
const rows = [...document.querySelectorAll("[data-operation]")].map((row) => {
  const section = row.closest("[data-section]");
  return { row, text: `${row.textContent} ${section.querySelector("h2").textContent}`.toLowerCase() };
});

const show = () => {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const { row, text } of rows) {
    row.hidden = !words.every((word) => text.includes(word));
    count += row.hidden ? 0 : 1;
  }
  for (const section of document.querySelectorAll("[data-section]")) {
    section.hidden = !section.querySelector("[data-operation]:not([hidden])");
  }
  parts.hidden = words.length > 0;
  found.textContent = words.length === 0 ? "" : count === 1 ? "1 operation" : `${count} operations`;
};
find.addEventListener("input", show);
// Browsers restore typed text.
show();

const lead = () => {
  if (!location.hash.startsWith("#/")) return;
  const wanted = decodeURI(location.hash);
  const links = [...document.querySelectorAll("[data-operation] a")];
  const link = links.find((one) => decodeURI(one.hash) === wanted) ?? links.find((one) => decodeURI(one.hash).startsWith(`${wanted}/`));
  if (link) location.replace(link.href);
};
addEventListener("hashchange", lead);
lead();
