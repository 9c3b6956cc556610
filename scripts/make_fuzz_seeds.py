#!/usr/bin/env python3
"""Inputs for the fuzz targets to begin with: what is read in earnest, cut down until it is small.

usage: scripts/make_fuzz_seeds.py DIR

Writes DIR/TARGET/NAME, and fuzz/src/laws/report.json, the report that thresholds are applied to. The corpus in the
repository grew out of these. ULPDRIFT is the program whose reports are cut down, target/release/ulpdrift unless set.
"""

import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BINARY = os.environ.get("ULPDRIFT", ROOT / "target/release/ulpdrift")
# Between them every kind of row and every part of a report that needs no device.
RUNS = {
    "all": "--suite mix,recombine,chain,budget,gains,indexer,needle --context 256 --against tf32",
    "indexer-bug": "--suite indexer --context 256 --fault keys-shifted",
    "mix-bug": "--suite mix,chain --fault transposed-comb --variants fp32",
    "sweep": "--sweep tokens=1,64 --sms 132,188 --variants tf32",
    "splits": "--sweep splits=1,4 --variants tf32",
    "part": "--suite mix --layers 0 --sites attn --variants fp32 --part 1/2",
    "chain-part": "--suite chain --variants fp32 --part 1/2",
    "half": "--suite mix --layers 0,1 --sites attn --variants fp32 --part 1/2",
    "infinite": "--suite mix,chain --inputs scaled:7e4 --variants f16 --tokens 2",
}
# Enough of a header or an index; more of the same finds nothing and takes longer.
TENSORS = 6


def write(folder, target, name, content):
    path = folder / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def header(path):
    """The header of a file, and a few of its tensors with the data moved together."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        whole = json.loads(file.read(length))
    few, end = {}, 0
    for name, entry in list(whole.items())[: TENSORS + 1]:
        if name != "__metadata__":
            begin, stop = entry["data_offsets"]
            entry = {**entry, "data_offsets": [end, end + stop - begin]}
            end += stop - begin
        few[name] = entry
    return few


def checkpoints(folder):
    for path in sorted(ROOT.glob("fixtures/**/*.safetensors")):
        text = json.dumps(header(path))
        write(folder, "safetensors_header", path.stem, text)
    small = '{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"b":{"dtype":"F4","shape":[4],"data_offsets":[16,18]}}'
    write(folder, "safetensors_header", "small", small)
    write(folder, "safetensors_header", "file", struct.pack("<Q", len(small)) + small.encode() + bytes(18))
    for path in sorted(ROOT.glob("fixtures/**/model.safetensors.index.json")):
        index = json.loads(path.read_text())
        index["weight_map"] = dict(list(index["weight_map"].items())[:TENSORS])
        write(folder, "checkpoint_index", path.parent.name, json.dumps(index))
    for path in sorted(ROOT.glob("fixtures/**/config.json")):
        write(folder, "model_config", path.parent.name, path.read_text())
    v4 = {
        "model_type": "deepseek_v4", "hidden_size": 4096, "hc_mult": 4, "num_hidden_layers": 43,
        "num_nextn_predict_layers": 1, "hc_sinkhorn_iters": 20, "hc_eps": 1e-6, "rms_norm_eps": 1e-6,
        "index_topk": 512, "index_n_heads": 64, "index_head_dim": 128, "q_lora_rank": 1024, "swiglu_limit": 10.0,
        "qk_rope_head_dim": 64, "compress_rope_theta": 160000.0, "compress_ratios": [0, 4, 128],
        "rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 65536, "beta_fast": 32, "beta_slow": 1},
        "quantization_config": {"weight_block_size": [128, 128]},
    }
    write(folder, "model_config", "v4", json.dumps(v4))
    nested = {"model_type": "deepseek_v41", "text_config": v4}
    write(folder, "model_config", "nested", json.dumps(nested))


def settings(folder):
    readme = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```toml\n(.*?)```", readme, re.S)
    for number, block in enumerate(blocks):
        target = "thresholds" if "[[limit]]" in block else "recipe_toml"
        write(folder, target, f"readme-{number}", block)
    for path in ["baseline.json", "example/report.json"]:
        for title, recipe in json.loads((ROOT / "reports" / path).read_text())["recipes"].items():
            if "projection" in recipe:
                write(folder, "recipe_toml", title, table("mix", recipe))
            elif "query" in recipe:
                write(folder, "recipe_toml", title.replace(" ", "-"), table("indexer", recipe))
    for name in ["thresholds", "example"]:
        write(folder, "thresholds", name, (ROOT / f"reports/{name}.toml").read_text())


def table(kind, recipe):
    """A built-in recipe under a name that is free."""
    recipe = {**recipe, "name": "my-" + recipe["name"]}
    return f"[[{kind}]]\n" + "".join(f"{key} = {inline(value)}\n" for key, value in recipe.items())


def inline(value):
    """TOML of a JSON value, on one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {inline(value)}" for key, value in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def rows_of_each_kind(records):
    kinds = {}
    for record in records:
        key = (record["suite"], record.get("stage"), record["token_class"])
        kinds.setdefault(key, []).append(record)
    return kinds


