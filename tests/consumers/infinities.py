"""Reads the CSV in a kept snapshot of the writer with pandas and no options: its row has NaN and both infinities."""

import io
import math
import sys

import pandas

EXPECTED = {"slope": math.nan, "max_abs": math.inf, "drift": -math.inf}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        _, _, csv = file.read().split("---\n", 2)
    row = pandas.read_csv(io.StringIO(csv)).iloc[0]
    for name, value in EXPECTED.items():
        if row[name] != value and not (math.isnan(row[name]) and math.isnan(value)):
            sys.exit(f"FAILED {name} is {row[name]}, not {value}")
    print("pandas: " + ", ".join(f"{name} is {value}" for name, value in EXPECTED.items()))


if __name__ == "__main__":
    main()
