"use strict";
// The claims: filtered by verdict, sorted by column. Without this script all of them are there, in the paper's order.
const table = document.querySelector("table.claims");
const claims = [...table.tBodies];

const form = document.querySelector(".filters");
function filter() {
  const chosen = new Set([...form.elements.verdict].filter((box) => box.checked).map((box) => box.value));
  for (const claim of claims) claim.hidden = !chosen.has(claim.dataset.verdict);
  const shown = claims.filter((claim) => !claim.hidden).length;
  form.querySelector(".shown").textContent = `${shown} of ${claims.length} claims`;
}
form.hidden = false;
form.addEventListener("change", filter);
form.addEventListener("submit", (event) => event.preventDefault());
filter();

const words = new Intl.Collator("en", { numeric: true });
const headers = [...table.querySelectorAll("th[data-sort]")];
const next = { none: "ascending", ascending: "descending", descending: "none" };
function sort(header) {
  const order = next[header.ariaSort];
  for (const each of headers) each.ariaSort = each === header ? order : "none";
  const key = header.dataset.sort;
  const sign = order === "descending" ? -1 : 1;
  const sorted = [...claims];
  if (order !== "none") sorted.sort((a, b) => sign * words.compare(a.dataset[key], b.dataset[key]));
  table.append(...sorted);
}
for (const header of headers) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = header.textContent;
  header.replaceChildren(button);
  header.ariaSort = "none";
  button.addEventListener("click", () => sort(header));
}
