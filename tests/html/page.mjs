// What is asked of a page from inside it: each function runs in the browser and returns what is wrong.

/** Every heading has a text, is seen, and is at most one level below the one before. */
export const HEADINGS = () => {
  const wrong = [];
  let level = 0;
  const headings = [...document.querySelectorAll("h1, h2, h3, h4")];
  if (headings.length < 3) wrong.push(`${headings.length} headings`);
  if (document.querySelectorAll("h1").length !== 1) wrong.push("not one h1");
  for (const heading of headings) {
    const own = Number(heading.tagName[1]);
    const { width, height } = heading.getBoundingClientRect();
    if (heading.textContent.trim() === "") wrong.push(`an ${heading.tagName} without a text`);
    else if (width * height === 0) wrong.push(`not seen: ${heading.textContent}`);
    if (own > level + 1) wrong.push(`a level is left out before: ${heading.textContent}`);
    level = own;
  }
  return wrong;
};

/** Every figure shows one drawing with shapes and text, a name, and a table. */
export const FIGURES = () => {
  const wrong = [];
  const figures = [...document.querySelectorAll("figure")];
  if (figures.length === 0) wrong.push("no figure");
  for (const figure of figures) {
    const shown = [...figure.querySelectorAll(":scope > svg")].filter((svg) => svg.getBoundingClientRect().height > 0);
    if (shown.length !== 1) {
      wrong.push(`${figure.id}: ${shown.length} drawings are shown`);
      continue;
    }
    const [svg] = shown;
    const box = svg.getBoundingClientRect();
    const shapes = svg.querySelectorAll("polyline, rect, circle, polygon, line").length;
    const painted = [...svg.querySelectorAll("rect, polyline, circle, polygon")].filter((shape) => {
      const { fill, stroke } = getComputedStyle(shape);
      return fill !== "none" || stroke !== "none";
    });
    if (box.width < 250 || box.height < 30) wrong.push(`${figure.id}: ${box.width} by ${box.height} px`);
    if (shapes < 3 || painted.length < 2) wrong.push(`${figure.id}: ${shapes} shapes`);
    if (svg.querySelectorAll("text").length < 2) wrong.push(`${figure.id}: no text`);
    if (!figure.querySelector("figcaption")?.textContent.trim()) wrong.push(`${figure.id}: no caption`);
    if (!figure.querySelector("table tbody tr")) wrong.push(`${figure.id}: no table`);
  }
  return wrong;
};

/** Labels of a drawing are inside it, and none covers another. */
export const LABELS = () => {
  const wrong = [];
  for (const svg of document.querySelectorAll("figure > svg")) {
    if (svg.getBoundingClientRect().height === 0) continue;
    const { width, height } = svg.viewBox.baseVal;
    const texts = [...svg.querySelectorAll("text")].map((text) => ({ text: text.textContent.trim(), box: text.getBBox() }));
    for (const [number, { text, box }] of texts.entries()) {
      const name = `${svg.parentElement.id}: "${text}"`;
      if (box.x < -1 || box.y < -2 || box.x + box.width > width + 1 || box.y + box.height > height + 2) {
        wrong.push(`${name} is cut off at ${Math.round(box.x)} to ${Math.round(box.x + box.width)} of ${width}`);
      }
      for (const { text: other, box: that } of texts.slice(number + 1)) {
        const across = Math.min(box.x + box.width, that.x + that.width) - Math.max(box.x, that.x);
        const down = Math.min(box.y + box.height, that.y + that.height) - Math.max(box.y, that.y);
        if (across > 1 && down > 4) wrong.push(`${name} covers "${other}"`);
      }
    }
  }
  return wrong;
};

/** Every table has a caption, headings with a scope, and rows. */
export const TABLES = () => {
  const wrong = [];
  const captions = new Set();
  for (const table of document.querySelectorAll("table")) {
    const caption = table.caption?.textContent.trim() ?? "";
    if (caption === "") wrong.push("a table without a caption");
    if (captions.has(caption)) wrong.push(`two tables are called ${caption}`);
    captions.add(caption);
    if (table.tBodies[0].rows.length === 0) wrong.push(`no rows: ${caption}`);
    if ([...table.querySelectorAll("th")].some((heading) => !heading.scope)) wrong.push(`a heading without a scope: ${caption}`);
    const widths = new Set([...table.rows].map((row) => row.cells.length));
    if (widths.size !== 1) wrong.push(`rows of ${[...widths]} cells: ${caption}`);
    if (table.getBoundingClientRect().height === 0) wrong.push(`not seen: ${caption}`);
    const region = table.closest("[role=region]");
    if (region?.tabIndex !== 0 || !region.getAttribute("aria-label")) wrong.push(`no region that takes the focus: ${caption}`);
  }
  return wrong;
};
