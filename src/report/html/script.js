"use strict";
// Sorts and filters tables, and unfolds them for print. The page says all it has to without.
(() => {
  const number = (text) => {
    if (text === "NaN") return Infinity;
    const value = parseFloat(text.replace("inf", "Infinity"));
    return Number.isNaN(value) ? -Infinity : value;
  };

  const sort = (table, heading) => {
    const column = heading.cellIndex;
    const down = heading.getAttribute("aria-sort") === "descending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", down ? "ascending" : "descending");
    const isNumber = heading.classList.contains("n");
    const of = (row) => row.cells[column].textContent;
    const compare = (a, b) =>
      isNumber ? number(of(a)) - number(of(b)) || 0 : of(a).localeCompare(of(b), "en", { numeric: true });
    const rows = [...table.tBodies[0].rows].sort((a, b) => (down ? compare(a, b) : compare(b, a)));
    table.tBodies[0].append(...rows);
  };

  const filter = (table, region, name) => {
    const label = document.createElement("label");
    label.className = "filter";
    label.append("Rows with ");
    const input = document.createElement("input");
    input.type = "search";
    input.setAttribute("aria-label", `Rows with, in: ${name}`);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/);
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
    label.append(input);
    region.before(label);
  };

  for (const region of document.querySelectorAll(".scroll")) {
    const table = region.querySelector("table");
    const rows = table.tBodies[0].rows.length;
    if (rows > 1) {
      for (const heading of table.tHead.rows[0].cells) {
        const button = document.createElement("button");
        button.type = "button";
        button.append(...heading.childNodes);
        button.addEventListener("click", () => sort(table, heading));
        heading.append(button);
      }
    }
    if (rows > 8) filter(table, region, table.caption.textContent);
  }

  const folded = () => document.querySelectorAll("details:not([open])");
  let unfolded = [];
  window.addEventListener("beforeprint", () => {
    unfolded = [...folded()];
    for (const details of unfolded) details.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const details of unfolded) details.open = false;
  });
})();
