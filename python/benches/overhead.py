"""What Python adds to a join: its rows to polars, against the same rows collected in Rust.

    python overhead.py [ROWS] [RUNS]       a release build, else the join hides it all

Prints the medians, and the overhead of polars in per cent. Both plan and run the query; runs of the two
take turns, so that both meet the same machine.
"""

import statistics
import sys
import time

import horton_join
import numpy
import polars
import pyarrow

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000_000
runs = int(sys.argv[2]) if len(sys.argv) > 2 else 9

ctx = horton_join.SessionContext({"horton.enabled": "always"})
print("device:", ", ".join(ctx.warm_up()))
random = numpy.random.default_rng(7)
keys = random.permutation(rows)
ctx.register_arrow("build", pyarrow.table({"id": keys, "a": random.random(rows)}))
ctx.register_arrow(
    "probe", pyarrow.table({"key": random.integers(0, rows, rows), "b": random.random(rows)})
)
frame = ctx.sql("SELECT id, a, b FROM probe JOIN build ON key = id")


def to_polars() -> float:
    begun = time.perf_counter()
    taken = polars.DataFrame(frame)
    seconds = time.perf_counter() - begun
    assert taken.height == rows, taken.height
    return seconds


assert frame.count() == rows
in_rust, in_polars = [], []
for _ in range(runs):
    in_rust.append(frame._collect_seconds())
    in_polars.append(to_polars())
rust, python = statistics.median(in_rust), statistics.median(in_polars)
print(f"{rows} rows, median of {runs}: Rust {rust:.3f} s, polars {python:.3f} s")
print(f"overhead: {100 * (python / rust - 1):+.1f} %")
