#!/usr/bin/env bash
# test.sh FOLDER: tests `make compare` by itself, and with the horton-sql in FOLDER.
#
#   tests.py                                     two fakes, one of them slow, wrong or broken
#   horton-sql ─┬▶ base ┐ TPC-H 0.01, two        rows are equal, and the report has both queries
#               └▶ head ┘ queries, one round
#
# Times say nothing here: one round can find nothing slow. The exit status is 77 without Python.
set -euo pipefail
built=$(realpath "$1")
cd "$(dirname "$0")/../.."
python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' || {
    echo "compare/test.sh: needs Python 3.8 or newer" >&2
    exit 77
}
python3 -B scripts/compare/tests.py

# The evaluation keeps the same files there.
data=$built/evaluation-data
[ -d "$data/tpch-0.01" ] || "$built/examples/tpch_join" --scale 0.01 --write "$data/tpch-0.01"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
make --no-print-directory compare BASE_BIN="$built/horton-sql" HEAD_BIN="$built/horton-sql" \
    SCALE=0.01 REPEAT=1 ONLY=q03,q06 DATA="$data" OUT="$scratch"
[ "$(grep -cE '^\| q0[36] \|' "$scratch/report.md")" = 4 ] || {
    cat "$scratch/report.md" >&2
    echo "compare/test.sh: the report lacks queries" >&2
    exit 1
}
