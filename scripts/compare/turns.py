"""Runs the queries of a suite in both programs by turns, and reads their rows and times.

    round 1   base ─ head ─ again      a process each: tables, then q01 q01 q02 q02 …
    round 2   head ─ again ─ base                                     └ the second run counts
    round 3   again ─ base ─ head

    horton-sql ─ rows ─▶ end_of_query ─ rows ─▶ end_of_query …
                              └────── a time ───────┘

`again` is base once more. A statement behind each query prints `end_of_query`, and the clock here
reads when. The shell's own clock has steps of 10 ms, which is as long as many queries take. The
statement itself takes half a millisecond, the same in both programs.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field

from programs import Failure

BASE, HEAD, AGAIN = SIDES = ("base", "head", "again")
MARK = "end_of_query"
# A query runs once to warm up, and once more.
RUNS = 2
# Where no OpenCL library is, joins run on the host.
HOST_ONLY = {"HORTON_OPENCL_LIBRARY": os.devnull}
DECIMAL = re.compile(rb"-?\d+\.\d+(?:[eE][-+]?\d+)?")


@dataclass
class Ran:
    """What runs of one query took, in milliseconds, and the digests of their rows, by side."""

    times: dict = field(default_factory=lambda: defaultdict(list))
    rows: dict = field(default_factory=lambda: defaultdict(set))


def run(suite, base, head, asked, scratch):
    """Runs a suite. Returns what was measured, by the names of queries."""
    mark = scratch / "mark"
    mark.write_text(f"SELECT 1 AS {MARK};\n")
    options = ["--quiet", "--format", "csv"] + (["--device", asked.device] if asked.device else [])
    inputs = [suite.create, mark]
    for query in suite.queries:
        inputs += [query, mark] * RUNS
    options += [word for file in inputs for word in ("--file", str(file))]
    surroundings = {**os.environ, **({} if asked.device else HOST_ONLY)}
    ran = {query.stem: Ran() for query in suite.queries}
    files = {BASE: base, HEAD: head, AGAIN: base}
    for turn in range(asked.repeat):
        # No side always comes after the same one.
        first = turn % len(SIDES)
        print(f"{suite.title}: round {turn + 1} of {asked.repeat}", file=sys.stderr)
        for side in SIDES[first:] + SIDES[:first]:
            answers = once([str(files[side])] + options, surroundings)
            if len(answers) != 1 + RUNS * len(ran):
                raise Failure(f"{files[side]} answered {len(answers)} statements of {suite.title}")
            for at, query in enumerate(ran.values()):
                both = answers[1 + RUNS * at:][:RUNS]
                query.times[side].append(both[-1][0])
                query.rows[side].update(digest(rows) for _, rows in both)
    return ran


def once(command, surroundings):
    """Runs a program once. Returns milliseconds and lines up to each mark."""
    answers, lines = [], []
    with tempfile.TemporaryFile() as log, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
            env=surroundings) as process:
        begun = time.monotonic()
        for line in process.stdout:
            if line.rstrip() != MARK.encode():
                lines.append(line)
                continue
            now = time.monotonic()
            answers.append(((now - begun) * 1e3, lines))
            # Below its name stands the mark's own row.
            next(process.stdout, None)
            begun, lines = now, []
        if process.wait() != 0:
            log.seek(0)
            last = log.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise Failure(f"{command[0]} ended with {process.returncode}: {last}")
    return answers


def digest(lines):
    """The same for the same rows in any order, and fractions of twelve digits.

    Sums of floats differ in their last digits, as threads add them in any order.
    """
    rounded = (DECIMAL.sub(lambda found: b"%.12g" % float(found[0]), line) for line in lines)
    return hashlib.sha256(b"".join(sorted(rounded))).hexdigest()