def reports(folder):
    for name, whole in measured():
        if "part" in whole:
            write(folder, "report_json", name, json.dumps(part(whole)))
            continue
        for (suite, stage, token_class), rows in rows_of_each_kind(whole["records"]).items():
            kind = f"{name}-{suite}-{stage or 'rows'}-{token_class}"
            write(folder, "report_json", kind, json.dumps(bare(whole, rows[:1])))
        write(folder, "report_json", f"{name}-with-everything", json.dumps(cut(whole, whole["records"][:2])))
    example = json.loads((ROOT / "reports/example/report.json").read_text())
    kinds = rows_of_each_kind(example["records"]).items()
    one_each = [rows[0] for (suite, stage, _), rows in kinds if suite != "budget" and stage not in ["pre", "post", "comb"]]
    one_each = one_each[:10] + one_each[-5:]
    one_each.append({**one_each[0], "layer": 1, "rel_l2": "NaN"})
    report = cut(example, one_each)
    (ROOT / "fuzz/src/laws/report.json").write_text(json.dumps(report) + "\n")


def measured():
    """Names and reports."""
    with tempfile.TemporaryDirectory() as out:
        for name, arguments in RUNS.items():
            command = [BINARY, "run", "synthetic:tiny", *arguments.split(), "--out", out, "--format", "json", "--quiet"]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
            yield name, json.loads((pathlib.Path(out) / "report.json").read_text())


def cut(whole, rows):
    """A report of these rows, with what belongs to their variants."""
    names = {row["variant"] for row in rows}
    report = {**whole, "records": rows}
    report["run"] = {**whole["run"], "command": ["ulpdrift", "run"]}
    titles = [title for title, recipe in whole["recipes"].items() if recipe.get("name") in names]
    report["recipes"] = {title: whole["recipes"][title] for title in titles[:1]}
    report["verdicts"] = [verdict for verdict in whole["verdicts"] if verdict["variant"] in names][:1]
    failed = [gate for gate in whole["gates"] if gate.get("breaches")]
    report["gates"] = [{**gate, "breaches": gate["breaches"][:1]} for gate in failed[:1]]
    for part in ["growth", "faults", "diagnoses", "non_finite", "failures"]:
        if part in whole:
            report[part] = whole[part][:1]
    return report


def bare(whole, rows):
    """A report of these rows and as little else as there can be."""
    lists = {name: [] for name in ["skipped", "verdicts", "gates"]}
    kept = {name: whole[name] for name in ["schema_version", "tool", "run"]}
    kept["run"] = {**whole["run"], "command": ["ulpdrift", "run"]}
    return {**kept, **lists, "recipes": {}, "records": rows}


def part(whole):
    """A part of a run, of two rows at the end of the first case."""
    report = bare(whole, whole["records"][-2:])
    finished = whole["part"]["finished"][:1]
    finished[0]["rows"] = 2
    found = finished[0]["found"]
    found["yardstick"] = []
    found["read"]["digests"] = dict(list(found["read"]["digests"].items())[:2])
    head = {**whole["part"]["head"], "run": report["run"], "recipes": {}}
    head["flags"] = dict(list(head["flags"].items())[:2])
    return {**report, "part": {**whole["part"], "head": head, "finished": finished}}


def main():
    folder = pathlib.Path(sys.argv[1])
    checkpoints(folder)
    settings(folder)
    reports(folder)


if __name__ == "__main__":
    main()
