// A report as bad as it can be: node hostile.mjs REPORT.json HOSTILE.json
//
// Names try to be markup, a chain ends in NaN, a bound and a limit are broken, and the rows have a device's times. The
// numbers are made up; nothing but the page is tested with them.

import { readFileSync, writeFileSync } from "node:fs";

const HOSTILE = `<script>alert("1")</script><img src=x onerror=alert(2)> "q", 'a' & é\u202e漢\n</style></title>`;

const [from, to] = process.argv.slice(2);
const report = JSON.parse(readFileSync(from, "utf8"));

report.run.backend.device = HOSTILE;
report.run.checkpoint.source = `/models/${HOSTILE}`;
report.run.checkpoint.notes.push(HOSTILE);
report.skipped.push({ what: HOSTILE, why: `no \${such} thing {{ 1 }} ${HOSTILE}` });
report.failures = [HOSTILE];
report.timing = { copy_gb_per_s: 4190, inputs_of: ["L0.attn", HOSTILE] };

const variant = report.verdicts.at(-1).variant;
const renamed = (name) => (name === variant ? `${name} ${HOSTILE}` : name);
for (const verdict of report.verdicts) verdict.variant = renamed(verdict.variant);
for (const growth of report.growth ?? []) growth.variant = renamed(growth.variant);
report.recipes = Object.fromEntries(Object.entries(report.recipes).map(([name, recipe]) => [renamed(name), recipe]));

const numbers = ["NaN", "Infinity", "-Infinity"];
let time = 10;
let streams = 0;
for (const record of report.records) {
  record.variant = renamed(record.variant);
  if (record.suite === "mix" && record.stage === "dot") {
    time *= 1.01;
    Object.assign(record, { time_us: time, gb_per_s: 2e4 / time, copy_share: 5 / time });
  }
  if (record.suite === "chain" && record.stage === "streams") {
    if (record.depth > 1 && streams < 6) record.rel_l2 = numbers[streams++ % 3];
  }
}
const mixes = report.records.filter(({ suite, stage }) => suite === "mix" && stage === "mixes");
numbers.forEach((value, number) => (mixes[number].rel_l2 = value));
mixes.at(-1).bound_ratio = 1.0000001;
report.verdicts[0] = { ...report.verdicts[0], verdict: "structural", sentence: HOSTILE };
report.non_finite = [
  { variant: HOSTILE, place: "L1.ffn", depth: 1, stage: "y", token: 3, value: "NaN", came_with: 7e4, largest: "Infinity" },
];
const { suite, layer, site, depth, stage, inputs, token_class, tokens, seed, backend, arch } = mixes[0];
const key = { suite, layer, site, depth, stage, variant: mixes[0].variant, inputs, token_class, tokens, seed, backend, arch };
report.gates = [
  { check: "suite=mix: rel_l2 max 1e-4", passed: true, matched: 8 },
  {
    check: `variant=${HOSTILE}: rel_l2 max 1e-4`,
    passed: false,
    matched: 8,
    breaches: [{ key, value: "NaN", limit: 1e-4, sentence: "rel_l2 NaN is not at most 1e-4", reproduce: `ulpdrift run '${HOSTILE}'` }],
  },
];
writeFileSync(to, JSON.stringify(report));
