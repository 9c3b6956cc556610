// Opens a report in a headless browser and looks at what a reader would: a line per check, exit 1 if one fails.
//
//   node look.mjs PAGE.html --ids verdicts,depth --shots DIR     the checks, and pictures
//   node look.mjs PAGE.html --controls                           spoilt copies: each has to be noticed
//
// CHROMIUM names the browser.

import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

import axe from "axe-core";
import { chromium } from "playwright-core";

import { FIGURES, HEADINGS, LABELS, TABLES } from "./page.mjs";

const WIDTHS = [1280, 390];
const SCHEMES = ["light", "dark"];
const HEIGHT = 900;

/** What was looked at, and what is wrong with it: nothing where it is right. */
class Findings {
  constructor(loud) {
    this.loud = loud;
    this.failed = [];
  }

  check(name, wrong) {
    const faults = [wrong].flat().filter(Boolean);
    if (faults.length > 0) this.failed.push(name);
    if (!this.loud) return;
    console.log(`${faults.length > 0 ? "FAIL" : "ok  "}  ${name}`);
    for (const fault of faults.slice(0, 10)) console.log(`        ${fault}`);
  }
}

/** Opens a page and keeps what it says and asks for. */
async function open(browser, file, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: HEIGHT }, ...options });
  const page = await context.newPage();
  const said = [];
  const asked = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) said.push(message.text());
  });
  page.on("pageerror", (error) => said.push(String(error)));
  page.on("dialog", (dialog) => {
    said.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => asked.push(request.url()));
  const url = pathToFileURL(file).href;
  await page.goto(url, { waitUntil: "load" });
  return { context, page, said, asked: () => asked.filter((other) => other !== url) };
}

