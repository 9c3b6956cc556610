"""The report as a user reads it: JSON against its schema, CSV against JSON, rows by their key."""

import csv
import json
import math
from pathlib import Path

import jsonschema
import pandas

STAGES = ("dot", "mixes", "pre", "post", "comb", "y", "y_bf16")
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
SCHEMA = Path(__file__).resolve().parents[2] / "reports" / "report.schema.json"


def number(value):
    """A JSON measure as a float; the strings stand for what JSON has no number for."""
    return _WORDS.get(value, value) if isinstance(value, str) else value


def load(path, tally):
    """The report, valid against the published schema."""
    report = json.loads(Path(path).read_text())
    schema = json.loads(SCHEMA.read_text())
    errors = list(jsonschema.Draft202012Validator(schema).iter_errors(report))
    tally.compare("schema", "" if not errors else errors[0].message[:200], len(errors))
    return report


def by_key(report, tally):
    """Rows by (layer, site, stage, variant); a dump belongs to one run, so that is a key here."""
    out = {}
    for row in report["records"]:
        key = (row["layer"], row["site"], row["stage"], row["variant"])
        if key in out:
            tally.fail(f"rows: two records for {key}")
        out[key] = row
    return out


def same_value(text, value):
    """A CSV cell against a JSON value: empty is absent, numbers are read exactly."""
    if value is None:
        return text == ""
    value = number(value)
    if isinstance(value, str):
        return text == value
    try:
        cell = float(text)
    except ValueError:
        return False
    return cell == value or (math.isnan(cell) and math.isnan(value))


def compare_csv(path, report, tally):
    """Cell by cell with exact reading, then through pandas with no options as a user would."""
    with open(path, newline="") as file:
        cells = list(csv.DictReader(file))
    records = report["records"]
    if len(cells) != len(records):
        tally.fail(f"csv: {len(cells)} rows, the JSON has {len(records)}")
    for number_of, (cell, record) in enumerate(zip(cells, records)):
        lost = [name for name in record if name not in cell]
        wrong = [name for name, text in cell.items() if not same_value(text, record.get(name))]
        where = f"row {number_of}: {', '.join(lost + wrong)}"
        tally.compare("csv", where, len(lost) + len(wrong), len(cell))
    _compare_pandas(path, records, tally)


def _compare_pandas(path, records, tally):
    frame = pandas.read_csv(path)
    normal = pandas.json_normalize(records)
    for name in normal.columns:
        want = normal[name].map(number)
        if pandas.api.types.is_numeric_dtype(frame[name]):
            # pandas' own number parser may be an ulp off.
            near = (frame[name] - want).abs() <= 1e-15 * want.abs()
            same = near | (frame[name] == want) | (frame[name].isna() & want.isna())
        else:
            same = (frame[name] == want) | (frame[name].isna() & want.isna())
        tally.compare("pandas", name, int((~same).sum()), len(same))
