"""Runs a script for DuckDB's shell with DuckDB's Python module: duckdb_runner.py < SCRIPT

One statement a line. A statement's time is printed as the shell's `.timer on` prints it."""

import sys
import time

import duckdb

connection = duckdb.connect()
failed = False
for line in map(str.strip, sys.stdin):
    command, _, rest = line.partition(" ")
    if command == ".print":
        print(rest, flush=True)
    elif line and not line.startswith("."):
        begun = time.perf_counter()
        try:
            connection.execute(line)
        except duckdb.Error as error:
            # The lines after the first point at a place in the statement.
            reason = str(error).partition("\n")[0]
            print(f"{line[:60]}: {reason}", file=sys.stderr)
            failed = True
        else:
            print(f"Run Time (s): real {time.perf_counter() - begun:.6f}", flush=True)
sys.exit(failed)