/** Faults that the accessibility checker calls serious or critical. */
async function inaccessible(page) {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  const grave = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  return grave.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes[0].html.slice(0, 120)} (${nodes.length})`);
}

const unfold = (page) =>
  page.evaluate(() => document.querySelectorAll("details").forEach((details) => (details.open = true)));

async function lookAt(browser, file, { ids, shots }, findings, width, scheme) {
  const at = `${width} px, ${scheme}`;
  const options = { viewport: { width, height: HEIGHT }, colorScheme: scheme };
  const { context, page, said, asked } = await open(browser, file, options);
  const overflow = async () => {
    const whole = await page.evaluate(() => document.documentElement.scrollWidth);
    return whole > width && `the page is ${whole} px wide`;
  };
  findings.check(`${at}: every heading has a text`, await page.evaluate(HEADINGS));
  const present = await page.evaluate(() => [...document.querySelectorAll("main > section")].map(({ id }) => id));
  findings.check(
    `${at}: every section is there`,
    ids.filter((id) => !present.includes(id)).map((id) => `no section ${id}`),
  );
  findings.check(`${at}: every figure is drawn`, await page.evaluate(FIGURES));
  findings.check(`${at}: no label is cut off or covers another`, await page.evaluate(LABELS));
  findings.check(`${at}: the page is as wide as its window`, await overflow());
  if (shots) await page.screenshot({ path: join(shots, `${width}-${scheme}.png`), fullPage: true });
  findings.check(`${at}: no serious accessibility fault`, await inaccessible(page));
  await unfold(page);
  findings.check(`${at}: every table is there`, await page.evaluate(TABLES));
  findings.check(`${at}: the same with all tables unfolded`, [await overflow(), ...(await inaccessible(page))]);
  findings.check(`${at}: nothing on the console`, said);
  findings.check(`${at}: no request leaves the file`, asked());
  await context.close();
}

/** Without a script the same is there to be read. */
async function lookWithoutScript(browser, file, findings) {
  const count = (page) =>
    page.locator("h1, h2, h3, figure svg.wide, table, table tr").count();
  const { context: scripted, page: whole } = await open(browser, file);
  const expected = await count(whole);
  await scripted.close();
  const { context, page, said } = await open(browser, file, { javaScriptEnabled: false });
  const found = await count(page);
  findings.check("without a script: the same headings, figures and rows", found !== expected && `${found}, not ${expected}`);
  const details = page.locator("details").first();
  await details.locator("summary").first().click();
  const table = details.locator("table, pre").first();
  findings.check("without a script: a table unfolds", !(await table.isVisible()) && "it does not");
  findings.check("without a script: nothing on the console", said);
  await context.close();
}

/** On paper all tables are unfolded and the colours are the light ones, with or without a script. */
async function lookInPrint(browser, file, shots, findings) {
  for (const javaScriptEnabled of [true, false]) {
    const at = javaScriptEnabled ? "print" : "print, without a script";
    const { context, page } = await open(browser, file, { colorScheme: "dark", javaScriptEnabled });
    await page.emulateMedia({ media: "print", colorScheme: "dark" });
    const folded = [];
    for (const table of await page.locator("table").all()) {
      const box = await table.boundingBox();
      if (!box || box.height < 10) folded.push(await table.locator("caption").textContent());
    }
    findings.check(`${at}: every table is shown`, folded);
    if (javaScriptEnabled) {
      const back = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      findings.check(`${at}: on white`, back !== "rgb(255, 255, 255)" && back);
    }
    const path = shots && javaScriptEnabled ? join(shots, "print.pdf") : undefined;
    const pdf = await page.pdf({ path, format: "A4", margin: { top: "12mm", bottom: "12mm", left: "12mm", right: "12mm" } });
    findings.check(`${at}: a document`, pdf.length < 10_000 && `${pdf.length} bytes`);
    await context.close();
  }
}

/** The keyboard reaches the results, the tables that scroll, and what sorts and filters them. */
async function lookByKey(browser, file, findings) {
  const { context, page, said } = await open(browser, file, { viewport: { width: 390, height: HEIGHT } });
  await page.keyboard.press("Tab");
  const skip = page.locator(":focus");
  findings.check("keys: the first stop skips to the results", (await skip.getAttribute("href")) !== "#main" && "it does not");
  await page.keyboard.press("Enter");
  findings.check("keys: and goes there", (await page.locator(":focus").getAttribute("id")) !== "main" && "it does not");
  await unfold(page);
  const region = page.locator(".scroll").filter({ has: page.locator("tbody tr:nth-child(9)") }).first();
  await region.focus();
  findings.check("keys: a wide table takes the focus", !(await region.evaluate((it) => it === document.activeElement)) && "it does not");
  const sort = region.locator("thead th.n button").last();
  const column = await sort.evaluate((button) => button.parentElement.cellIndex);
  const values = () =>
    region.evaluate((it, column) => [...it.querySelectorAll("tbody tr")].map((row) => parseFloat(row.cells[column].textContent)), column);
  await sort.focus();
  await page.keyboard.press("Enter");
  const sorted = (await values()).filter((value) => !Number.isNaN(value));
  const isSorted = sorted.every((value, at) => at === 0 || sorted[at - 1] >= value);
  findings.check("keys: a heading sorts its table", !isSorted && `${sorted.slice(0, 8)}`);
  const filter = page.locator(".filter input").first();
  await filter.fill("no row has this");
  const left = await filter.evaluate((input) => input.parentElement.nextElementSibling.querySelectorAll("tbody tr:not([hidden])").length);
  findings.check("keys: a filter hides what it does not match", left !== 0 && `${left} rows are left`);
  findings.check("keys: nothing on the console", said);
  await context.close();
}

async function lookAll(browser, file, options, findings) {
  for (const width of WIDTHS) {
    for (const scheme of SCHEMES) await lookAt(browser, file, options, findings, width, scheme);
  }
  await lookWithoutScript(browser, file, findings);
  await lookInPrint(browser, file, options.shots, findings);
  await lookByKey(browser, file, findings);
}

/** Copies with one thing wrong each: what is done to them, and which check has to notice. */
const CONTROLS = [
  ["an image from another host", "no request leaves the file", (page) => withoutPolicy(page).replace("</main>", '<img alt="x" src="http://127.0.0.1:9/x.png"></main>')],
  ["a request that the policy stops", "nothing on the console", (page) => page.replace("</main>", '<img alt="x" src="http://127.0.0.1:9/x.png"></main>')],
  ["a script that fails", "nothing on the console", (page) => withoutPolicy(page).replace("</main>", "<script>nothing()</script></main>")],
  ["a script that the policy does not know", "nothing on the console", (page) => page.replace("</main>", "<script>1</script></main>")],
  ["a figure without its drawing", "every figure is drawn", (page) => page.replace(/(<figure[^>]*>.*?<\/desc>).*?<\/svg>/s, "$1</svg>")],
  ["a section that is missing", "every section is there", (page) => page.replace('<section id="worst"', '<section id="other"')],
  ["a heading without a text", "every heading has a text", (page) => page.replace(/(<h2[^>]*>)[^<]*/, "$1")],
  ["a table without rows", "every table is there", (page) => page.replace(/<tbody>.*?<\/tbody>/s, "<tbody></tbody>")],
  ["text that can hardly be seen", "no serious accessibility fault", (page) => restyled(page, "p { color: #cfcfcf !important; background: #fff }")],
  ["a figure without a name", "no serious accessibility fault", (page) => page.replace(/<title id="[^"]*wide[^"]*">[^<]*<\/title>/, "").replace(/<desc id="[^"]*wide[^"]*">[^<]*<\/desc>/, "")],
  ["a page wider than a phone", "the page is as wide as its window", (page) => restyled(page, "main { min-width: 700px }")],
  ["a label that is cut off", "no label is cut off or covers another", (page) => page.replace(/(<text x=")\d+(" y="\d+" dy="0.5ex" text-anchor="start")/, "$19999$2")],
];

const withoutPolicy = (page) => page.replace(/<meta http-equiv="Content-Security-Policy"[^>]*>/, "");
const restyled = (page, rule) => withoutPolicy(page).replace("</style>", `${rule}</style>`);

async function control(browser, file, options) {
  const whole = readFileSync(file, "utf8");
  const folder = mkdtempSync(join(tmpdir(), "ulpdrift-html-"));
  let missed = 0;
  for (const [number, [what, check, spoil]] of CONTROLS.entries()) {
    const spoilt = spoil(whole);
    const copy = join(folder, `${number}.html`);
    writeFileSync(copy, spoilt);
    const findings = new Findings(false);
    for (const width of WIDTHS) await lookAt(browser, copy, options, findings, width, "light");
    const noticed = spoilt !== whole && findings.failed.some((name) => name.includes(check));
    if (!noticed) missed += 1;
    console.log(`${noticed ? "ok  " : "FAIL"}  control: ${what}: ${noticed ? "noticed" : "not noticed"}`);
  }
  rmSync(folder, { recursive: true });
  return missed;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    ids: { type: "string", default: "" },
    shots: { type: "string" },
    controls: { type: "boolean", default: false },
  },
});
const options = { ids: values.ids.split(",").filter(Boolean), shots: values.shots };
if (options.shots) mkdirSync(options.shots, { recursive: true });
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox"],
});
let failed = 0;
for (const file of positionals) {
  if (values.controls) {
    failed += await control(browser, file, options);
  } else {
    const findings = new Findings(true);
    await lookAll(browser, file, options, findings);
    failed += findings.failed.length;
  }
}
await browser.close();
if (positionals.length === 0) {
  console.log("no page to look at");
  failed = 1;
}
console.log(failed === 0 ? "all as it should be" : `${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
