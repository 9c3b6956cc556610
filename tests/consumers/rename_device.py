"""Gives the device of a report a name that no format may trip over."""

import json
import sys

NAME = "H200\0, \"fast\" 'x'\r\n]]><script>alert(1)</script> | `Ω模` \u001b[31m &amp; \u2028 =cmd()"


def main():
    source, target = sys.argv[1:]
    with open(source, encoding="utf-8") as file:
        report = json.load(file)
    report["run"]["backend"]["device"] = NAME
    with open(target, "w", encoding="utf-8") as file:
        json.dump(report, file, ensure_ascii=False)


if __name__ == "__main__":
    main()
