"""Is one commit slower than another? Whole queries of both, by turns.

    make compare BASE=v0.1                   against HEAD: TPC-H 1 in memory and from Parquet
    make compare BASE=v0.1 HEAD=topic QUERIES=DIR CREATE=FILE

    commits ─▶ horton-sql of each ─┐
    TPC-H, or your own queries ────┴▶ runs by turns ─▶ what is slower ─▶ report.md, exit status

Two calls of `make evaluation` would compare times of different minutes, and a machine changes more
than 3 % in a minute. Here the programs take turns, and base also runs against itself.

Exit status: 0; 1 if head is slower or has other rows; 2 if nothing could be compared.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import programs
import report
import suites
import turns
import verdict


def at_least_one(text):
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def arguments():
    out = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or "target") / "compare"
    data = pathlib.Path("target/evaluation-data")
    file = {"metavar": "FILE", "type": pathlib.Path}
    folder = {"metavar": "DIR", "type": pathlib.Path}
    parser = argparse.ArgumentParser(prog="compare", description=__doc__.splitlines()[0])
    parser.add_argument("--base", metavar="COMMIT", help="the commit to compare with")
    parser.add_argument("--head", metavar="COMMIT", default="HEAD", help="the other one [HEAD]")
    parser.add_argument("--base-bin", help="a built horton-sql, in the place of --base", **file)
    parser.add_argument("--head-bin", help="a built horton-sql, in the place of --head", **file)
    parser.add_argument("--scale", type=float, default=1, help="scale factor of TPC-H [1]")
    parser.add_argument("--repeat", type=at_least_one, default=5, metavar="N",
                        help="timed runs of each query and series, whose median counts [5]")
    parser.add_argument("--queries", help="run the .sql files of DIR instead of TPC-H", **folder)
    parser.add_argument("--create", metavar="FILE,…", default="",
                        help="SQL that makes the tables of --queries; each file is a suite")
    parser.add_argument("--only", metavar="NAME,…", default="",
                        help="only queries whose name contains one of these")
    parser.add_argument("--device", metavar="NAME",
                        help="value of horton.device [joins run on the host]")
    parser.add_argument("--data", default=data, help=f"where TPC-H's files are kept [{data}]",
                        **folder)
    parser.add_argument("--out", default=out, help=f"the folder of builds and report [{out}]",
                        **folder)
    asked = parser.parse_args()
    if not (asked.base or asked.base_bin):
        parser.error("BASE=COMMIT or BASE_BIN=FILE is missing")
    if bool(asked.queries) != bool(asked.create):
        parser.error("QUERIES and CREATE belong together")
    return asked


def sides(asked):
    """The programs of base and head."""
    out = asked.out.absolute()
    if asked.base_bin:
        base = programs.ready(asked.base_bin)
    else:
        base = programs.built(asked.base, out / "base")
    if asked.head_bin:
        return base, programs.ready(asked.head_bin)
    return base, programs.built(asked.head, out / "head")


def compare(asked):
    """Runs all suites and writes the report. Returns whether head passes."""
    base, head = sides(asked)
    asked.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        facts = report.facts(base, head, asked)
        verdicts = []
        for suite in suites.chosen(asked, scratch):
            ran = turns.run(suite, base.file, head.file, asked, scratch)
            verdicts.append(verdict.Verdict(suite.title, ran))
            print(report.line(verdicts[-1]), flush=True)
    file = asked.out / "report.md"
    file.write_text(report.text(facts, verdicts), encoding="utf-8")
    print(file)
    return all(one.passes() for one in verdicts)


def main():
    # A report has arrows and the names of processors, whatever the locale is.
    sys.stdout.reconfigure(encoding="utf-8")
    try:
        return 0 if compare(arguments()) else 1
    except (OSError, subprocess.CalledProcessError, programs.Failure) as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
