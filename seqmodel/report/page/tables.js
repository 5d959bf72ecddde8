"use strict";

/* Tables are sorted by a click on a heading, and show what is searched for in their section. */

const SERIES = 3; /* a section with at least this many can be searched */
const SPENT = { h: 3600, min: 60, s: 1 };

/* A cell's number (for a time, its seconds) or its text, after any mark. */
function value(cell) {
  const mark = cell.querySelector(".key")?.textContent ?? "";
  const text = cell.textContent.slice(mark.length).replaceAll(",", "");
  const times = [...text.matchAll(/([\d.]+) (h|min|s)\b/g)];
  if (times.length) return times.reduce((sum, [, count, unit]) => sum + count * SPENT[unit], 0);
  const number = parseFloat(text);
  return cell.matches("th") || Number.isNaN(number) ? text : number;
}

/* Sort the rows by the heading that has a direction; rows only there for comparison stay below. */
function sort(table) {
  const by = [...table.tHead.rows[0].cells].findIndex((head) => head.ariaSort);
  if (by < 0) return;
  const sign = table.tHead.rows[0].cells[by].ariaSort === "ascending" ? 1 : -1;
  const muted = (row) => row.matches(".muted");
  const order = (one, other) => {
    const [a, b] = [one, other].map((row) => value(row.cells[by]));
    if (muted(one) || muted(other)) return muted(one) - muted(other);
    if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
    return sign * (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
  };
  table.tBodies[0].append(...[...table.tBodies[0].rows].sort(order));
}

for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  for (const head of heads) {
    const button = Object.assign(document.createElement("button"), { type: "button" });
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const direction = head.ariaSort === "ascending" ? "descending" : "ascending";
      for (const other of heads) other.ariaSort = null;
      head.ariaSort = direction;
      sort(table);
    });
  }
}

/* Show the rows that match a section's search, by name or by what stands below it, and are not
   switched off in a chart's legend; and draw the section's charts. */
function show(section) {
  const sought = section.querySelector("[type=search]")?.value.toLowerCase() ?? "";
  const about = Object.fromEntries([...section.querySelectorAll("tr[data-series]:has(small)")].map(
    (row) => [row.dataset.series, row.querySelector("small").textContent]));
  for (const one of section.querySelectorAll("tr[data-series], figure[data-series]")) {
    const { series } = one.dataset;
    const name = one.querySelector("th, figcaption span").textContent;
    const legend = [...(one.closest(".chart")?.querySelectorAll(".entry") ?? [])];
    const off = legend.some((entry) => entry.ariaPressed === "false" && entry.value === series);
    one.hidden = off || !`${name} ${about[series] ?? ""}`.toLowerCase().includes(sought);
  }
  section.querySelectorAll(".chart").forEach(draw);
}

for (const section of document.querySelectorAll("section")) {
  const rows = [...section.querySelectorAll("tr[data-series]")];
  if (new Set(rows.map((row) => row.dataset.series)).size < SERIES) continue;
  const input = Object.assign(document.createElement("input"), { type: "search" });
  input.ariaLabel = input.placeholder = "Show only runs with…";
  input.addEventListener("input", () => show(section));
  section.querySelector("h3").before(input);
}
