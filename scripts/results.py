#!/usr/bin/env python3
"""The table of latest figures in benches/results.md, made of the records.

    scripts/results.py            writes the table
    scripts/results.py --check    fails if it is not what the records say

A record is a file of benches/results whose path has a date. Its section "Figures of suites" has a table of
these columns, a row per suite, device and peer:

    | suite | device | mode | beside | ratio | worst |

"Ratio" is our time / the peer's, "worst" the query or case with the largest one, and what a reader
must know about it. Of rows with the same suite, device, mode and peer that of the latest date counts.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent / "benches"
PAGE = ROOT / "results.md"
COLUMNS = ["suite", "device", "mode", "beside", "ratio", "worst"]
KEY = 4
BEGIN = "<!-- made by scripts/results.py: begin -->\n"
END = "<!-- made by scripts/results.py: end -->\n"


def cells(line):
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def figures(path):
    """The rows of the section "Figures of suites" of a record."""
    text = path.read_text(encoding="utf-8")
    section = re.search(r"^## Figures of suites\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if section is None:
        return []
    table = [line for line in section[1].splitlines() if line.startswith("|")]
    if not table or cells(table[0]) != COLUMNS:
        sys.exit(f"{path}: the section Figures of suites has a table of | {' | '.join(COLUMNS)} |")
    rows = [cells(line) for line in table[2:]]
    for row in rows:
        if len(row) != len(COLUMNS):
            sys.exit(f"{path}: {len(COLUMNS)} cells are needed: {row}")
    return rows


def latest():
    """The latest row of each suite, device, mode and peer, with its date and record."""
    found = {}
    for path in sorted((ROOT / "results").rglob("*.md")):
        record = path.relative_to(ROOT)
        date = re.search(r"\d{4}-\d\d-\d\d", str(record))
        rows = figures(path)
        if rows and date is None:
            sys.exit(f"{path}: a record with figures has a date in its name")
        for row in rows:
            key = tuple(row[:KEY])
            if key not in found or found[key][0] <= date[0]:
                found[key] = (date[0], row, record)
    return [found[key] for key in sorted(found)]


def table():
    """The lines of the table."""
    lines = ["| suite | device | mode | beside | ratio | worst | date, record |\n"]
    lines.append("|---|---|---|---|--:|---|---|\n")
    for date, row, record in latest():
        lines.append(f"| {' | '.join(row)} | [{date}]({record}) |\n")
    return "".join(lines)


def main():
    text = PAGE.read_text(encoding="utf-8")
    begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    made = text[:begin] + table() + text[end:]
    if sys.argv[1:] == ["--check"]:
        if made != text:
            sys.exit(f"{PAGE} is not what its records say: run scripts/results.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        PAGE.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
