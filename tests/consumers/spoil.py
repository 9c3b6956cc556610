"""Copies a folder of reports with one thing in it that a consumer has to notice."""

import json
import pathlib
import re
import shutil
import sys


def edit(path, change):
    text = path.read_text(encoding="utf-8")
    spoiled = change(text)
    if spoiled == text:
        sys.exit(f"{path.name} has nothing to spoil")
    path.write_text(spoiled, encoding="utf-8")


def last_digit(text):
    """The last number of the last row of a CSV, off in its last place."""
    return re.sub(r"(\d)(\D*)$", lambda match: f"{(int(match[1]) + 1) % 10}{match[2]}", text)


def null(text):
    report = json.loads(text)
    report["records"][0]["rel_l2"] = None
    return json.dumps(report)


SPOILS = {
    "csv-cell": ("report.csv", last_digit),
    "csv-row": ("report.csv", lambda text: text[: text.rstrip("\n").rindex("\n") + 1]),
    "junit-count": ("junit.xml", lambda text: re.sub(r'tests="\d+"', 'tests="1000"', text, count=1)),
    "junit-element": ("junit.xml", lambda text: text.replace("<properties>", "<facts/><properties>", 1)),
    "html-script": ("report.html", lambda text: text.replace("</main>", "</main><script>1</script><script>2</script>", 1)),
    "json-null": ("report.json", null),
}


def main():
    source, target, spoil = sys.argv[1:]
    shutil.copytree(source, target)
    name, change = SPOILS[spoil]
    edit(pathlib.Path(target) / name, change)


if __name__ == "__main__":
    main()
