"""Reads a folder of reports with the libraries that users read them with, and compares.

A folder holds report.json and any of report.csv, report.md, junit.xml and report.html.
"""

import argparse
import html.parser
import json
import math
import pathlib
import sys

import junitparser
import pandas
import xmlschema

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class Failure(Exception):
    """A sentence on what is wrong."""


def expect(condition, sentence):
    if not condition:
        raise Failure(sentence)


def same(left, right):
    """Equal numbers, NaN being equal to NaN; equal text."""
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return left == right


def number(value):
    """A JSON value as the number it stands for, if it is one."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return float(value)
    return NON_FINITE.get(value, value)


def check_tables(folder, records):
    """The CSV through pandas.read_csv and the records through json_normalize, neither with an option."""
    frame = pandas.read_csv(folder / "report.csv")
    normal = pandas.json_normalize(records)
    expect(len(frame) == len(records), f"{len(frame)} rows of CSV, {len(records)} records")
    expect(len(normal) == len(records), f"{len(normal)} normalised rows, {len(records)} records")
    extra = set(normal.columns) - set(frame.columns)
    expect(not extra, f"the CSV has no column for {sorted(extra)}")
    cells = 0
    for row, record in enumerate(records):
        for column in frame.columns:
            cell = frame.at[row, column]
            cell = cell.item() if hasattr(cell, "item") else cell
            if column not in record:
                expect(isinstance(cell, float) and math.isnan(cell), f"row {row}: {column} is {cell}, the record has none")
                continue
            value = number(record[column])
            if isinstance(cell, int | float) and isinstance(value, str):
                # A name that looks like a number, such as a needle's depth.
                value = float(value)
            shown = float(cell) if isinstance(value, float) and not isinstance(cell, str) else cell
            expect(same(shown, value), f"row {row}: {column} is {cell!r} in CSV, {value!r} in JSON")
            tidy = number(normal.at[row, column])
            tidy = number(tidy.item() if hasattr(tidy, "item") else tidy)
            expect(same(tidy, number(record[column])), f"row {row}: {column} is {tidy!r} normalised, {value!r} in JSON")
            cells += 1
    print(f"pandas: {len(records)} rows, {cells} cells, equal in CSV, json_normalize and JSON")


def count_nan(records):
    values = [number(value) for record in records for value in record.values()]
    nan = sum(isinstance(value, float) and math.isnan(value) for value in values)
    expect(nan, "no NaN: this run has to have some")
    print(f"not a number: {nan} values")


def check_junit(path, schema, failed, contains):
    document = xmlschema.XMLSchema(schema)
    document.validate(path)
    report = junitparser.JUnitXml.fromfile(str(path))
    cases = [case for suite in report for case in suite]
    failures = [case for case in cases if any(isinstance(result, junitparser.Failure) for result in case.result)]
    skipped = [case for case in cases if any(isinstance(result, junitparser.Skipped) for result in case.result)]
    expect(cases, "no test case")
    expect(report.tests == len(cases), f"tests={report.tests}, {len(cases)} cases")
    expect(report.failures == len(failures), f"failures={report.failures}, {len(failures)} failing cases")
    expect(sum(suite.skipped for suite in report) == len(skipped), "skipped is not what it counts")
    expect(failed == "any" and failures or failed == str(len(failures)), f"{len(failures)} failures, {failed} expected")
    for case in failures:
        result = case.result[0]
        expect(result.message, f"{case.name} fails without a message")
    commands = [case.result[0].text or "" for case in failures if case.classname == "ulpdrift.limits"]
    expect(all("ulpdrift run" in text for text in commands), "a limit fails without the command that reproduces it")
    values = [prop.value for suite in report for prop in suite.properties()]
    expect(not contains or any(contains in value for value in values), f"no property has {contains!r}")
    print(f"JUnit: valid, {len(cases)} cases, {len(failures)} failed, {len(skipped)} skipped")


class Page(html.parser.HTMLParser):
    """What an HTML report is made of."""

    VOID = {"meta", "br", "hr", "img", "input", "link", "col", "wbr"}

    def __init__(self):
        super().__init__()
        self.open, self.text, self.scripts, self.unbalanced = [], [], 0, []

    def handle_starttag(self, tag, attributes):
        self.scripts += tag == "script"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data):
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text.append(data)


def check_html(path, contains):
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    expect(not page.unbalanced and not page.open, f"unbalanced: {page.unbalanced or page.open}")
    expect(page.scripts <= 1, f"{page.scripts} scripts")
    text = "".join(page.text)
    expect(not contains or contains in text, f"{contains!r} is not in the page")
    print(f"HTML: {len(text)} characters of text, every element closed")


def check_markdown(path, contains):
    text = path.read_text(encoding="utf-8")
    expect(text.startswith("### ulpdrift: "), "no heading")
    tables = [line for line in text.splitlines() if line.startswith("|")]
    expect(not contains or contains in text, f"{contains!r} is not in the comment")
    print(f"Markdown: {len(text.splitlines())} lines, {len(tables)} of tables")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--junit-schema", required=True)
    parser.add_argument("--failed", required=True, help="failing JUnit cases: a number, or any")
    parser.add_argument("--contains", default="", help="text that has to survive in every format")
    parser.add_argument("--nan", action="store_true", help="values that are NaN have to be there")
    args = parser.parse_args()
    folder = args.folder
    with open(folder / "report.json", encoding="utf-8") as file:
        report = json.load(file, parse_constant=lambda name: sys.exit(f"{name} is no JSON"))
    try:
        if (folder / "report.csv").exists():
            check_tables(folder, report["records"])
        if args.nan:
            count_nan(report["records"])
        check_junit(folder / "junit.xml", args.junit_schema, args.failed, args.contains)
        check_html(folder / "report.html", args.contains)
        check_markdown(folder / "report.md", args.contains)
    except (Failure, xmlschema.XMLSchemaValidationError) as error:
        sys.exit(f"FAILED {folder.name}: {error}")


if __name__ == "__main__":
    main()
